/* tanh of the RWKV kernels: an odd polynomial near 0, where 1 - exp(-2|x|) has lost its digits, else that quotient.
 * Relative error below 3e-7. Scalar and vector form do the same operations, so they give the same bits. */
#ifndef PN_RWKV_H
#define PN_RWKV_H

#include "exp.h"

#define PN_TANH_SMALL 0.25f /* up to here the polynomial of degree 9 is exact to 1e-8 */
#define PN_TANH_C9 (62.0f / 2835.0f)
#define PN_TANH_C7 (-17.0f / 315.0f)
#define PN_TANH_C5 (2.0f / 15.0f)
#define PN_TANH_C3 (-1.0f / 3.0f)
#define PN_RWKV_DECAY -0.606531f /* -exp(-1/2) as the published model has it */
#define PN_RWKV_NORM_EPS 64e-5f
#define PN_RWKV_TINY 1e-12f

static inline float pn_tanh(float x)
{
    float e = pn_exp(-2.0f * fabsf(x)), s = x * x;
    float p = fmaf(PN_TANH_C9, s, PN_TANH_C7);
    p = fmaf(p, s, PN_TANH_C5);
    p = fmaf(p, s, PN_TANH_C3);
    p = fmaf(p * s, x, x);
    return fabsf(x) < PN_TANH_SMALL ? p : copysignf((1.0f - e) / (1.0f + e), x);
}

#ifdef __AVX2__
static inline __m256 pn_tanh_avx2(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    __m256 magnitude = _mm256_andnot_ps(sign, x), s = _mm256_mul_ps(x, x);
    __m256 e = pn_exp_avx2(_mm256_mul_ps(_mm256_set1_ps(-2.0f), magnitude));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(PN_TANH_C9), s, _mm256_set1_ps(PN_TANH_C7));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(PN_TANH_C5));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(PN_TANH_C3));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, s), x, x);
    __m256 q = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
    q = _mm256_or_ps(_mm256_andnot_ps(sign, q), _mm256_and_ps(sign, x));
    return _mm256_blendv_ps(q, p, _mm256_cmp_ps(magnitude, _mm256_set1_ps(PN_TANH_SMALL), _CMP_LT_OQ));
}
#endif

#endif
