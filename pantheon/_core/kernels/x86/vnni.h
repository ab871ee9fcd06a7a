/* Packed input, and the panels of 8-bit codes, for the levels that have vpdpbusd: it adds 4 products of uint8 codes and
 * int8 input to an int32 lane. Sums cannot overflow, so an offset of the codes is simply where the sum starts. The
 * input of one step of one token takes 4 bytes, as everything else of one token does: tokens lie side by side.
 *
 * 32-weight types, per block of T tokens: codes (8 steps, T, 4) int8 | d (T,) | s (T,) f32
 *                                         | -8, -16, -128 * bsum (3, T) int32.
 * K types, per sub-block of 32:           codes (8 steps, T, 4) int8 | -32 * sum of 16 codes (2, T) int32;
 *          per block of 256:              8 sub-blocks | sums of 32 codes (4, T, 2) int16 | d (T,) f32.
 *
 * Range of a sum, its start taken off: 32 * 128 * 127 < 2^19 (Q8_0); 256 * 128 * 32 * 127 < 2^27 with the scales
 * (Q6_K).
 */
#ifndef PN_X86_VNNI_H
#define PN_X86_VNNI_H

#include "codes4.h"
#include "panels.h"
#include "tiles.h"

#define TILE_STATIC static __attribute__((unused))

/* ---- 32-weight types --------------------------------------------------------------------------------------------- */

/* Byte offsets inside one block, each times n_tok. */
enum {
    Q32_PACK_D = 32, Q32_PACK_S = 36, Q32_PACK_START8 = 40, Q32_PACK_START16 = 44, Q32_PACK_START128 = 48,
    Q32_PACK_BLOCK = 52
};

TILE_INLINE int q32_pack_start(pn_type type)
{
    const int shift = q32_offset_shift(type);
    return shift == 3 ? Q32_PACK_START8 : shift == 4 ? Q32_PACK_START16 : Q32_PACK_START128;
}

TILE_STATIC size_t q32_pack_bytes(int n, int n_tok) { return (size_t)(n / 32) * Q32_PACK_BLOCK * (size_t)n_tok; }

TILE_STATIC void q32_pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    for (int b = 0; b < n_blocks; b++, packed += Q32_PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 32;
            const size_t at = (size_t)(t0 + t) * n_blocks + b;
            const int32_t start[3] = {-8 * x->bsum[at], -16 * x->bsum[at], -128 * x->bsum[at]};
            uint8_t *out = packed + t * 4;
            for (int g = 0; g < PANEL_STEPS; g++)
                memcpy(out + g * n_tok * 4, q + g * 4, 4);
            memcpy(out + Q32_PACK_D * n_tok, x->d + at, 4);
            memcpy(out + Q32_PACK_S * n_tok, x->s + at, 4);
            memcpy(out + Q32_PACK_START8 * n_tok, &start[0], 4);
            memcpy(out + Q32_PACK_START16 * n_tok, &start[1], 4);
            memcpy(out + Q32_PACK_START128 * n_tok, &start[2], 4);
        }
    }
}

/* ---- K types ----------------------------------------------------------------------------------------------------- */

/* Byte offsets inside one block, each times n_tok. */
enum {
    K_PACK_START = 32, K_PACK_SUB = 40, K_PACK_SUMS = PANEL_SUBS * K_PACK_SUB, K_PACK_D = K_PACK_SUMS + 16,
    K_PACK_BLOCK = K_PACK_D + 4
};

TILE_STATIC size_t k_pack_bytes(int n, int n_tok) { return (size_t)(n / 256) * K_PACK_BLOCK * (size_t)n_tok; }

TILE_STATIC void k_pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 256;
    for (int b = 0; b < n_blocks; b++, packed += K_PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 256;
            const int16_t *sum = x->sum + (size_t)(t0 + t) * (x->n / 16) + b * 16;
            uint8_t *out = packed + t * 4;
            for (int j = 0; j < PANEL_SUBS; j++, q += 32, out += K_PACK_SUB * n_tok) {
                const int32_t start[2] = {-32 * sum[2 * j], -32 * sum[2 * j + 1]};
                for (int g = 0; g < PANEL_STEPS; g++)
                    memcpy(out + g * n_tok * 4, q + g * 4, 4);
                memcpy(out + K_PACK_START * n_tok, &start[0], 4);
                memcpy(out + (K_PACK_START + 4) * n_tok, &start[1], 4);
            }
            for (int j = 0; j < PANEL_SUBS / 2; j++, out += 4 * n_tok) {
                int16_t pair[2] = {(int16_t)(sum[4 * j] + sum[4 * j + 1]), (int16_t)(sum[4 * j + 2] + sum[4 * j + 3])};
                memcpy(out, pair, 4);
            }
            memcpy(out, x->d + (size_t)(t0 + t) * n_blocks + b, 4);
        }
    }
}

/* ---- panels of Q8_0 and IQ4_NL: codes offset by 128, as vpdpbusd wants them unsigned ----------------------------- */

enum { Q8_0_PREFETCH_BLOCKS = 8 };

TILE_STATIC size_t panel_bytes_q8_0(int n) { return (size_t)(n / 32) * (size_t)q32_panel_block(PN_Q8_0); }

TILE_INLINE void unpack_offset_128(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_Q8_0 ? 34 : 18;
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 32; b++, panel += q32_panel_block(PN_Q8_0), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            float *d = (float *)(panel + Q32_D) + v * LANES;
            __m256i c[8];
            rows_prefetch(&rows, v * LANES, Q8_0_PREFETCH_BLOCKS * bytes, 1);
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

TILE_STATIC void unpack_q8_0(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    unpack_offset_128(PN_Q8_0, w, row_bytes, n_rows, n, panel);
}

TILE_STATIC void unpack_iq4_nl(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    unpack_offset_128(PN_IQ4_NL, w, row_bytes, n_rows, n, panel);
}

/* ---- the table entry --------------------------------------------------------------------------------------------- */

typedef void (*tile_fn)(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy);

/* Sets the tile of a type whose panels the level below unpacks. */
TILE_INLINE void q32_set(pn_type_ops *ops, int tile_tok, tile_fn tile)
{
    tiles_set(ops, tile_tok, ops->panel_bytes, ops->unpack, q32_pack_bytes, q32_pack_x, tile);
}

TILE_INLINE void k_set(pn_type_ops *ops, int tile_tok, tile_fn tile)
{
    tiles_set(ops, tile_tok, ops->panel_bytes, ops->unpack, k_pack_bytes, k_pack_x, tile);
}

/* The tiles of Q5_0, Q8_0 and Q6_K serve all types whose panels have their form. */
TILE_INLINE void q5_0_panels_set(pn_kernels *k, int tile_tok, tile_fn tile)
{
    q32_set(&k->type[PN_Q5_0], tile_tok, tile);
    for (size_t i = 0; i < sizeof PANELS_OF_Q5_0 / sizeof *PANELS_OF_Q5_0; i++)
        q32_set(&k->type[PANELS_OF_Q5_0[i]], tile_tok, tile);
}

TILE_INLINE void q8_0_panels_set(pn_kernels *k, int tile_tok, tile_fn tile)
{
    tiles_set(&k->type[PN_Q8_0], tile_tok, panel_bytes_q8_0, unpack_q8_0, q32_pack_bytes, q32_pack_x, tile);
    tiles_like(&k->type[PN_IQ4_NL], &k->type[PN_Q8_0], unpack_iq4_nl);
}

TILE_INLINE void q6_k_panels_set(pn_kernels *k, int tile_tok, tile_fn tile)
{
    k_set(&k->type[PN_Q6_K], tile_tok, tile);
    for (size_t i = 0; i < sizeof PANELS_OF_Q6_K / sizeof *PANELS_OF_Q6_K; i++)
        k_set(&k->type[PANELS_OF_Q6_K[i]], tile_tok, tile);
}

#endif
