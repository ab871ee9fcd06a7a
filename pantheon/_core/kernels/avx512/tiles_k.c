/* Matrix x matrix tiles of Q4_K, Q5_K, Q6_K and the types in its panels: super-blocks of 256 weights, exact in int32,
 * one float step each.
 *
 * Panels: see panels.h; unpacked by avx2. Packed input: see vnni.h.
 */
#include "pack.h"
#include "x86/tiles512.h"

enum { TOK = 12 };

/* Sums of 16 products of 4-bit codes, at most 16 * 15 * 127 = 30480 in size, are int16 numbers: one vpdpwssd multiplies
 * them by their scale and adds. Those of the other types are multiplied as int32. */
TILE_INLINE int n_parts(pn_type type) { return type == PN_Q4_K ? 2 : k_n_scales(type); }

/* isum[t] += scale * sum of the codes' products, for one sub-block. */
TILE_INLINE void sub_block(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m512i *isum)
{
    const int steps = PANEL_STEPS / n_parts(type);
    __m512i s[TOK];
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++) {
        const __m512i codes = load_512(w + g * PANEL_SET);
        const int part = g / steps, first = g % steps == 0, last = g % steps == steps - 1;
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++) {
            if (first)
                s[t] = k_is_offset(type) ? broadcast_512(x + (K_PACK_START + part * 4) * n_tok + t * 4)
                                         : _mm512_setzero_si512();
            step_512(&s[t], codes, x + (g * n_tok + t) * 4);
        }
        if (last) { /* each scale is stored twice in its 4 bytes */
            const __m512i twice = load_512(w + K_SCALES + part % k_n_scales(type) * PANEL_SET);
            const __m512i scale = type == PN_Q4_K ? _mm512_srli_epi32(twice, 16) : _mm512_srai_epi32(twice, 16);
            #pragma GCC unroll 12
            for (int t = 0; t < n_tok; t++) {
                if (type == PN_Q4_K)
                    isum[t] = _mm512_dpwssd_epi32(isum[t], s[t], scale);
                else
                    isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(s[t], scale));
                KEEP_512(isum[t]);
            }
        }
    }
}

/* acc = fma(d * d_x, isum, acc), then acc = fma(-(dmin * d_x), msum, acc). */
TILE_INLINE void block_epilogue(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, const __m512i *isum,
                                float *acc)
{
    const __m512 d = load_ps(w + k_panel_d(type));
    const __m512 dmin = k_has_min(type) ? load_ps(w + k_panel_d(type) + PANEL_SET) : d;
    #pragma GCC unroll 12
    for (int t = 0; t < n_tok; t++) {
        const __m512 dx = broadcast_ps(x + K_PACK_D * n_tok + t * 4);
        __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(dx, d), _mm512_cvtepi32_ps(isum[t]), load_ps(acc + t * PN_PANEL));
        if (k_has_min(type)) {
            __m512i msum = _mm512_setzero_si512();
            #pragma GCC unroll 4
            for (int j = 0; j < PANEL_SUBS / 2; j++)
                msum = _mm512_dpwssd_epi32(msum, load_512(w + k_panel_mins(type) + j * PANEL_SET),
                                           broadcast_512(x + (K_PACK_SUMS + j * 4) * n_tok + t * 4));
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(dx, dmin), _mm512_cvtepi32_ps(msum), sum);
        }
        _mm512_store_ps(acc + t * PN_PANEL, sum);
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += k_panel_block(type), x += K_PACK_BLOCK * n_tok) {
        __m512i isum[TOK];
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++)
            isum[t] = _mm512_setzero_si512();
        for (int j = 0; j < PANEL_SUBS; j++)
            sub_block(type, n_tok, w + j * k_panel_sub(type), x + j * K_PACK_SUB * n_tok, isum);
        block_epilogue(type, n_tok, w, x, isum, acc);
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_12(tile_q4_k, PN_Q4_K, tile)
TILE_UP_TO_12(tile_q5_k, PN_Q5_K, tile)
TILE_UP_TO_12(tile_q6_k, PN_Q6_K, tile)

void pn_avx512_tiles_k(pn_kernels *k)
{
    k_set(&k->type[PN_Q4_K], TOK, tile_q4_k);
    k_set(&k->type[PN_Q5_K], TOK, tile_q5_k);
    q6_k_panels_set(k, TOK, tile_q6_k);
    pack_set(k);
}
