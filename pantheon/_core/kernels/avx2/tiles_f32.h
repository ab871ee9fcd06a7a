/* What the tiles of F32, F16 and BF16 of all levels share.
 *
 * The order of the sums is that of one product with a vector: element i belongs to running sum i % 32, so a row has
 * four chains of 8 lanes, chain c taking the groups of 8 elements c, c + 4, c + 8, ...; then one fixed tree; then the
 * last n % 8 elements in order. A tile walks one chain of 4 rows at a time.
 *
 * Panel:  rows as f32, (4 row groups, groups of 8 in chain order, 4 rows, 8 lanes), then the ends (16 rows, 8).
 * Packed input of T tokens:  (groups of 8 in chain order, T, 8 lanes) f32, then the ends (T, 8).
 */
#ifndef PN_AVX2_TILES_F32_H
#define PN_AVX2_TILES_F32_H

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

/* The tree over the four chains of one product, then the end of the row. chain c is at s + c * CHAIN_SUMS. */
TILE_INLINE float finish(const float *s, const float *row_end, const float *x_end, int n_end)
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(_mm256_load_ps(s), _mm256_load_ps(s + CHAIN_SUMS)),
                             _mm256_add_ps(_mm256_load_ps(s + 2 * CHAIN_SUMS), _mm256_load_ps(s + 3 * CHAIN_SUMS)));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    float sum = _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
    for (int i = 0; i < n_end; i++)
        sum = __builtin_fmaf(row_end[i], x_end[i], sum);
    return sum;
}

/* The outputs of quad q, from its sums. row_ends: the panel's; x_ends: (n_tok, 8). */
TILE_INLINE void finish_quad(const float *sums, int q, const float *row_ends, const float *x_ends, int n, int n_tok,
                             float *y, size_t ldy)
{
    for (int t = 0; t < n_tok; t++)
        for (int r = 0; r < QUAD; r++)
            y[(size_t)t * ldy + q * QUAD + r] = finish(sums + (r * F32_TOK + t) * LANES,
                                                       row_ends + (q * QUAD + r) * LANES, x_ends + t * LANES,
                                                       n % LANES);
}

#endif
