/* Matrix x matrix tiles of Q8_0.
 *
 * vpmaddubsw cannot take these codes (255 * 127 * 2 saturates int16), so both sides are widened to int16 and a step
 * covers 2 k.
 *
 * Panel, per block of 32:  codes (16 steps, 16 rows, 2) int16 | d (16,) f32.
 * Packed input, per block of T tokens:  codes (16 steps, T, 2) int16 | d (T,) f32.
 *
 * Range: a 32-bit lane sums 32 products, at most 32 * 128 * 127 < 2^19.
 */
#include "tiles_q32.h"

enum { TOK = 4, STEPS = 16, BLOCK_BYTES = 34, PREFETCH_BLOCKS = 8 };
enum { PANEL_D = STEPS * PN_PANEL * 4, PANEL_BLOCK = PANEL_D + PN_PANEL * 4 };
enum { PACK_D = 64, PACK_BLOCK = 68 }; /* each times n_tok */

static size_t panel_bytes(int n) { return (size_t)(n / 32) * PANEL_BLOCK; }
static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 32) * PACK_BLOCK * (size_t)n_tok; }

static void unpack(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, BLOCK_BYTES);
    for (int b = 0; b < n / 32; b++, panel += PANEL_BLOCK, rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            const uint8_t *const *block = rows.at + v * LANES;
            float *d = (float *)(panel + PANEL_D) + v * LANES;
            __m256i lo[8], hi[8];
            rows_prefetch(&rows, v * LANES, PREFETCH_BLOCKS * BLOCK_BYTES, 1);
            #pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) {
                d[i] = load_f16(block[i]);
                lo[i] = _mm256_cvtepi8_epi16(loadu_i128(block[i] + 2));
                hi[i] = _mm256_cvtepi8_epi16(loadu_i128(block[i] + 18));
            }
            transpose_8x8(lo);
            transpose_8x8(hi);
            store_steps(panel, v, lo, STEPS / 2);
            store_steps(panel + PANEL_D / 2, v, hi, STEPS / 2);
        }
    }
}

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    for (int b = 0; b < n_blocks; b++, packed += PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 32;
            uint8_t *out = packed + t * 4;
            int32_t pair[STEPS];
            _mm256_storeu_si256((__m256i *)pair, _mm256_cvtepi8_epi16(loadu_i128(q)));
            _mm256_storeu_si256((__m256i *)(pair + 8), _mm256_cvtepi8_epi16(loadu_i128(q + 16)));
            for (int g = 0; g < STEPS; g++)
                memcpy(out + g * n_tok * 4, pair + g, 4);
            memcpy(out + PACK_D * n_tok, x->d + (size_t)(t0 + t) * n_blocks + b, 4);
        }
    }
}

/* s[2t], s[2t + 1]: int32 sums of the block of token t with rows 0..7 and 8..15. */
TILE_INLINE void block_sums(int n_tok, const uint8_t *w, const uint8_t *x, __m256i *s)
{
    #pragma GCC unroll 16
    for (int g = 0; g < STEPS; g++) {
        const __m256i w0 = load_i(w + g * 64), w1 = load_i(w + g * 64 + 32);
        #pragma GCC unroll 4
        for (int t = 0; t < n_tok; t++) {
            __m256i xb = broadcast_4(x + (g * n_tok + t) * 4);
            if (g == 0)
                first_step_i16(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
            else
                step_i16(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
        }
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 32; b++, w += PANEL_BLOCK, x += PACK_BLOCK * n_tok) {
        __m256i s[TOK * ROW_VECS];
        block_sums(n_tok, w, x, s);
        q32_block_epilogue(type, n_tok, (const float *)(w + PANEL_D), NULL, (const float *)(x + PACK_D * n_tok), NULL,
                           s, acc);
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_4(tile_q8_0, PN_Q8_0, tile)

void pn_avx2_tiles_q8(pn_kernels *k)
{
    tiles_set(&k->type[PN_Q8_0], TOK, panel_bytes, unpack, pack_bytes, pack_x, tile_q8_0);
}
