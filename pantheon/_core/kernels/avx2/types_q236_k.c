/* Q2_K, Q3_K and Q6_K: sixteen groups of 16 codes. The 2-bit fields 0..3 of 32 bytes belong to 32 codes each. */
#include "super.h"

/* The bits of mask in every byte, after a move from bit `from` to bit `to`. */
PN_INLINE __m256i bits_moved(const uint8_t *p, int from, int to, int mask)
{
    __m256i v = load256(p);
    v = from < to ? _mm256_slli_epi16(v, to - from) : _mm256_srli_epi16(v, from - to);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

PN_INLINE __m256i two_bits(const uint8_t *p, int field) { return bits_moved(p, 2 * field, 0, 3); }

static inline __m256i q2_k_codes(const uint8_t *b, int j) { return two_bits(b + 16 + j / 4 * 32, j % 4); }
static inline uint16_t q2_k_d(const uint8_t *b) { return pn_load16(b + 80); }
static inline uint16_t q2_k_dmin(const uint8_t *b) { return pn_load16(b + 82); }
static inline __m128i q2_k_scales(const uint8_t *b) { return _mm_and_si128(load128(b), _mm_set1_epi8(15)); }

static inline __m128i q2_k_mins(const uint8_t *b)
{
    return _mm_and_si128(_mm_srli_epi16(load128(b), 4), _mm_set1_epi8(15));
}

static const pn_super_type Q2_K = {.bytes = 84, .offset = 0, .factor = 1, .codes = q2_k_codes, .scales = q2_k_scales,
                                   .d = q2_k_d, .mins = q2_k_mins, .dmin = q2_k_dmin};
PN_SUPER_FUNCTIONS(q2_k, Q2_K, s16)

/* The third bit of code 32j + l is bit j of byte l; codes are offset by 4. */
static inline __m256i q3_k_codes(const uint8_t *b, int j)
{
    return _mm256_or_si256(two_bits(b + 32 + j / 4 * 32, j % 4), bits_moved(b, j, 2, 4));
}

static inline uint16_t q3_k_d(const uint8_t *b) { return pn_load16(b + 108); }

/* Nibbles of 8 bytes, low ones first; bit pairs 0..3 of 4 more bytes are the high bits of four scales each. */
static inline __m128i q3_k_scales(const uint8_t *b)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)(b + 96));
    __m128i low = _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
    __m128i h = _mm_srlv_epi32(_mm_set1_epi32((int)pn_load32(b + 104)), _mm_setr_epi32(0, 2, 4, 6));
    __m128i high = _mm_slli_epi16(_mm_and_si128(h, _mm_set1_epi8(3)), 4);
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
}

static const pn_super_type Q3_K = {.bytes = 110, .offset = 4, .factor = 1, .codes = q3_k_codes, .scales = q3_k_scales,
                                   .d = q3_k_d};
PN_SUPER_FUNCTIONS(q3_k, Q3_K, u6)

/* Nibbles of 64 bytes, low ones first, and two more bits; codes are offset by 32, scales are bytes. */
static inline __m256i q6_k_codes(const uint8_t *b, int j)
{
    __m256i low = bits_moved(b + j / 4 * 64 + j % 2 * 32, j % 4 / 2 * 4, 0, 15);
    return _mm256_or_si256(low, bits_moved(b + 128 + j / 4 * 32, j % 4 * 2, 4, 0x30));
}

static inline uint16_t q6_k_d(const uint8_t *b) { return pn_load16(b + 208); }
static inline __m128i q6_k_scales(const uint8_t *b) { return load128(b + 192); }

static const pn_super_type Q6_K = {.bytes = 210, .offset = 32, .factor = 1, .codes = q6_k_codes, .scales = q6_k_scales,
                                   .d = q6_k_d};
PN_SUPER_ROWS(q6_k, Q6_K)

void pn_avx2_types_q236_k(pn_kernels *k)
{
    PN_SUPER_SET(k, PN_Q2_K, q2_k);
    PN_SUPER_SET(k, PN_Q3_K, q3_k);
    PN_SUPER_SET_ROWS(k, PN_Q6_K, q6_k);
}
