/* Matrix x matrix tiles of F32, F16 and BF16: see x86/tiles_f32.h. Panels and packed input are those of avx2.
 *
 * A register holds the 8 lanes of two rows, and a token's lanes twice. 4 rows x 6 tokens of one chain are 12 sums.
 */
#include "x86/tiles_f32.h"

enum { PAIRS = QUAD / 2, PAIR = 2 * LANES };

/* sums[(r * F32_TOK + t) * LANES] = one chain of rows 0..3 with n_tok tokens from x on, of groups that hold n_tok. */
TILE_INLINE void chain_sums(const int n_tok, const float *w, const float *x, size_t length, float *sums)
{
    __m512 s[PAIRS * F32_TOK];
    #pragma GCC unroll 12
    for (int i = 0; i < PAIRS * n_tok; i++)
        s[i] = _mm512_setzero_ps();
    for (size_t i = 0; i < length; i++, w += QUAD * LANES, x += n_tok * LANES) {
        const __m512 w0 = _mm512_load_ps(w), w1 = _mm512_load_ps(w + PAIR);
        #pragma GCC unroll 6
        for (int t = 0; t < n_tok; t++) {
            const __m512 v = _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_loadu_pd((const double *)(x + t * LANES))));
            s[PAIRS * t] = _mm512_fmadd_ps(w0, v, s[PAIRS * t]);
            s[PAIRS * t + 1] = _mm512_fmadd_ps(w1, v, s[PAIRS * t + 1]);
        }
    }
    #pragma GCC unroll 12
    for (int i = 0; i < PAIRS * n_tok; i++) {
        float *out = sums + (i % PAIRS * 2 * F32_TOK + i / PAIRS) * LANES;
        _mm256_store_ps(out, _mm512_castps512_ps256(s[i]));
        _mm256_store_pd((double *)(out + F32_TOK * LANES), _mm512_extractf64x4_pd(_mm512_castps_pd(s[i]), 1));
    }
}

#define CHAIN_SUMS_OF(n_tok) \
    TILE_BODY void chain_sums_##n_tok(const float *w, const float *x, size_t length, float *sums) \
    { \
        chain_sums(n_tok, w, x, length, sums); \
    }

CHAIN_SUMS_OF(1)
CHAIN_SUMS_OF(2)
CHAIN_SUMS_OF(3)
CHAIN_SUMS_OF(4)
CHAIN_SUMS_OF(5)
CHAIN_SUMS_OF(6)

static void tile(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy)
{
    static void (*const body[])(const float *, const float *, size_t, float *) = {
        chain_sums_1, chain_sums_2, chain_sums_3, chain_sums_4, chain_sums_5, chain_sums_6};
    float sums[CHAINS * CHAIN_SUMS] __attribute__((aligned(64)));
    const float *x = (const float *)packed, *x_ends = x + whole(n) * (size_t)n_tok;
    const float *row_ends = (const float *)panel + whole(n) * PN_PANEL;

    for (int q = 0; q < QUADS; q++) {
        const float *w = (const float *)panel + (size_t)q * whole(n) * QUAD;
        for (int c = 0; c < CHAINS; c++)
            body[n_tok - 1](w + chain_start(n, c) * QUAD * LANES, x + chain_start(n, c) * (size_t)n_tok * LANES,
                            chain_length(n, c), sums + c * CHAIN_SUMS);
        finish_quad(sums, q, row_ends, x_ends, n, n_tok, y, ldy);
    }
}

void pn_avx512_tiles_f32(pn_kernels *k)
{
    k->type[PN_F32].tile = tile;
    k->type[PN_F16].tile = tile;
    k->type[PN_BF16].tile = tile;
}
