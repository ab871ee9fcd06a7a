/* Matrix x matrix tile of super-blocks of 256 weights as int16: vpdpwssd, 2 k a step. Panels and packed input are those
 * of avx2 (panels.h), with more tokens a tile.
 */
#include "x86/tiles512.h"

enum { TOK = 12 };

/* s[t]: the block's integer sums of token t with the 16 rows. */
TILE_INLINE void block_sums(int n_tok, const uint8_t *w, const uint8_t *x, __m512i *s)
{
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++)
        s[t] = _mm512_setzero_si512();
    for (int g = 0; g < S16_STEPS; g += 4, w += 4 * PANEL_SET, x += 4 * 4 * n_tok) {
        #pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            const __m512i codes = load_512(w + u * PANEL_SET);
            #pragma GCC unroll 12
            for (int t = 0; t < n_tok; t++)
                step_i16_512(&s[t], codes, x + (u * n_tok + t) * 4);
        }
    }
}

/* acc = fma(d * d_x, isum, acc), then acc = fma(-(dmin * d_x), msum, acc) for a type with minimums. */
TILE_INLINE void tile(int has_min, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += s16_panel_block(has_min), x += S16_PACK_BLOCK * n_tok) {
        const __m512 d = load_ps(w + S16_D), dmin = has_min ? load_ps(w + S16_DMIN) : d;
        __m512i s[TOK];
        block_sums(n_tok, w, x, s);
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++) {
            const __m512 dx = broadcast_ps(x + S16_PACK_D * n_tok + t * 4);
            __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(dx, d), _mm512_cvtepi32_ps(s[t]), load_ps(acc + t * PN_PANEL));
            if (has_min) {
                __m512i msum = _mm512_setzero_si512();
                #pragma GCC unroll 8
                for (int j = 0; j < S16_MIN_STEPS; j++)
                    step_i16_512(&msum, load_512(w + S16_MINS + j * PANEL_SET),
                                 x + (S16_PACK_SUMS + j * 4) * n_tok + t * 4);
                sum = _mm512_fnmadd_ps(_mm512_mul_ps(dx, dmin), _mm512_cvtepi32_ps(msum), sum);
            }
            _mm512_store_ps(acc + t * PN_PANEL, sum);
        }
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_12(tile_plain, 0, tile)
TILE_UP_TO_12(tile_min, 1, tile)

void pn_avx512_tiles_s16(pn_kernels *k)
{
    for (size_t i = 0; i < sizeof S16_PANELS / sizeof *S16_PANELS; i++) {
        k->type[S16_PANELS[i]].tile = tile_plain;
        k->type[S16_PANELS[i]].tile_tok = k->type[S16_PANELS[i]].pack_tok = TOK;
    }
    for (size_t i = 0; i < sizeof S16_PANELS_WITH_MIN / sizeof *S16_PANELS_WITH_MIN; i++) {
        k->type[S16_PANELS_WITH_MIN[i]].tile = tile_min;
        k->type[S16_PANELS_WITH_MIN[i]].tile_tok = k->type[S16_PANELS_WITH_MIN[i]].pack_tok = TOK;
    }
}
