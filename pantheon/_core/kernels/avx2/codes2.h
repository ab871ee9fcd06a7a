/* Codes of one and two bits in blocks of 18 bytes that begin with an f16 scale: Q1_0 (128 codes) and Q2_0 (64). */
#ifndef PN_AVX2_CODES2_H
#define PN_AVX2_CODES2_H

#include "x86/rows8.h"

/* Codes 32j .. 32j + 31, -1 or 1: bit k of the codes' dword is code k. */
PN_INLINE __m256i q1_0_codes(const uint8_t *b, int j)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                             2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)pn_load32(b + 2 + 4 * j)), byte_of);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit_of), _mm256_setzero_si256());
    return _mm256_or_si256(v, _mm256_set1_epi8(1));
}

/* Codes 32j .. 32j + 31, -1 to 2: four neighbours share a byte, the first in the lowest bits. */
PN_INLINE __m256i q2_0_codes(const uint8_t *b, int j)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                             4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    __m128i eight = _mm_loadl_epi64((const __m128i *)(b + 2 + 8 * j));
    __m256i v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(eight), byte_of);
    v = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xAA); /* the third and fourth of a byte */
    v = _mm256_blendv_epi8(v, _mm256_srli_epi16(v, 2), _mm256_set1_epi16((short)0xff00)); /* the second and fourth */
    return _mm256_sub_epi8(_mm256_and_si256(v, _mm256_set1_epi8(3)), _mm256_set1_epi8(1));
}

#endif
