/* Matrix x matrix tiles of Q4_K, Q5_K, Q6_K and the types in its panels: super-blocks of 256 weights, exact in int32,
 * one float step each.
 *
 * Panels: see panels.h; unpacked by avx2.
 * Packed input of T tokens, per sub-block of 32:  codes (8 steps, T, 4) int8 | -32 * sum of 16 codes (2, T) int32;
 *   then per block of 256:                        sums of 32 codes (4, T, 2) int16 | d (T,) f32.
 * All types share it.
 *
 * Range: 256 * 128 * 32 * 127 < 2^27 once Q6_K's offset is taken off, which is where the sum of a part starts.
 */
#include "tiles.h"

enum { TOK = 12 };
/* Byte offsets inside packed input, each times n_tok. */
enum { PACK_START = 32, PACK_SUB = 40, PACK_SUMS = PANEL_SUBS * PACK_SUB };
enum { PACK_D = PACK_SUMS + 16, PACK_BLOCK = PACK_D + 4 };

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 256) * PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 256;
    for (int t = 0; t < n_tok; t++) {
        const int8_t *q = x->q + (size_t)(t0 + t) * x->n;
        const int16_t *sum = x->sum + (size_t)(t0 + t) * (x->n / 16);
        const float *d = x->d + (size_t)(t0 + t) * n_blocks;
        uint8_t *out = packed + t * 4;
        for (int b = 0; b < n_blocks; b++, sum += 16) {
            for (int j = 0; j < PANEL_SUBS; j++, q += 32, out += PACK_SUB * n_tok) {
                const int32_t start[2] = {-32 * sum[2 * j], -32 * sum[2 * j + 1]};
                for (int g = 0; g < PANEL_STEPS; g++)
                    memcpy(out + g * n_tok * 4, q + g * 4, 4);
                memcpy(out + PACK_START * n_tok, &start[0], 4);
                memcpy(out + (PACK_START + 4) * n_tok, &start[1], 4);
            }
            for (int j = 0; j < PANEL_SUBS / 2; j++, out += 4 * n_tok) {
                int16_t pair[2] = {(int16_t)(sum[4 * j] + sum[4 * j + 1]), (int16_t)(sum[4 * j + 2] + sum[4 * j + 3])};
                memcpy(out, pair, 4);
            }
            memcpy(out, d + b, 4);
            out += 4 * n_tok;
        }
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* isum[t] += scale * sum of the codes' products, for one sub-block. */
TILE_INLINE void sub_block(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m512i *isum)
{
    const int steps = PANEL_STEPS / k_n_scales(type);
    __m512i s[TOK];
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++) {
        const __m512i codes = load_512(w + g * PANEL_SET);
        const int part = g / steps, first = g % steps == 0, last = g % steps == steps - 1;
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++) {
            if (first)
                s[t] = k_is_offset(type) ? broadcast_512(x + (PACK_START + part * 4) * n_tok + t * 4)
                                         : _mm512_setzero_si512();
            step_512(&s[t], codes, x + (g * n_tok + t) * 4);
        }
        if (last) { /* each scale is stored twice in its 4 bytes */
            const __m512i scale = _mm512_srai_epi32(load_512(w + K_SCALES + part * PANEL_SET), 16);
            #pragma GCC unroll 12
            for (int t = 0; t < n_tok; t++) {
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
        const __m512 dx = broadcast_ps(x + PACK_D * n_tok + t * 4);
        __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(dx, d), _mm512_cvtepi32_ps(isum[t]), load_ps(acc + t * PN_PANEL));
        if (k_has_min(type)) {
            __m512i msum = _mm512_setzero_si512();
            #pragma GCC unroll 4
            for (int j = 0; j < PANEL_SUBS / 2; j++)
                msum = _mm512_dpwssd_epi32(msum, load_512(w + k_panel_mins(type) + j * PANEL_SET),
                                           broadcast_512(x + (PACK_SUMS + j * 4) * n_tok + t * 4));
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(dx, dmin), _mm512_cvtepi32_ps(msum), sum);
        }
        _mm512_store_ps(acc + t * PN_PANEL, sum);
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += k_panel_block(type), x += PACK_BLOCK * n_tok) {
        __m512i isum[TOK];
        #pragma GCC unroll 12
        for (int t = 0; t < n_tok; t++)
            isum[t] = _mm512_setzero_si512();
        for (int j = 0; j < PANEL_SUBS; j++)
            sub_block(type, n_tok, w + j * k_panel_sub(type), x + j * PACK_SUB * n_tok, isum);
        block_epilogue(type, n_tok, w, x, isum, acc);
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_12(tile_q4_k, PN_Q4_K, tile)
TILE_UP_TO_12(tile_q5_k, PN_Q5_K, tile)
TILE_UP_TO_12(tile_q6_k, PN_Q6_K, tile)

TILE_INLINE void set_tile(pn_type_ops *ops,
                          void (*tile_fn)(const uint8_t *, const uint8_t *, int, int, float *, size_t))
{
    tiles_set(ops, TOK, ops->panel_bytes, ops->unpack, pack_bytes, pack_x, tile_fn);
}

void pn_avx512_tiles_k(pn_kernels *k)
{
    set_tile(&k->type[PN_Q4_K], tile_q4_k);
    set_tile(&k->type[PN_Q5_K], tile_q5_k);
    set_tile(&k->type[PN_Q6_K], tile_q6_k);
    for (size_t i = 0; i < sizeof PANELS_OF_Q6_K / sizeof *PANELS_OF_Q6_K; i++)
        set_tile(&k->type[PANELS_OF_Q6_K[i]], tile_q6_k);
}
