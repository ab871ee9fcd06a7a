/* Matrix x matrix tiles of the types with 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and those in the panels of
 * Q5_0 and Q8_0.
 *
 * Panels: see panels.h; those of Q4_0 to Q5_1 are unpacked by avx2. Packed input: see vnni.h.
 */
#include "tiles.h"
#include "x86/tiles_q32.h"

enum { TOK = 6 };

/* s[2t], s[2t + 1]: int32 sums of the block of token t with rows 0..7 and 8..15. */
TILE_INLINE void block_sums(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m256i *s)
{
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++) {
        const __m256i w0 = load_i(w + g * PANEL_SET), w1 = load_i(w + g * PANEL_SET + 32);
        #pragma GCC unroll 6
        for (int t = 0; t < n_tok; t++) {
            if (g == 0)
                s[2 * t] = s[2 * t + 1] = q32_offset_shift(type)
                                              ? broadcast_4(x + q32_pack_start(type) * n_tok + t * 4)
                                              : _mm256_setzero_si256();
            step_dp(&s[2 * t], &s[2 * t + 1], w0, w1, broadcast_4(x + (g * n_tok + t) * 4));
        }
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 32; b++, w += q32_panel_block(type), x += Q32_PACK_BLOCK * n_tok) {
        __m256i s[TOK * ROW_VECS];
        block_sums(type, n_tok, w, x, s);
        q32_block_epilogue(type, n_tok, (const float *)(w + Q32_D), (const float *)(w + Q32_M),
                           (const float *)(x + Q32_PACK_D * n_tok), (const float *)(x + Q32_PACK_S * n_tok), s, acc);
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_6(tile_q4_0, PN_Q4_0, tile)
TILE_UP_TO_6(tile_q4_1, PN_Q4_1, tile)
TILE_UP_TO_6(tile_q5_0, PN_Q5_0, tile)
TILE_UP_TO_6(tile_q5_1, PN_Q5_1, tile)
TILE_UP_TO_6(tile_q8_0, PN_Q8_0, tile)

void pn_avxvnni_tiles_q32(pn_kernels *k)
{
    q32_set(&k->type[PN_Q4_0], TOK, tile_q4_0);
    q32_set(&k->type[PN_Q4_1], TOK, tile_q4_1);
    q5_0_panels_set(k, TOK, tile_q5_0);
    q32_set(&k->type[PN_Q5_1], TOK, tile_q5_1);
    q8_0_panels_set(k, TOK, tile_q8_0);
}
