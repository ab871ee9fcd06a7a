/* Panels of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 (see panels.h), all 16 rows in a register.
 *
 * The bytes of the rows are brought side by side before the codes are taken out of them: a dword of a row holds 4
 * codes of one step, or the low and the high nibbles of 4 codes of two steps.
 */
#ifndef PN_AVX512_UNPACK_Q32_H
#define PN_AVX512_UNPACK_Q32_H

#include "x86/codes45.h"
#include "x86/tiles512.h"
#include "x86/transpose512.h"

enum { Q32_PREFETCH_BLOCKS = 16, Q8_PREFETCH_BLOCKS = 8 };

/* Adds 16 to the 4 codes of a step whose bit is set; bits: the byte with the bits of this step and its neighbour, 4
 * times. */
TILE_INLINE __m512i add_fifth_bits(__m512i codes, __m512i bits, const int high)
{
    const __m512i bit_of = _mm512_set1_epi32(high ? (int)0x80402010u : 0x08040201);
    return _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(bits, bit_of), codes, _mm512_set1_epi8(16));
}

TILE_INLINE void unpack_block_45(pn_type type, const uint8_t *const *row, uint8_t *panel)
{
    __m512i head[4], v[4], c[PANEL_STEPS];
    transpose_rows(row, 0, 4, head); /* scale, minimum, fifth bits; the rest is not used */
    transpose_rows(row, (size_t)q32_header_bytes(type), 4, v);
    #pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        c[g] = _mm512_and_si512(v[g], _mm512_set1_epi8(15));
        c[g + 4] = _mm512_and_si512(_mm512_srli_epi32(v[g], 4), _mm512_set1_epi8(15));
    }
    if (q32_has_fifth_bit(type)) {
        const __m512i bits = q32_has_min(type) ? head[1] : _mm512_or_si512(_mm512_srli_epi32(head[0], 16),
                                                                           _mm512_slli_epi32(head[1], 16));
        #pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i byte_of = _mm512_broadcast_i32x4(_mm_setr_epi8(
                i, i, i, i, 4 + i, 4 + i, 4 + i, 4 + i, 8 + i, 8 + i, 8 + i, 8 + i, 12 + i, 12 + i, 12 + i, 12 + i));
            const __m512i byte = _mm512_shuffle_epi8(bits, byte_of);
            c[2 * i] = add_fifth_bits(c[2 * i], byte, 0);
            c[2 * i + 1] = add_fifth_bits(c[2 * i + 1], byte, 1);
        }
    }
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++)
        _mm512_store_si512(panel + g * PANEL_SET, c[g]);
    const __m512 d = halves_ps(head[0], 0);
    _mm512_store_ps((float *)(panel + Q32_D), d);
    if (q32_has_min(type)) {
        __m512 m = halves_ps(head[0], 1);
        if (q32_offset_shift(type)) /* d * (c + 16) + m: the offset of the codes moves into the minimum */
            m = _mm512_fmadd_ps(_mm512_set1_ps((float)(1 << q32_offset_shift(type))), d, m);
        _mm512_store_ps((float *)(panel + Q32_M), m);
    }
}

TILE_INLINE void unpack_block_8(const uint8_t *const *row, uint8_t *panel)
{
    __m512i head[4], v[PANEL_STEPS];
    transpose_rows(row, 0, 4, head);
    transpose_rows(row, 2, 4, v);
    transpose_rows(row, 18, 4, v + 4);
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++) /* offset by 128 */
        _mm512_store_si512(panel + g * PANEL_SET, _mm512_xor_si512(v[g], _mm512_set1_epi8(-128)));
    _mm512_store_ps((float *)(panel + Q32_D), halves_ps(head[0], 0));
}

TILE_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_Q8_0 ? 34 : (size_t)q32_block_bytes(type);
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 32; b++, panel += q32_panel_block(type), rows_next(&rows)) {
        if (type == PN_Q8_0 || !(b & 1)) { /* a line holds two to three blocks of the others */
            const size_t ahead = (type == PN_Q8_0 ? Q8_PREFETCH_BLOCKS : Q32_PREFETCH_BLOCKS) * bytes;
            rows_prefetch(&rows, 0, ahead, 1);
            rows_prefetch(&rows, LANES, ahead, 1);
        }
        if (type == PN_Q8_0)
            unpack_block_8(rows.at, panel);
        else
            unpack_block_45(type, rows.at, panel);
    }
}

#endif
