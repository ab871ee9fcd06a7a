/* Matrix x matrix tiles of Q4_K, Q5_K and Q6_K: super-blocks of 256, exact in int32, one float step each.
 *
 * Panel, per block of 256:  8 groups, each codes (8 steps, 16 rows, 4) int8 | scales (2, 16) int32, of its halves
 *                           | minimums (8, 16) int32 | d (16,) f32 | dmin (16,) f32.
 * Packed input of T tokens: codes (T, n) int8 | d (T, n/256) f32 | sums of 32 codes (T, n/32) int16.
 */
#include "codes_k.h"
#include "tiles.h"

enum {
    GROUPS = 8, ROW_SET = PN_PANEL * 4,
    GROUP_SCALES = BLOCK_STEPS * STEP_BYTES, GROUP_BYTES = GROUP_SCALES + 2 * ROW_SET,
    PANEL_MINS = GROUPS * GROUP_BYTES, PANEL_D = PANEL_MINS + GROUPS * ROW_SET, PANEL_DMIN = PANEL_D + ROW_SET,
    PANEL_BLOCK = PANEL_DMIN + ROW_SET
};

static size_t panel_bytes(int n) { return (size_t)(n / 256) * PANEL_BLOCK; }
static size_t pack_bytes(int n, int n_tok) { return (size_t)n_tok * ((size_t)n + (size_t)(n / 256) * 20); }

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

NEON_INLINE codes32 group_codes(pn_type type, const uint8_t *block, int g)
{
    return type == PN_Q4_K ? q4_k_codes(block, g) : type == PN_Q5_K ? q5_k_codes(block, g) : q6_k_codes(block, g);
}

NEON_INLINE void unpack_row(pn_type type, const uint8_t *block, uint8_t *panel, int row)
{
    const uint8_t *at_d = block + (type == PN_Q6_K ? 208 : 0);
    for (int g = 0; g < GROUPS; g++) {
        const codes32 c = group_codes(type, block, g);
        int8_t q[32];
        vst1q_s8(q, c.lo);
        vst1q_s8(q + 16, c.hi);
        store_steps((int8_t *)panel + g * GROUP_BYTES, row, q);
    }
    for (int g = 0; g < GROUPS; g++) {
        int32_t *scale = (int32_t *)(panel + g * GROUP_BYTES + GROUP_SCALES);
        if (type == PN_Q6_K) {
            scale[row] = (int8_t)block[192 + 2 * g];
            scale[PN_PANEL + row] = (int8_t)block[193 + 2 * g];
        } else {
            const k4_scales s = k4_unpack_scales(block + 4);
            scale[row] = scale[PN_PANEL + row] = s.sc[g];
            ((int32_t *)(panel + PANEL_MINS))[g * PN_PANEL + row] = s.mn[g];
        }
    }
    ((float *)(panel + PANEL_D))[row] = pn_load_f16(at_d);
    if (type != PN_Q6_K)
        ((float *)(panel + PANEL_DMIN))[row] = pn_load_f16(at_d + 2);
}

NEON_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_Q4_K ? 144 : type == PN_Q5_K ? 176 : 210;
    for (int b = 0; b < n / 256; b++, w += bytes, panel += PANEL_BLOCK) {
        if (n_rows < PN_PANEL)
            memset(panel, 0, PANEL_BLOCK);
        for (int r = 0; r < n_rows; r++)
            unpack_row(type, w + (size_t)r * row_bytes, panel, r);
    }
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const size_t n = (size_t)x->n, t = (size_t)n_tok;
    float *d = (float *)(packed + t * n);
    int16_t *sum = (int16_t *)(d + t * (n / 256));
    memcpy(packed, x->q + (size_t)t0 * n, t * n);
    memcpy(d, x->d + (size_t)t0 * (n / 256), t * (n / 256) * 4);
    for (size_t i = 0; i < t * (n / 32); i++) {
        const int16_t *of16 = x->sum + (size_t)t0 * (n / 16) + 2 * i;
        sum[i] = (int16_t)(of16[0] + of16[1]);
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* isum += scale * sums of one group. */
NEON_INLINE void group(pn_type type, int n_tok, const uint8_t *w, const int8_t *const *x, int32x4_t (*isum)[QUADS])
{
    const int parts = type == PN_Q6_K ? 2 : 1, run = BLOCK_STEPS / parts;
    for (int part = 0; part < parts; part++) {
        const int32_t *scale = (const int32_t *)(w + GROUP_SCALES) + part * PN_PANEL;
        int32x4_t sum[TOK][QUADS];
        run_sums((const int8_t *)w, x, n_tok, part * run, run, sum);
        for (int j = 0; j < QUADS; j++) {
            const int32x4_t sc = vld1q_s32(scale + 4 * j);
            for (int t = 0; t < n_tok; t++)
                isum[t][j] = vmlaq_s32(isum[t][j], sum[t][j], sc);
        }
    }
}

NEON_INLINE void tile(pn_type type, const int n_tok, const uint8_t *panel, const uint8_t *packed, int n, float *y,
                      size_t ldy)
{
    const size_t n_blocks = (size_t)(n / 256);
    const float *d_x = (const float *)(packed + (size_t)n_tok * (size_t)n);
    const int16_t *sum_x = (const int16_t *)(d_x + (size_t)n_tok * n_blocks);
    float32x4_t acc[TOK][QUADS];
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            acc[t][j] = vdupq_n_f32(0);
    for (size_t b = 0; b < n_blocks; b++, panel += PANEL_BLOCK) {
        const float *d = (const float *)(panel + PANEL_D), *dmin = (const float *)(panel + PANEL_DMIN);
        int32x4_t isum[TOK][QUADS];
        for (int t = 0; t < n_tok; t++)
            for (int j = 0; j < QUADS; j++)
                isum[t][j] = vdupq_n_s32(0);
        for (int g = 0; g < GROUPS; g++) {
            const int8_t *x[TOK];
            for (int t = 0; t < n_tok; t++)
                x[t] = (const int8_t *)packed + (size_t)t * (size_t)n + 256 * b + 32 * (size_t)g;
            group(type, n_tok, panel + g * GROUP_BYTES, x, isum);
        }
        for (int t = 0; t < n_tok; t++) {
            const float dx = d_x[(size_t)t * n_blocks + b];
            for (int j = 0; j < QUADS; j++) {
                acc[t][j] = vfmaq_f32(acc[t][j], vmulq_n_f32(vld1q_f32(d + 4 * j), dx), vcvtq_f32_s32(isum[t][j]));
                if (type == PN_Q6_K)
                    continue;
                int32x4_t msum = vdupq_n_s32(0);
                for (int g = 0; g < GROUPS; g++)
                    msum = vmlaq_n_s32(msum, vld1q_s32((const int32_t *)(panel + PANEL_MINS) + g * PN_PANEL + 4 * j),
                                       sum_x[((size_t)t * n_blocks + b) * GROUPS + (size_t)g]);
                acc[t][j] = vfmsq_f32(acc[t][j], vmulq_n_f32(vld1q_f32(dmin + 4 * j), dx), vcvtq_f32_s32(msum));
            }
        }
    }
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            vst1q_f32(y + (size_t)t * ldy + 4 * j, acc[t][j]);
}

#define K_TILE(type) \
    static void unpack_##type(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    } \
    TILE_BODIES(tile_##type, TILE_CALL_##type)

#define TILE_CALL_PN_Q4_K(T) tile(PN_Q4_K, T, panel, packed, n, y, ldy)
#define TILE_CALL_PN_Q5_K(T) tile(PN_Q5_K, T, panel, packed, n, y, ldy)
#define TILE_CALL_PN_Q6_K(T) tile(PN_Q6_K, T, panel, packed, n, y, ldy)

K_TILE(PN_Q4_K)
K_TILE(PN_Q5_K)
K_TILE(PN_Q6_K)

#define SET(id) tiles_set(&k->type[id], TOK, panel_bytes, unpack_##id, pack_bytes, pack_x, tile_##id)

void PN_NEON(tiles_k)(pn_kernels *k)
{
    SET(PN_Q4_K);
    SET(PN_Q5_K);
    SET(PN_Q6_K);
}
