/* Rows to lanes: 4 dwords of up to 16 rows become 4 vectors of one dword of every row, lane = row. */
#ifndef PN_X86_TRANSPOSE512_H
#define PN_X86_TRANSPOSE512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPOSE_INLINE static inline __attribute__((always_inline))

/* Rows i, i + 4, ... in the quarters of v[i], of which quarters 0 to n_quarters - 1 are filled. */
TRANSPOSE_INLINE void load_quarters(const uint8_t *const *row, size_t offset, const int n_quarters, __m512i *v)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[i] + offset)));
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(row[4 + i] + offset)), 1);
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(row[8 + i] + offset)), 2);
        if (n_quarters == 4)
            v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(row[12 + i] + offset)), 3);
    }
}

/* v[g] = dword g of the 16 bytes at offset of every row */
TRANSPOSE_INLINE void transpose_rows(const uint8_t *const *row, size_t offset, const int n_quarters, __m512i *v)
{
    __m512i r[4];
    load_quarters(row, offset, n_quarters, r);
    const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

#endif
