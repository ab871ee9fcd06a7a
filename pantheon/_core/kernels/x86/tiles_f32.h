/* What the tiles of F32, F16 and BF16 of all levels share.
 *
 * The order of the sums is that of one product with a vector: element i belongs to running sum i % 32, so a row has
 * four chains of 8 lanes, chain c taking the groups of 8 elements c, c + 4, c + 8, ...; then one fixed tree; then the
 * last n % 8 elements in order. A tile walks one chain of 4 rows at a time.
 *
 * Panel:  rows as f32, (4 row groups, groups of 8 in chain order, 4 rows, 8 lanes), then the ends (16 rows, 8).
 * Packed input of T tokens:  (groups of 8 in chain order, T, 8 lanes) f32, then the ends (T, 8).
 */
#ifndef PN_X86_TILES_F32_H
#define PN_X86_TILES_F32_H

#include "tiles.h"

enum { F32_TOK = 6, CHAINS = 4, QUAD = 4, QUADS = PN_PANEL / QUAD };
enum { CHAIN_SUMS = QUAD * F32_TOK * LANES }; /* floats of the sums of one chain: (4 rows, F32_TOK, 8 lanes) */

/* Groups of 8 elements of a row lie chain after chain: how many a chain has, and where its first one is. */
TILE_INLINE size_t chain_length(int n, int chain) { return (size_t)((n / LANES + CHAINS - 1 - chain) / CHAINS); }
TILE_INLINE size_t chain_start(int n, int chain)
{
    const int groups = n / LANES, more = groups % CHAINS;
    return (size_t)(chain * (groups / CHAINS) + (chain < more ? chain : more));
}
TILE_INLINE size_t whole(int n) { return (size_t)(n / LANES * LANES); }

/* The four chains of one product, and the two halves of what they give. chain c is at s + c * CHAIN_SUMS. */
TILE_INLINE __m128 sum_chains(const float *s)
{
    const __m256 v = _mm256_add_ps(_mm256_add_ps(_mm256_load_ps(s), _mm256_load_ps(s + CHAIN_SUMS)),
                                   _mm256_add_ps(_mm256_load_ps(s + 2 * CHAIN_SUMS),
                                                 _mm256_load_ps(s + 3 * CHAIN_SUMS)));
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* The outputs of quad q from its sums: the tree, then the ends of the rows. row_ends: the panel's; x_ends: (n_tok, 8).
 * The last four lanes of the 4 rows are added up side by side. */
TILE_INLINE void finish_quad(const float *sums, int q, const float *row_ends, const float *x_ends, int n, int n_tok,
                             float *y, size_t ldy)
{
    for (int t = 0; t < n_tok; t++) {
        __m128 h[QUAD];
        #pragma GCC unroll 4
        for (int r = 0; r < QUAD; r++)
            h[r] = sum_chains(sums + (r * F32_TOK + t) * LANES);
        _MM_TRANSPOSE4_PS(h[0], h[1], h[2], h[3]);
        float *out = y + (size_t)t * ldy + q * QUAD;
        _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(h[0], h[2]), _mm_add_ps(h[1], h[3])));
        for (int i = 0; i < n % LANES; i++)
            for (int r = 0; r < QUAD; r++)
                out[r] = __builtin_fmaf(row_ends[(q * QUAD + r) * LANES + i], x_ends[t * LANES + i], out[r]);
    }
}

#endif
