/* The one exponential of the engine, for arguments of at most 0, which is all that softmax, a sigmoid and tanh need.
 *
 * exp(x) = 2^n * p(r) with n = round(x / ln 2), r = x - n ln 2 and a polynomial p of degree 6: relative error below
 * 1e-7 on [PN_EXP_LOWEST, 0], exactly 1 at 0, exactly 0 below PN_EXP_LOWEST (where 2^n would leave the normal range),
 * NaN for NaN. The scalar and the vector form do the same operations, so they give the same bits.
 */
#ifndef PN_EXP_H
#define PN_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PN_EXP_LOWEST -87.3f
#define PN_EXP_LOG2E 0x1.715476p+0f
#define PN_EXP_SHIFT 0x1.8p+23f /* adding it rounds to an integer, which is then in the low bits */
#define PN_EXP_LN2_HI 0x1.62e4p-1f
#define PN_EXP_LN2_LO 0x1.7f7d1cp-20f
#define PN_EXP_C6 0x1.6ab98p-10f
#define PN_EXP_C5 0x1.126d0cp-7f
#define PN_EXP_C4 0x1.55589ap-5f
#define PN_EXP_C3 0x1.55540ap-3f
#define PN_EXP_C2 0x1.fffffap-2f

static inline float pn_exp(float x)
{
    if (!(x >= PN_EXP_LOWEST))
        return x != x ? x : 0.0f;
    float shifted = fmaf(x, PN_EXP_LOG2E, PN_EXP_SHIFT), n = shifted - PN_EXP_SHIFT;
    float r = fmaf(-n, PN_EXP_LN2_LO, fmaf(-n, PN_EXP_LN2_HI, x));
    float p = fmaf(PN_EXP_C6, r, PN_EXP_C5);
    p = fmaf(p, r, PN_EXP_C4);
    p = fmaf(p, r, PN_EXP_C3);
    p = fmaf(p, r, PN_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    uint32_t power, bits;
    memcpy(&power, &shifted, 4);
    memcpy(&bits, &p, 4);
    bits += power << 23;
    memcpy(&p, &bits, 4);
    return p;
}

/* 1 / (1 + exp(-x)), from exp(-|x|) so that nothing overflows. */
static inline float pn_sigmoid(float x)
{
    float e = pn_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* An odd polynomial near 0, where 1 - exp(-2|x|) has lost its digits, else that quotient: relative error below 3e-7. */
#define PN_TANH_SMALL 0.25f /* up to here the polynomial of degree 9 is exact to 1e-8 */
#define PN_TANH_C9 (62.0f / 2835.0f)
#define PN_TANH_C7 (-17.0f / 315.0f)
#define PN_TANH_C5 (2.0f / 15.0f)
#define PN_TANH_C3 (-1.0f / 3.0f)

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
#include <immintrin.h>

static inline __m256 pn_exp_avx2(__m256 x)
{
    const __m256 shift = _mm256_set1_ps(PN_EXP_SHIFT), one = _mm256_set1_ps(1.0f);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(PN_EXP_LOG2E), shift), n = _mm256_sub_ps(shifted, shift);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(PN_EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(PN_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(PN_EXP_C6), r, _mm256_set1_ps(PN_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PN_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PN_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PN_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
    p = _mm256_and_ps(p, _mm256_cmp_ps(x, _mm256_set1_ps(PN_EXP_LOWEST), _CMP_GE_OQ));
    return _mm256_or_ps(p, _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

static inline __m256 pn_sigmoid_avx2(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = pn_exp_avx2(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
    __m256 above = _mm256_blendv_ps(one, e, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
    return _mm256_div_ps(above, _mm256_add_ps(one, e));
}

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

#ifdef __AVX512F__
static inline __m512 pn_exp_avx512(__m512 x)
{
    const __m512 shift = _mm512_set1_ps(PN_EXP_SHIFT), one = _mm512_set1_ps(1.0f);
    __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(PN_EXP_LOG2E), shift), n = _mm512_sub_ps(shifted, shift);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(PN_EXP_LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(PN_EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(PN_EXP_C6), r, _mm512_set1_ps(PN_EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(PN_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(PN_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(PN_EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(PN_EXP_LOWEST), _CMP_GE_OQ);
    p = _mm512_castsi512_ps(_mm512_maskz_add_epi32(normal, _mm512_castps_si512(p), power));
    return _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

static inline __m512 pn_sigmoid_avx512(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u);
    __m512 e = pn_exp_avx512(_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), sign)));
    __m512 above = _mm512_mask_mov_ps(one, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), e);
    return _mm512_div_ps(above, _mm512_add_ps(one, e));
}
#endif

#endif
