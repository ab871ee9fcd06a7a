/* Matrix x matrix tiles of Q4_K, Q5_K, Q6_K and the types in its panels: super-blocks of 256 weights, exact in int32,
 * one float step each.
 *
 * Panels: see panels.h; unpacked by avx2. Packed input: see vnni.h.
 */
#include "tiles.h"
#include "x86/tiles_k.h"

enum { TOK = 6 };

/* isum[2t], isum[2t + 1] += scale * sum of the codes' products, for one sub-block. isum lives in memory: a register for
 * each of its vectors would leave none for the sums. */
TILE_INLINE void sub_block(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m256i *isum)
{
    const int steps = PANEL_STEPS / k_n_scales(type);
    __m256i s[TOK * ROW_VECS];
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++) {
        const __m256i w0 = load_i(w + g * PANEL_SET), w1 = load_i(w + g * PANEL_SET + 32);
        const int part = g / steps, first = g % steps == 0, last = g % steps == steps - 1;
        #pragma GCC unroll 6
        for (int t = 0; t < n_tok; t++) {
            if (first)
                s[2 * t] = s[2 * t + 1] = k_is_offset(type)
                                              ? broadcast_4(x + (K_PACK_START + part * 4) * n_tok + t * 4)
                                              : _mm256_setzero_si256();
            step_dp(&s[2 * t], &s[2 * t + 1], w0, w1, broadcast_4(x + (g * n_tok + t) * 4));
        }
        if (last) { /* each scale is stored twice in its 4 bytes */
            const uint8_t *scales = w + K_SCALES + part * PANEL_SET;
            const __m256i scale[ROW_VECS] = {_mm256_srai_epi32(load_i(scales), 16),
                                             _mm256_srai_epi32(load_i(scales + 32), 16)};
            #pragma GCC unroll 12
            for (int i = 0; i < n_tok * ROW_VECS; i++) {
                __m256i v = _mm256_add_epi32(_mm256_mullo_epi32(s[i], scale[i & 1]), load_i(isum + i));
                KEEP(v);
                store_i(isum + i, v);
            }
            BLOCK_END();
        }
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    __m256i isum[TOK * ROW_VECS];
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += k_panel_block(type), x += K_PACK_BLOCK * n_tok) {
        #pragma GCC unroll 12
        for (int i = 0; i < n_tok * ROW_VECS; i++)
            store_i(isum + i, _mm256_setzero_si256());
        for (int j = 0; j < PANEL_SUBS; j++)
            sub_block(type, n_tok, w + j * k_panel_sub(type), x + j * K_PACK_SUB * n_tok, isum);
        k_block_epilogue(type, n_tok, w, x + K_PACK_SUMS * n_tok, (const float *)(x + K_PACK_D * n_tok), isum,
                         acc);
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_6(tile_q4_k, PN_Q4_K, tile)
TILE_UP_TO_6(tile_q5_k, PN_Q5_K, tile)
TILE_UP_TO_6(tile_q6_k, PN_Q6_K, tile)

void pn_avxvnni_tiles_k(pn_kernels *k)
{
    k_set(&k->type[PN_Q4_K], TOK, tile_q4_k);
    k_set(&k->type[PN_Q5_K], TOK, tile_q5_k);
    q6_k_panels_set(k, TOK, tile_q6_k);
}
