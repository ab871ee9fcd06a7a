/* Codes of 4 bits that index a list of values, and the scales that go with them: IQ4_NL and IQ4_XS (unequal steps),
 * MXFP4 and NVFP4 (the magnitudes of a 4-bit float, doubled). The reference says what each number means. */
#ifndef PN_X86_CODES4_H
#define PN_X86_CODES4_H

#include "rows8.h"

PN_INLINE __m256i unequal_values(void)
{
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
}

PN_INLINE __m256i e2m1_values(void)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
}

/* 32 values of 16 bytes: the low nibbles, then the high ones. */
PN_INLINE __m256i lookup_32(__m256i values, const uint8_t *p)
{
    __m128i v = load128(p);
    __m256i c = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_shuffle_epi8(values, _mm256_and_si256(c, _mm256_set1_epi8(15)));
}

/* Eight scales of MXFP4 from their exponents, int32: the two smallest are subnormal floats. */
PN_INLINE __m256 mx_scales(__m256i e)
{
    __m256i usual = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(usual, small, is_small));
}

/* Eight scales of NVFP4, int32 in [0, 255]: exponent and mantissa are those of a half, 128 times too small. */
PN_INLINE __m256 nv_scales(__m256i s)
{
    __m256i bits = _mm256_slli_epi32(_mm256_and_si256(s, _mm256_set1_epi32(0x7f)), 7);
    bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(s, _mm256_set1_epi32(0x7f)), bits);
    __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(128));
}

/* NVFP4: 64 codes. Per half, sub-blocks 0 | 2 in *even and 1 | 3 in *odd, 16 codes each; the low nibbles of 8 bytes are
 * a sub-block's first codes. */
PN_INLINE void nvfp4_codes(const uint8_t *b, __m256i *even, __m256i *odd)
{
    __m256i v = load256(b + 4), low4 = _mm256_set1_epi8(15);
    __m256i lo = _mm256_and_si256(v, low4), hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
    *even = _mm256_shuffle_epi8(e2m1_values(), _mm256_unpacklo_epi64(lo, hi));
    *odd = _mm256_shuffle_epi8(e2m1_values(), _mm256_unpackhi_epi64(lo, hi));
}

#endif
