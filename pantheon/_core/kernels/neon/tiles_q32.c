/* Matrix x matrix tiles of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.
 *
 * Panel, per block:  codes (8 steps, 16 rows, 4) int8 | d (16,) f32 | m (16,) f32, Q5_1's raised by 16 * d.
 * Packed input of T tokens:  codes (T, n) int8 | d (T, n/32) f32 | s (T, n/32) f32.
 */
#include "codes32.h"
#include "tiles.h"

enum { PANEL_D = BLOCK_STEPS * STEP_BYTES, PANEL_M = PANEL_D + PN_PANEL * 4, PANEL_BLOCK = PANEL_M + PN_PANEL * 4 };

static size_t panel_bytes(int n) { return (size_t)(n / 32) * PANEL_BLOCK; }
static size_t pack_bytes(int n, int n_tok) { return (size_t)n_tok * ((size_t)n + (size_t)(n / 32) * 8); }

NEON_INLINE void unpack(codes_fn codes, int bytes, int min, const uint8_t *w, size_t row_bytes, int n_rows, int n,
                        uint8_t *panel)
{
    for (int b = 0; b < n / 32; b++, w += bytes, panel += PANEL_BLOCK) {
        float *d = (float *)(panel + PANEL_D), *m = (float *)(panel + PANEL_M);
        if (n_rows < PN_PANEL)
            memset(panel, 0, PANEL_BLOCK);
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + (size_t)r * row_bytes;
            const codes32 c = codes(block);
            int8_t q[32];
            vst1q_s8(q, c.lo);
            vst1q_s8(q + 16, c.hi);
            store_steps((int8_t *)panel, r, q);
            d[r] = pn_load_f16(block);
            if (min)
                m[r] = min > 1 ? fmaf((float)min, d[r], pn_load_f16(block + 2)) : pn_load_f16(block + 2);
        }
    }
}

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const size_t n = (size_t)x->n, n_blocks = n / 32, t = (size_t)n_tok;
    float *d = (float *)(packed + t * n);
    memcpy(packed, x->q + (size_t)t0 * n, t * n);
    memcpy(d, x->d + (size_t)t0 * n_blocks, t * n_blocks * 4);
    memcpy(d + t * n_blocks, x->s + (size_t)t0 * n_blocks, t * n_blocks * 4);
}

NEON_INLINE void tile(int run, int min, const int n_tok, const uint8_t *panel, const uint8_t *packed, int n, float *y,
                      size_t ldy)
{
    const size_t n_blocks = (size_t)(n / 32);
    const float *d_x = (const float *)(packed + (size_t)n_tok * (size_t)n), *s_x = d_x + (size_t)n_tok * n_blocks;
    float32x4_t acc[TOK][QUADS];
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            acc[t][j] = vdupq_n_f32(0);
    for (size_t b = 0; b < n_blocks; b++, panel += PANEL_BLOCK) {
        const float *d = (const float *)(panel + PANEL_D), *m = (const float *)(panel + PANEL_M);
        const int8_t *x[TOK];
        int32x4_t isum[TOK][QUADS];
        for (int t = 0; t < n_tok; t++)
            x[t] = (const int8_t *)packed + (size_t)t * (size_t)n + 32 * b;
        run_sums((const int8_t *)panel, x, n_tok, 0, run, isum);
        for (int first = run; first < BLOCK_STEPS; first += run) {
            int32x4_t more[TOK][QUADS];
            run_sums((const int8_t *)panel, x, n_tok, first, run, more);
            for (int t = 0; t < n_tok; t++)
                for (int j = 0; j < QUADS; j++)
                    isum[t][j] = vaddq_s32(isum[t][j], more[t][j]);
        }
        for (int t = 0; t < n_tok; t++)
            for (int j = 0; j < QUADS; j++) {
                const float32x4_t scale = vmulq_n_f32(vld1q_f32(d + 4 * j), d_x[(size_t)t * n_blocks + b]);
                acc[t][j] = vfmaq_f32(acc[t][j], scale, vcvtq_f32_s32(isum[t][j]));
                if (min)
                    acc[t][j] = vfmaq_f32(acc[t][j], vdupq_n_f32(s_x[(size_t)t * n_blocks + b]), vld1q_f32(m + 4 * j));
            }
    }
    for (int t = 0; t < n_tok; t++)
        for (int j = 0; j < QUADS; j++)
            vst1q_f32(y + (size_t)t * ldy + 4 * j, acc[t][j]);
}

#ifdef __ARM_FEATURE_DOTPROD
enum { RUN_Q8_0 = BLOCK_STEPS }; /* sums of sdot have 32 bits */
#else
enum { RUN_Q8_0 = 2 };
#endif

#define Q32_TILE(type, bytes, min) \
    static void unpack_##type(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type##_codes, bytes, min, w, row_bytes, n_rows, n, panel); \
    } \
    TILE_BODIES(tile_##type, TILE_CALL_##type)

#define TILE_CALL_q4_0(T) tile(BLOCK_STEPS, 0, T, panel, packed, n, y, ldy)
#define TILE_CALL_q4_1(T) tile(BLOCK_STEPS, 1, T, panel, packed, n, y, ldy)
#define TILE_CALL_q5_0(T) tile(BLOCK_STEPS, 0, T, panel, packed, n, y, ldy)
#define TILE_CALL_q5_1(T) tile(BLOCK_STEPS, 1, T, panel, packed, n, y, ldy)
#define TILE_CALL_q8_0(T) tile(RUN_Q8_0, 0, T, panel, packed, n, y, ldy)

Q32_TILE(q4_0, 18, 0)
Q32_TILE(q4_1, 20, 1)
Q32_TILE(q5_0, 22, 0)
Q32_TILE(q5_1, 24, 16)
Q32_TILE(q8_0, 34, 0)

#define SET(id, name) tiles_set(&k->type[id], TOK, panel_bytes, unpack_##name, pack_bytes, pack_x, tile_##name)

void PN_NEON(tiles_q32)(pn_kernels *k)
{
    SET(PN_Q4_0, q4_0);
    SET(PN_Q4_1, q4_1);
    SET(PN_Q5_0, q5_0);
    SET(PN_Q5_1, q5_1);
    SET(PN_Q8_0, q8_0);
}
