/* Matrix x matrix tiles of the types with 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and those in
 * the panels of Q5_0 (panels.h) and Q8_0 (IQ4_NL).
 *
 * Panels: see panels.h; those of Q4_0 to Q5_1 are unpacked by avx2. Q8_0 has the same form here: vpdpbusd wants
 * unsigned codes, so they are offset by 128 like those of the other types by 8 or 16.
 * Packed input, per block of T tokens:  codes (8 steps, T, 4) int8 | d (T,) | s (T,) f32 | -8, -16, -128 * bsum (3, T)
 * int32. All types share it.
 *
 * Range: at most 32 * 255 * 127 + 128 * 32 * 127 < 2^21.
 */
#include "../avx2/codes4.h"
#include "tiles.h"

enum { TOK = 12, PREFETCH_BLOCKS = 8 };
/* Byte offsets inside one block of a packed tile, each times n_tok. */
enum { PACK_D = 32, PACK_S = 36, PACK_START8 = 40, PACK_START16 = 44, PACK_START128 = 48, PACK_BLOCK = 52 };

TILE_INLINE int pack_start(pn_type type)
{
    return q32_offset_shift(type) == 3 ? PACK_START8 : q32_offset_shift(type) == 4 ? PACK_START16 : PACK_START128;
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 32) * PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    for (int t = 0; t < n_tok; t++) {
        const int8_t *q = x->q + (size_t)(t0 + t) * x->n;
        const float *d = x->d + (size_t)(t0 + t) * n_blocks;
        const float *s = x->s + (size_t)(t0 + t) * n_blocks;
        const int32_t *bsum = x->bsum + (size_t)(t0 + t) * n_blocks;
        uint8_t *out = packed + t * 4;
        for (int b = 0; b < n_blocks; b++, q += 32, out += PACK_BLOCK * n_tok) {
            const int32_t start[3] = {-8 * bsum[b], -16 * bsum[b], -128 * bsum[b]};
            for (int g = 0; g < PANEL_STEPS; g++)
                memcpy(out + g * n_tok * 4, q + g * 4, 4);
            memcpy(out + PACK_D * n_tok, d + b, 4);
            memcpy(out + PACK_S * n_tok, s + b, 4);
            memcpy(out + PACK_START8 * n_tok, &start[0], 4);
            memcpy(out + PACK_START16 * n_tok, &start[1], 4);
            memcpy(out + PACK_START128 * n_tok, &start[2], 4);
        }
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    __m512 acc[TOK];
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++)
        acc[t] = _mm512_setzero_ps();
    for (int b = 0; b < n / 32; b++, w += q32_panel_block(type), x += PACK_BLOCK * n_tok) {
        __m512i s[TOK];
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++)
            s[t] = q32_offset_shift(type) ? broadcast_512(x + pack_start(type) * n_tok + t * 4)
                                          : _mm512_setzero_si512();
        #pragma GCC unroll 8
        for (int g = 0; g < PANEL_STEPS; g++) {
            const __m512i codes = load_512(w + g * PANEL_SET);
            #pragma GCC unroll 12
            for (int t = 0; t < n_tok; t++)
                step_512(&s[t], codes, x + (g * n_tok + t) * 4);
        }
        /* acc = fma(d_w * d_x, isum, acc), then acc = fma(s_x, m, acc) */
        const __m512 d = load_ps(w + Q32_D), m = q32_has_min(type) ? load_ps(w + Q32_M) : d;
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++) {
            const __m512 scale = _mm512_mul_ps(d, broadcast_ps(x + PACK_D * n_tok + t * 4));
            acc[t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(s[t]), acc[t]);
            if (q32_has_min(type))
                acc[t] = _mm512_fmadd_ps(m, broadcast_ps(x + PACK_S * n_tok + t * 4), acc[t]);
            KEEP_512(acc[t]);
        }
    }
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++)
        _mm512_storeu_ps(y + (size_t)t * ldy, acc[t]);
}

TILE_UP_TO_12(tile_q4_0, PN_Q4_0, tile)
TILE_UP_TO_12(tile_q4_1, PN_Q4_1, tile)
TILE_UP_TO_12(tile_q5_0, PN_Q5_0, tile)
TILE_UP_TO_12(tile_q5_1, PN_Q5_1, tile)
TILE_UP_TO_12(tile_q8_0, PN_Q8_0, tile)

/* ---- panels of signed bytes: Q8_0 and IQ4_NL --------------------------------------------------------------------- */

static size_t panel_bytes_q8_0(int n) { return (size_t)(n / 32) * (size_t)q32_panel_block(PN_Q8_0); }

TILE_INLINE void unpack_bytes(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_Q8_0 ? 34 : 18;
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 32; b++, panel += q32_panel_block(PN_Q8_0), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            float *d = (float *)(panel + Q32_D) + v * LANES;
            __m256i c[8];
            rows_prefetch(&rows, v * LANES, PREFETCH_BLOCKS * bytes, 1);
            #pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) {
                const uint8_t *block = rows.at[v * LANES + i];
                __m256i codes = type == PN_Q8_0 ? loadu_i(block + 2) : lookup_32(unequal_values(), block + 2);
                d[i] = load_f16(block);
                c[i] = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            }
            transpose_8x8(c);
            store_steps(panel, v, c, PANEL_STEPS);
        }
    }
}

static void unpack_q8_0(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    unpack_bytes(PN_Q8_0, w, row_bytes, n_rows, n, panel);
}

static void unpack_iq4_nl(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    unpack_bytes(PN_IQ4_NL, w, row_bytes, n_rows, n, panel);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

TILE_INLINE void set_tile(pn_type_ops *ops,
                          void (*tile_fn)(const uint8_t *, const uint8_t *, int, int, float *, size_t))
{
    tiles_set(ops, TOK, ops->panel_bytes, ops->unpack, pack_bytes, pack_x, tile_fn);
}

void pn_avx512_tiles_q32(pn_kernels *k)
{
    set_tile(&k->type[PN_Q4_0], tile_q4_0);
    set_tile(&k->type[PN_Q4_1], tile_q4_1);
    set_tile(&k->type[PN_Q5_0], tile_q5_0);
    set_tile(&k->type[PN_Q5_1], tile_q5_1);
    for (size_t i = 0; i < sizeof PANELS_OF_Q5_0 / sizeof *PANELS_OF_Q5_0; i++)
        set_tile(&k->type[PANELS_OF_Q5_0[i]], tile_q5_0);
    tiles_set(&k->type[PN_Q8_0], TOK, panel_bytes_q8_0, unpack_q8_0, pack_bytes, pack_x, tile_q8_0);
    tiles_like(&k->type[PN_IQ4_NL], &k->type[PN_Q8_0], unpack_iq4_nl);
}
