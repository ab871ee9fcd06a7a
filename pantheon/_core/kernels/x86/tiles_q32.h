/* The end of a 32-weight block, the same for every level with 256-bit tiles: float steps from exact integers. */
#ifndef PN_X86_TILES_Q32_H
#define PN_X86_TILES_Q32_H

#include "panels.h"
#include "tiles.h"

/* d, m: (16,), scales and minimums of the rows. dx, sx: (n_tok,). isum: (n_tok, 16) int32. m and sx are read only
 * where the type has a minimum. acc = fma(d_w * d_x, isum, acc), then acc = fma(s_x, m, acc). */
TILE_INLINE void q32_block_epilogue(pn_type type, int n_tok, const float *d, const float *m, const float *dx,
                                    const float *sx, const __m256i *isum, float *acc)
{
    #pragma GCC unroll 6
    for (int t = 0; t < n_tok; t++) {
        #pragma GCC unroll 2
        for (int v = 0; v < ROW_VECS; v++) {
            float *a = acc + (t * ROW_VECS + v) * LANES;
            __m256 scale = _mm256_mul_ps(_mm256_broadcast_ss(dx + t), _mm256_load_ps(d + v * LANES));
            __m256 sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(isum[t * ROW_VECS + v]), _mm256_load_ps(a));
            if (q32_has_min(type))
                sum = _mm256_fmadd_ps(_mm256_broadcast_ss(sx + t), _mm256_load_ps(m + v * LANES), sum);
            KEEP(sum);
            _mm256_store_ps(a, sum);
        }
    }
}

#endif
