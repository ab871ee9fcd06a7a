/* Unsigned codes of 4 and 5 bits: Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K. 32 codes in order. */
#ifndef PN_X86_CODES45_H
#define PN_X86_CODES45_H

#include "panels.h"
#include "rows8.h"

PN_INLINE int q32_has_fifth_bit(pn_type type) { return type == PN_Q5_0 || type == PN_Q5_1; }

PN_INLINE int q32_header_bytes(pn_type type) { return (q32_has_min(type) ? 4 : 2) + (q32_has_fifth_bit(type) ? 4 : 0); }

PN_INLINE int q32_block_bytes(pn_type type) { return q32_header_bytes(type) + 16; }

/* 16 low nibbles, then 16 high ones; bit k of the word before them is the fifth bit of code k. */
PN_INLINE __m256i q32_codes(pn_type type, const uint8_t *block)
{
    const uint8_t *qs = block + q32_header_bytes(type);
    __m128i v = load128(qs);
    __m256i c = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    c = _mm256_and_si256(c, _mm256_set1_epi8(15));
    if (q32_has_fifth_bit(type)) {
        const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                                 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
        const __m256i bit_of = _mm256_set1_epi64x(0x8040201008040201ll);
        __m256i h = _mm256_shuffle_epi8(_mm256_set1_epi32((int)pn_load32(qs - 4)), byte_of);
        h = _mm256_cmpeq_epi8(_mm256_and_si256(h, bit_of), bit_of);
        c = _mm256_or_si256(c, _mm256_and_si256(h, _mm256_set1_epi8(16)));
    }
    return c;
}

/* Sub-block j: a nibble of 32 bytes that two sub-blocks share; Q5_K's fifth bit is bit j of 32 more. */
PN_INLINE __m256i k45_codes(pn_type type, const uint8_t *block, int j)
{
    __m256i v = load256(block + (type == PN_Q5_K ? 48 : 16) + (j / 2) * 32);
    v = _mm256_and_si256(j & 1 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
    if (type == PN_Q5_K) {
        __m256i h = _mm256_and_si256(_mm256_srli_epi16(load256(block + 16), j), _mm256_set1_epi8(1));
        v = _mm256_or_si256(v, _mm256_slli_epi16(h, 4));
    }
    return v;
}

#endif
