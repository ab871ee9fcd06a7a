/* exp.h in 8-wide and 16-wide registers: the same operations, so the same bits. */
#ifndef PN_X86_EXP_H
#define PN_X86_EXP_H

#include <immintrin.h>
#include "../exp.h"

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
