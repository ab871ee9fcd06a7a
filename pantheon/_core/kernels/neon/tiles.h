/* What the matrix x matrix tiles of integer types share.
 *
 * A panel holds the signed codes of 16 rows, 4 consecutive k of every row side by side: a step of 64 bytes. A step of
 * one token takes 4 bytes of its codes from a register by lane, so packed input is the codes as they are. Lanes are
 * rows, nothing is reduced across them.
 *
 * Without sdot, products are summed in 16 bits: one a lane and step, so a run of steps must keep to
 * steps * max|w| * 127 < 2^15. The callers' runs do: 2 for Q8_0 (128), 4 for Q6_K (32), 8 for codes below 32.
 */
#ifndef PN_NEON_TILES_H
#define PN_NEON_TILES_H

#include "neon.h"

enum { STEP_BYTES = PN_PANEL * 4, BLOCK_STEPS = 8, QUADS = PN_PANEL / 4 };

#ifdef __ARM_FEATURE_DOTPROD

enum { TOK = 4 };

/* sum[t][j] = sums of rows 4j .. 4j + 3 over steps first .. first + n - 1 of 32 codes; w: step 0, x[t]: the 32 codes. */
NEON_INLINE void run_sums(const int8_t *w, const int8_t *const *x, int n_tok, int first, int n,
                          int32x4_t (*sum)[QUADS])
{
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            sum[t][j] = vdupq_n_s32(0);
#define STEP(lane) \
    if (g + lane < first + n) \
        for (int j = 0; j < QUADS; j++) { \
            const int8x16_t v = vld1q_s8(w + (g + lane) * STEP_BYTES + 16 * j); \
            for (int t = 0; t < n_tok; t++) \
                sum[t][j] = vdotq_laneq_s32(sum[t][j], v, codes[t], lane); \
        }
    for (int g = first; g < first + n; g += 4) {
        int8x16_t codes[TOK];
        for (int t = 0; t < n_tok; t++)
            codes[t] = vld1q_s8(x[t] + 4 * g);
        STEP(0) STEP(1) STEP(2) STEP(3)
    }
#undef STEP
}

#else

enum { TOK = 2 };

NEON_INLINE void run_sums(const int8_t *w, const int8_t *const *x, int n_tok, int first, int n,
                          int32x4_t (*sum)[QUADS])
{
    int16x8_t s[TOK][2 * QUADS];
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < 2 * QUADS; j++)
            s[t][j] = vdupq_n_s16(0);
    for (int g = first; g < first + n; g++) {
        int8x8_t codes[TOK]; /* 4 codes of a token, twice */
        for (int t = 0; t < n_tok; t++)
            codes[t] = vreinterpret_s8_u32(vdup_n_u32(pn_load32((const uint8_t *)x[t] + 4 * g)));
        for (int j = 0; j < QUADS; j++) {
            const int8x16_t v = vld1q_s8(w + g * STEP_BYTES + 16 * j);
            for (int t = 0; t < n_tok; t++) {
                s[t][2 * j] = vmlal_s8(s[t][2 * j], vget_low_s8(v), codes[t]);
                s[t][2 * j + 1] = vmlal_s8(s[t][2 * j + 1], vget_high_s8(v), codes[t]);
            }
        }
    }
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            sum[t][j] = vpaddq_s32(vpaddlq_s16(s[t][2 * j]), vpaddlq_s16(s[t][2 * j + 1]));
}

#endif

/* 32 codes of a row as its 4 bytes of each step; panel: step 0. */
NEON_INLINE void store_steps(int8_t *panel, int row, const int8_t *codes)
{
    for (int g = 0; g < BLOCK_STEPS; g++)
        memcpy(panel + g * STEP_BYTES + 4 * row, codes + 4 * g, 4);
}

/* ---- the table entry --------------------------------------------------------------------------------------------- */

typedef void (*tile_fn)(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy);

NEON_INLINE void tiles_set(pn_type_ops *ops, int tile_tok, size_t (*panel_bytes)(int),
                           void (*unpack)(const uint8_t *, size_t, int, int, uint8_t *), size_t (*pack_bytes)(int, int),
                           void (*pack_x)(const pn_act *, int, int, uint8_t *), tile_fn tile)
{
    ops->panel_bytes = panel_bytes;
    ops->unpack = unpack;
    ops->pack_bytes = pack_bytes;
    ops->pack_x = pack_x;
    ops->tile = tile;
    ops->tile_tok = ops->pack_tok = tile_tok;
}

/* One compiled body per token count. */
#define TILE_ARGS const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy

#ifdef __ARM_FEATURE_DOTPROD
#define TILE_BODIES(name, call) \
    static void name(TILE_ARGS) \
    { \
        if (n_tok == 4) \
            call(4); \
        else if (n_tok == 3) \
            call(3); \
        else if (n_tok == 2) \
            call(2); \
        else \
            call(1); \
    }
#else
#define TILE_BODIES(name, call) \
    static void name(TILE_ARGS) \
    { \
        if (n_tok == 2) \
            call(2); \
        else \
            call(1); \
    }
#endif

#endif
