/* The end of a K block, the same for every level with 256-bit tiles: float steps from exact integers. */
#ifndef PN_X86_TILES_K_H
#define PN_X86_TILES_K_H

#include "panels.h"
#include "tiles.h"

/* msum of token t and one vector of rows: min * sum of the codes, over the 8 sub-blocks. */
TILE_INLINE __m256i k_min_sum(int n_tok, const uint8_t *mins, const uint8_t *sums, int t, int v)
{
    __m256i m = _mm256_madd_epi16(broadcast_4(sums + t * 4), load_i(mins + v * 32));
    #pragma GCC unroll 3
    for (int j = 1; j < PANEL_SUBS / 2; j++)
        m = _mm256_add_epi32(m, _mm256_madd_epi16(broadcast_4(sums + (j * n_tok + t) * 4),
                                                  load_i(mins + j * PANEL_SET + v * 32)));
    return m;
}

/* w: the panel's block. sums: (4, n_tok, 2) int16, sums of 32 codes. dx: (n_tok,). isum: (n_tok, 16) int32.
 * acc = fma(d * d_x, isum, acc), then acc = fma(-(dmin * d_x), msum, acc). */
TILE_INLINE void k_block_epilogue(pn_type type, int n_tok, const uint8_t *w, const uint8_t *sums, const float *dx,
                                  const __m256i *isum, float *acc)
{
    const float *d = (const float *)(w + k_panel_d(type)), *dmin = d + PN_PANEL;
    #pragma GCC unroll 6
    for (int t = 0; t < n_tok; t++) {
        #pragma GCC unroll 2
        for (int v = 0; v < ROW_VECS; v++) {
            const __m256 dt = _mm256_broadcast_ss(dx + t);
            float *a = acc + (t * ROW_VECS + v) * LANES;
            __m256 sum = _mm256_fmadd_ps(_mm256_mul_ps(dt, _mm256_load_ps(d + v * LANES)),
                                         _mm256_cvtepi32_ps(load_i(isum + t * ROW_VECS + v)), _mm256_load_ps(a));
            if (k_has_min(type)) {
                __m256i m = k_min_sum(n_tok, w + k_panel_mins(type), sums, t, v);
                sum = _mm256_fnmadd_ps(_mm256_mul_ps(dt, _mm256_load_ps(dmin + v * LANES)), _mm256_cvtepi32_ps(m), sum);
            }
            KEEP(sum);
            _mm256_store_ps(a, sum);
        }
    }
}

#endif
