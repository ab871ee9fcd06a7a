/* Panels of Q4_K, Q5_K and Q6_K as planes.h has them, straight from the file's blocks: the bytes of 16 rows are brought
 * side by side, then codes, scales and minimums are taken out of them, all rows at once.
 */
#ifndef PN_AMX_UNPACK_K_H
#define PN_AMX_UNPACK_K_H

#include "planes.h"
#include "x86/transpose512.h"

/* Bytes first and second of every dword, as two int16 */
TILE_INLINE __m512i byte_pair(__m512i v, const int first, const int second)
{
    const char z = (char)0x80;
    const __m128i of = _mm_setr_epi8((char)first, z, (char)second, z, (char)(4 + first), z, (char)(4 + second), z,
                                     (char)(8 + first), z, (char)(8 + second), z, (char)(12 + first), z,
                                     (char)(12 + second), z);
    return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(of));
}

TILE_INLINE __m512i nibbles(__m512i v, const int high)
{
    return _mm512_and_si512(high ? _mm512_srli_epi32(v, 4) : v, _mm512_set1_epi8(15));
}

/* 8 vectors: dword g of the 32 bytes at offset of every row */
TILE_INLINE void transpose_32(const uint8_t *const *row, size_t offset, __m512i *v)
{
    transpose_rows(row, offset, 4, v);
    transpose_rows(row, offset + 16, 4, v + 4);
}

/* d, dmin, then 8 scales and 8 mins of 6 bits in 12 bytes; 256 codes, two sub-blocks in the nibbles of 32 bytes; before
 * them, of Q5_K, 32 bytes with their fifth bits, bit j that of sub-block j. */
TILE_INLINE void planes_block_45(pn_type type, const uint8_t *const *row, uint8_t *block)
{
    __m512i head[4], fifth[PANEL_STEPS];
    transpose_rows(row, 0, 4, head);
    const __m512i six = _mm512_set1_epi8(0x3f), two = _mm512_set1_epi8(0x30);
    const __m512i scale[2] = {_mm512_and_si512(head[1], six),
                              _mm512_or_si512(nibbles(head[3], 0),
                                            _mm512_and_si512(_mm512_srli_epi32(head[1], 2), two))};
    const __m512i min[2] = {_mm512_and_si512(head[2], six),
                            _mm512_or_si512(nibbles(head[3], 1),
                                            _mm512_and_si512(_mm512_srli_epi32(head[2], 2), two))};
    if (type == PN_Q5_K)
        transpose_32(row, 16, fifth);
    #pragma GCC unroll 4
    for (int c = 0; c < PANEL_SUBS / 2; c++) {
        __m512i v[PANEL_STEPS];
        transpose_32(row, (type == PN_Q5_K ? 48 : 16) + (size_t)c * 32, v);
        #pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const int j = 2 * c + h;
            const plane_scale of = plane_scale_of(byte_pair(scale[j / 4], j % 4, j % 4), 0);
            #pragma GCC unroll 8
            for (int g = 0; g < PANEL_STEPS; g++) {
                __m512i codes = nibbles(v[g], h);
                if (type == PN_Q5_K) {
                    const __m512i bit = j < 4 ? _mm512_slli_epi32(fifth[g], 4 - j) : _mm512_srli_epi32(fifth[g], j - 4);
                    codes = _mm512_or_si512(codes, _mm512_and_si512(bit, _mm512_set1_epi8(16)));
                }
                planes_scale(block, j * PANEL_STEPS + g, codes, 0, &of);
            }
        }
    }
    #pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        _mm512_store_si512(block + PLANES + j * PANEL_SET, byte_pair(min[j / 2], 2 * (j % 2), 2 * (j % 2) + 1));
    _mm512_store_ps((float *)(block + planes_d(4)), halves_ps(head[0], 0));
    _mm512_store_ps((float *)(block + planes_d(4) + PANEL_SET), halves_ps(head[0], 1));
}

/* 128 bytes of low nibbles, 64 of bit pairs, 16 int8 scales of 16 codes each, d. Four sub-blocks share 64 bytes of the
 * former and 32 of the latter. */
TILE_INLINE void planes_block_6(const uint8_t *const *row, uint8_t *block)
{
    __m512i scale[4], tail[4];
    transpose_rows(row, 192, 4, scale);
    transpose_rows(row, 194, 4, tail); /* its last dword ends with d */
    for (int half = 0; half < 2; half++) {
        __m512i low[2][PANEL_STEPS], high[PANEL_STEPS];
        transpose_32(row, (size_t)half * 64, low[0]);
        transpose_32(row, (size_t)half * 64 + 32, low[1]);
        transpose_32(row, 128 + (size_t)half * 32, high);
        #pragma GCC unroll 8
        for (int i = 0; i < 8; i++) { /* scales of the half, each of 4 steps */
            const int q = i / 2;      /* sub-block */
            const plane_scale of = plane_scale_of(byte_pair(scale[2 * half + i / 4], i % 4, i % 4), 32);
            #pragma GCC unroll 4
            for (int g = i % 2 * 4; g < i % 2 * 4 + 4; g++) {
                const __m512i bits = q < 2 ? _mm512_slli_epi32(high[g], 4 - 2 * q)
                                           : _mm512_srli_epi32(high[g], 2 * q - 4);
                const __m512i codes = _mm512_or_si512(nibbles(low[q & 1][g], q >= 2),
                                                      _mm512_and_si512(bits, _mm512_set1_epi8(0x30)));
                planes_scale(block, (4 * half + q) * PANEL_STEPS + g, codes, 32, &of);
            }
        }
    }
    _mm512_store_ps((float *)(block + planes_d(0)), halves_ps(tail[3], 1));
}

TILE_INLINE void planes_unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_Q4_K ? 144 : type == PN_Q5_K ? 176 : 210;
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 256; b++, panel += planes_block(type == PN_Q6_K ? 0 : 4), rows_next(&rows)) {
        if (type == PN_Q6_K)
            planes_block_6(rows.at, panel);
        else
            planes_block_45(type, rows.at, panel);
    }
}

#endif
