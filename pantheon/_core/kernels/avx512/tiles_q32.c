/* Matrix x matrix tiles of the types with 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and those in the panels of
 * Q5_0 and Q8_0.
 *
 * Panels: see panels.h. Packed input: see vnni.h.
 */
#include "pack.h"
#include "unpack_q32.h"
#include "x86/tiles512.h"

enum { TOK = 12 };

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    __m512 acc[TOK];
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++)
        acc[t] = _mm512_setzero_ps();
    for (int b = 0; b < n / 32; b++, w += q32_panel_block(type), x += Q32_PACK_BLOCK * n_tok) {
        __m512i s[TOK];
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++)
            s[t] = q32_offset_shift(type) ? broadcast_512(x + q32_pack_start(type) * n_tok + t * 4)
                                          : _mm512_setzero_si512();
        #pragma GCC unroll 8
        for (int g = 0; g < PANEL_STEPS; g++) {
            const __m512i codes = load_512(w + g * PANEL_SET);
            #pragma GCC unroll 12
            for (int t = 0; t < n_tok; t++)
                step_512(&s[t], codes, x + (g * n_tok + t) * 4);
        }
        /* acc = fma(d_w * d_x, isum, acc), then acc = fma(s_x, m, acc) */
        const __m512 d = load_ps(w + Q32_D), m = q32_has_min(type) ? load_ps(w + Q32_M) : d;
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++) {
            const __m512 scale = _mm512_mul_ps(d, broadcast_ps(x + Q32_PACK_D * n_tok + t * 4));
            acc[t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(s[t]), acc[t]);
            if (q32_has_min(type))
                acc[t] = _mm512_fmadd_ps(m, broadcast_ps(x + Q32_PACK_S * n_tok + t * 4), acc[t]);
            KEEP_512(acc[t]);
        }
    }
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++)
        _mm512_storeu_ps(y + (size_t)t * ldy, acc[t]);
}

#define UNPACK(name, type) \
    static void unpack_512_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    }

UNPACK(q4_0, PN_Q4_0)
UNPACK(q4_1, PN_Q4_1)
UNPACK(q5_0, PN_Q5_0)
UNPACK(q5_1, PN_Q5_1)
UNPACK(q8_0, PN_Q8_0)

TILE_UP_TO_12(tile_q4_0, PN_Q4_0, tile)
TILE_UP_TO_12(tile_q4_1, PN_Q4_1, tile)
TILE_UP_TO_12(tile_q5_0, PN_Q5_0, tile)
TILE_UP_TO_12(tile_q5_1, PN_Q5_1, tile)
TILE_UP_TO_12(tile_q8_0, PN_Q8_0, tile)

void pn_avx512_tiles_q32(pn_kernels *k)
{
    q32_set(&k->type[PN_Q4_0], TOK, tile_q4_0);
    q32_set(&k->type[PN_Q4_1], TOK, tile_q4_1);
    q5_0_panels_set(k, TOK, tile_q5_0);
    q32_set(&k->type[PN_Q5_1], TOK, tile_q5_1);
    q8_0_panels_set(k, TOK, tile_q8_0);
    k->type[PN_Q4_0].unpack = unpack_512_q4_0;
    k->type[PN_Q4_1].unpack = unpack_512_q4_1;
    k->type[PN_Q5_0].unpack = unpack_512_q5_0;
    k->type[PN_Q5_1].unpack = unpack_512_q5_1;
    k->type[PN_Q8_0].unpack = unpack_512_q8_0;
    pack_set(k);
}
