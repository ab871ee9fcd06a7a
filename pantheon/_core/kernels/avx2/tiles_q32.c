/* Matrix x matrix tiles of the types with codes of at most 5 bits and a scale per 32 or more: Q4_0, Q4_1, Q5_0, Q5_1;
 * MXFP4, Q1_0 and Q2_0 in the panels of Q5_0.
 *
 * Panels: see panels.h.
 * Packed input, per block of T tokens:  codes (8 steps, T, 4) int8 | d (T,) | s (T,) f32 | start8 (T, 2) | start16
 * (T, 2) int16. All four types share the packing; each reads what it needs of it.
 *
 * Range. A 16-bit lane sums 16 products of a block. Q4_1: at most 16 * 15 * 127 = 30480. The others have codes offset
 * by 8 or 16, at most 16 * 16 * 127 = 32512 in size once the offset is taken off; they begin at -offset * (sum of the
 * lane's inputs), itself at most 32512, and wrap on the way, which the final value does not see. One vpmaddubsw sums
 * two products, at most 2 * 31 * 127 = 7874: it cannot saturate.
 */
#include "codes2.h"
#include "x86/codes4.h"
#include "x86/codes45.h"
#include "x86/tiles_q32.h"

enum { TOK = 6, STEPS = PANEL_STEPS, PREFETCH_BLOCKS = 16 };

/* Byte offsets inside one block of a packed tile, each times n_tok. */
enum { PACK_D = 32, PACK_S = 36, PACK_START8 = 40, PACK_START16 = 44, PACK_BLOCK = 48 };

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

TILE_INLINE void unpack_scales(pn_type type, const uint8_t *const *block, float *d, float *m)
{
    for (int i = 0; i < LANES; i++) {
        d[i] = load_f16(block[i]);
        if (q32_has_min(type)) {
            m[i] = load_f16(block[i] + 2);
            if (q32_offset_shift(type)) /* d * (c + 16) + m: the offset of the codes moves into the minimum */
                m[i] = __builtin_fmaf((float)(1 << q32_offset_shift(type)), d[i], m[i]);
        }
    }
}

TILE_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, (size_t)q32_block_bytes(type));
    for (int b = 0; b < n / 32; b++, panel += q32_panel_block(type), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            if (!(b & 1)) /* a line holds two to three blocks */
                rows_prefetch(&rows, v * LANES, (size_t)PREFETCH_BLOCKS * q32_block_bytes(type), 1);
            __m256i c[8];
            #pragma GCC unroll 8
            for (int i = 0; i < LANES; i++)
                c[i] = q32_codes(type, rows.at[v * LANES + i]);
            transpose_8x8(c);
            store_steps(panel, v, c, STEPS);
            unpack_scales(type, rows.at + v * LANES, (float *)(panel + Q32_D) + v * LANES,
                          (float *)(panel + Q32_M) + v * LANES);
        }
    }
}

/* Signed codes in [-16, 15], offset by 16 as those of Q5_0; j: which 32 of a block. */
TILE_INLINE __m256i small_codes(pn_type type, const uint8_t *block, int j)
{
    __m256i c = type == PN_MXFP4 ? lookup_32(e2m1_values(), block + 1)
                : type == PN_Q1_0 ? q1_0_codes(block, j) : q2_0_codes(block, j);
    return _mm256_add_epi8(c, _mm256_set1_epi8(16));
}

TILE_INLINE void unpack_small(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = type == PN_MXFP4 ? 17 : 18;
    const int parts = type == PN_Q1_0 ? 4 : type == PN_Q2_0 ? 2 : 1;
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 32; b++, panel += q32_panel_block(PN_Q5_0)) {
        for (int v = 0; v < ROW_VECS; v++) {
            const uint8_t *const *block = rows.at + v * LANES;
            __m256i c[8];
            float *d = (float *)(panel + Q32_D) + v * LANES;
            if (b % parts == 0)
                rows_prefetch(&rows, v * LANES, PREFETCH_BLOCKS * bytes, 1);
            #pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) {
                c[i] = small_codes(type, block[i], b % parts);
                if (type != PN_MXFP4)
                    d[i] = load_f16(block[i]);
            }
            transpose_8x8(c);
            store_steps(panel, v, c, STEPS);
            if (type == PN_MXFP4) {
                __m256i e = _mm256_setr_epi32(*block[0], *block[1], *block[2], *block[3], *block[4], *block[5],
                                              *block[6], *block[7]);
                _mm256_store_ps(d, mx_scales(e));
            }
        }
        if (b % parts == parts - 1)
            rows_next(&rows);
    }
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 32) * PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    for (int b = 0; b < n_blocks; b++, packed += PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 32;
            const size_t at = (size_t)(t0 + t) * n_blocks + b;
            uint8_t *out = packed + t * 4;
            for (int g = 0; g < STEPS; g++)
                memcpy(out + g * n_tok * 4, q + g * 4, 4);
            memcpy(out + PACK_D * n_tok, x->d + at, 4);
            memcpy(out + PACK_S * n_tok, x->s + at, 4);
            __m128i sums = _mm_add_epi16(pair_sums_16(q), pair_sums_16(q + 16));
            store_offset_start(out + PACK_START8 * n_tok, sums, 3);
            store_offset_start(out + PACK_START16 * n_tok, sums, 4);
        }
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* s[2t], s[2t + 1]: int16 pairs of the block's integer sums of token t with rows 0..7 and 8..15. */
TILE_INLINE void block_sums(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m256i *s)
{
    #pragma GCC unroll 8
    for (int g = 0; g < STEPS; g++) {
        const __m256i w0 = load_i(w + g * 64), w1 = load_i(w + g * 64 + 32);
        #pragma GCC unroll 6
        for (int t = 0; t < n_tok; t++) {
            __m256i xb = broadcast_4(x + (g * n_tok + t) * 4);
            if (g == 0 && q32_offset_shift(type) == 0) {
                first_step_u8(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
                continue;
            }
            if (g == 0)
                s[2 * t] = s[2 * t + 1] =
                    broadcast_4(x + (q32_offset_shift(type) == 3 ? PACK_START8 : PACK_START16) * n_tok + t * 4);
            step_u8(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
        }
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 32; b++, w += q32_panel_block(type), x += PACK_BLOCK * n_tok) {
        __m256i s[TOK * ROW_VECS];
        block_sums(type, n_tok, w, x, s);
        #pragma GCC unroll 12
        for (int i = 0; i < n_tok * ROW_VECS; i++)
            s[i] = _mm256_madd_epi16(s[i], _mm256_set1_epi16(1));
        q32_block_epilogue(type, n_tok, (const float *)(w + Q32_D), (const float *)(w + Q32_M),
                           (const float *)(x + PACK_D * n_tok), (const float *)(x + PACK_S * n_tok), s, acc);
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define Q32_TYPE(name, type) \
    static size_t panel_bytes_##name(int n) { return (size_t)(n / 32) * (size_t)q32_panel_block(type); } \
    static void unpack_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    } \
    TILE_UP_TO_6(tile_##name, type, tile)

Q32_TYPE(q4_0, PN_Q4_0)
Q32_TYPE(q4_1, PN_Q4_1)
Q32_TYPE(q5_0, PN_Q5_0)
Q32_TYPE(q5_1, PN_Q5_1)

#define SMALL_TYPE(name, type) \
    static void unpack_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack_small(type, w, row_bytes, n_rows, n, panel); \
    }

SMALL_TYPE(mxfp4, PN_MXFP4)
SMALL_TYPE(q1_0, PN_Q1_0)
SMALL_TYPE(q2_0, PN_Q2_0)

void pn_avx2_tiles_q32(pn_kernels *k)
{
    tiles_set(&k->type[PN_Q4_0], TOK, panel_bytes_q4_0, unpack_q4_0, pack_bytes, pack_x, tile_q4_0);
    tiles_set(&k->type[PN_Q4_1], TOK, panel_bytes_q4_1, unpack_q4_1, pack_bytes, pack_x, tile_q4_1);
    tiles_set(&k->type[PN_Q5_0], TOK, panel_bytes_q5_0, unpack_q5_0, pack_bytes, pack_x, tile_q5_0);
    tiles_set(&k->type[PN_Q5_1], TOK, panel_bytes_q5_1, unpack_q5_1, pack_bytes, pack_x, tile_q5_1);
    tiles_like(&k->type[PN_MXFP4], &k->type[PN_Q5_0], unpack_mxfp4);
    tiles_like(&k->type[PN_Q1_0], &k->type[PN_Q5_0], unpack_q1_0);
    tiles_like(&k->type[PN_Q2_0], &k->type[PN_Q5_0], unpack_q2_0);
}
