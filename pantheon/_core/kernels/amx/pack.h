/* Packed input: units of 16 tokens, each a whole (16, K) operand of the tile registers after the other, with what the
 * float steps need beside it. Rows of tokens that are not there are zeros.
 *
 * 32-weight types, per block:  codes (16, 32) int8 | d (16,) f32 | s (16,) f32.
 * super-blocks of 256:         codes (4, 16, 64) int8 | sums (4, 16, 2) int16, of 32 codes each, or (8, 16, 2), of 16 |
 *                              d (16,) f32.
 */
#ifndef PN_AMX_PACK_H
#define PN_AMX_PACK_H

#include "amx.h"
#include "kernels.h"
#include "x86/transpose512.h"

enum { UNIT = AMX_ROWS };                /* tokens */

enum { Q32_CODES = UNIT * 32, Q32_UNIT_D = Q32_CODES, Q32_UNIT_S = Q32_UNIT_D + 64, Q32_UNIT = Q32_UNIT_S + 64 };

enum { SUPER_CODES = UNIT * 256, SUPER_SUMS = SUPER_CODES };
AMX_INLINE size_t super_unit_d(int n_sums) { return SUPER_SUMS + (size_t)n_sums * 64; }
AMX_INLINE size_t super_unit(int n_sums) { return super_unit_d(n_sums) + 64; }

AMX_INLINE int units_of(int n_tok) { return (n_tok + UNIT - 1) / UNIT; }

/* Asks for the lines of a tile's results, which are far apart, before they are needed. */
AMX_INLINE void prefetch_rows(const float *y, size_t ldy, int n_tok, int n_panels)
{
    for (int t = 0; t < n_tok; t++)
        for (int i = 0; i < n_panels; i++)
            __builtin_prefetch(y + (size_t)t * ldy + i * PN_PANEL, 1);
}

/* out[t]: row t of an array with rows of row_bytes; tokens that are not there stand on the last one. */
AMX_INLINE void unit_rows(const void *p, size_t row_bytes, int t0, int n_tok, const uint8_t **out)
{
    for (int t = 0; t < UNIT; t++)
        out[t] = (const uint8_t *)p + (size_t)(t0 + (t < n_tok ? t : n_tok - 1)) * row_bytes;
}

AMX_INLINE __mmask16 tokens_mask(int n_tok) { return (__mmask16)((1u << n_tok) - 1); }

/* One 4-byte number of every token's row, at a byte offset */
AMX_INLINE __m512i unit_column(const uint8_t *const *rows, size_t offset, int n_tok)
{
    int32_t v[UNIT] __attribute__((aligned(64)));
    for (int t = 0; t < UNIT; t++)
        memcpy(v + t, rows[t] + offset, 4);
    return _mm512_maskz_mov_epi32(tokens_mask(n_tok), _mm512_load_si512(v));
}

/* 64 bytes, or 32, of every token at an offset */
AMX_INLINE void unit_codes(const uint8_t *const *rows, size_t offset, int bytes, int n_tok, uint8_t *out)
{
    for (int t = 0; t < UNIT; t++, out += bytes)
        if (t >= n_tok)
            memset(out, 0, (size_t)bytes);
        else if (bytes == 64)
            _mm512_store_si512(out, _mm512_loadu_si512(rows[t] + offset));
        else
            _mm256_store_si256((__m256i *)out, _mm256_loadu_si256((const __m256i *)(rows[t] + offset)));
}

/* name and name_part: tile and tile_part of kernels.h, by kernel(n_panels, ..., w, x, n_all, k0, n, n_tok, y, ldy). */
#define AMX_TILE(name, kernel, ...) \
    static void name(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy) \
    { \
        kernel(1, __VA_ARGS__, panel, packed, n, 0, n, n_tok, y, ldy); \
    } \
    static void name##_part(const uint8_t *panels, int n_panels, const uint8_t *packed, int n_all, int k0, int n, \
                            int n_tok, float *y, size_t ldy) \
    { \
        kernel(n_panels, __VA_ARGS__, panels, packed, n_all, k0, n, n_tok, y, ldy); \
    }

#endif
