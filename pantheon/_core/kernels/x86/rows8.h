/* Eight rows at once, straight from the file's own layout.
 *
 * Rows r and r + 4 share a vector: 16 bytes of row r in the low half, of row r + 4 in the high half. Four such
 * vectors hold partial sums of all eight rows, and the trees below end with row r in 32-bit lane r. The rows are any
 * distance apart; nothing outside a row's own blocks is read.
 */
#ifndef PN_X86_ROWS8_H
#define PN_X86_ROWS8_H

#include <immintrin.h>
#include "bits.h"
#include "kernels.h"

#define PN_INLINE static inline __attribute__((always_inline))

PN_INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
PN_INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* 16 bytes of the activations, the same for both halves */
PN_INLINE __m256i twice128(const void *p) { return _mm256_broadcastsi128_si256(load128(p)); }

PN_INLINE __m256i pair128(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(low)), load128(high), 1);
}

/* (a0 a1 a2 a3, b0 b1 b2 b3) per half -> a0+a2 b0+b2 a1+a3 b1+b3, as 16-bit or 32-bit sums */
PN_INLINE __m256i fold_epi16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

PN_INLINE __m256i fold_epi32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

/* The last level of a tree, a b a b and c d c d -> a b c d per half: the two operands of its addition. */
#define LAST_LEVEL(ab, cd) \
    _mm256_blend_epi32(ab, cd, 0xCC), \
    _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(ab), _mm256_castsi256_ps(cd), 0x4E))

/* s[r]: rows r | r + 4. Lane r of the result is the sum of row r's four lanes (in 16 bits: two 16-bit parts of it). */
PN_INLINE __m256i tree_epi16(const __m256i s[4])
{
    __m256i ab = fold_epi16(s[0], s[1]), cd = fold_epi16(s[2], s[3]);
    return _mm256_add_epi16(LAST_LEVEL(ab, cd));
}

PN_INLINE __m256i tree_epi32(const __m256i s[4])
{
    __m256i ab = fold_epi32(s[0], s[1]), cd = fold_epi32(s[2], s[3]);
    return _mm256_add_epi32(LAST_LEVEL(ab, cd));
}

/* The same from one whole vector a row. */
PN_INLINE __m256i tree8_epi32(const __m256i t[8])
{
    __m256i s[4];
    for (int r = 0; r < 4; r++)
        s[r] = _mm256_add_epi32(_mm256_blend_epi32(t[r], t[r + 4], 0xF0),
                                _mm256_permute2x128_si256(t[r], t[r + 4], 0x21));
    return tree_epi32(s);
}

/* Eight f16 scales at p + r * stride. Reads 2 bytes a row. */
PN_INLINE __m256 load_scales(const uint8_t *p, size_t stride)
{
    __m128i v = _mm_cvtsi32_si128(pn_load16(p));
    v = _mm_insert_epi16(v, pn_load16(p + stride), 1);
    v = _mm_insert_epi16(v, pn_load16(p + 2 * stride), 2);
    v = _mm_insert_epi16(v, pn_load16(p + 3 * stride), 3);
    v = _mm_insert_epi16(v, pn_load16(p + 4 * stride), 4);
    v = _mm_insert_epi16(v, pn_load16(p + 5 * stride), 5);
    v = _mm_insert_epi16(v, pn_load16(p + 6 * stride), 6);
    v = _mm_insert_epi16(v, pn_load16(p + 7 * stride), 7);
    return _mm256_cvtph_ps(v);
}

/* The same for blocks that begin with their scale and have 16 bytes or more: reads 16 bytes a row. */
PN_INLINE __m256 load_scales_wide(const uint8_t *p, size_t stride)
{
    __m128i a = _mm_unpacklo_epi16(load128(p), load128(p + stride));
    __m128i b = _mm_unpacklo_epi16(load128(p + 2 * stride), load128(p + 3 * stride));
    __m128i c = _mm_unpacklo_epi16(load128(p + 4 * stride), load128(p + 5 * stride));
    __m128i d = _mm_unpacklo_epi16(load128(p + 6 * stride), load128(p + 7 * stride));
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d)));
}

/* For blocks that begin with scale and minimum: both of eight rows. Reads 16 bytes a row. */
PN_INLINE void load_scales_mins(const uint8_t *p, size_t stride, __m256 *d, __m256 *m)
{
    __m128i a = _mm_unpacklo_epi16(load128(p), load128(p + 2 * stride)); /* d0 d2 m0 m2 */
    __m128i b = _mm_unpacklo_epi16(load128(p + stride), load128(p + 3 * stride));
    __m128i c = _mm_unpacklo_epi16(load128(p + 4 * stride), load128(p + 6 * stride));
    __m128i e = _mm_unpacklo_epi16(load128(p + 5 * stride), load128(p + 7 * stride));
    a = _mm_unpacklo_epi16(a, b); /* d0 d1 d2 d3 m0 m1 m2 m3 */
    c = _mm_unpacklo_epi16(c, e);
    *d = _mm256_cvtph_ps(_mm_unpacklo_epi64(a, c));
    *m = _mm256_cvtph_ps(_mm_unpackhi_epi64(a, c));
}

PN_INLINE void store8(float *out, size_t os, __m256 v)
{
    if (os == 1) {
        _mm256_storeu_ps(out, v);
        return;
    }
    float lane[8];
    _mm256_storeu_ps(lane, v);
    for (int r = 0; r < 8; r++)
        out[r * os] = lane[r];
}

/* One row is eight times the same row: rows that are left over are few, and their bits are then the same for
 * certain. */
#define PN_DOT1_FROM_DOT8(type) \
    static void type##_dot1(const uint8_t *row, const pn_act *x, int t, float *out) \
    { \
        float same[8]; \
        type##_dot8(row, 0, x, t, same, 1); \
        *out = same[0]; \
    }

#define PN_AVX2_SET(k, id, prefix) ((k)->type[id].dot8 = prefix##_dot8, (k)->type[id].dot1 = prefix##_dot1)

#endif
