/* Packed input as vnni.h lays it out, written a dword of all tokens at a time. */
#ifndef PN_AVX512_PACK_H
#define PN_AVX512_PACK_H

#include "x86/transpose512.h"
#include "x86/vnni.h"

enum { PACK_TOK = 12, PACK_QUARTERS = 3 }; /* most tokens of a tile, and the quarters of a register that they fill */

/* Where each token's row of an array begins. Tokens that are not there stand on the last one. */
typedef struct pack_rows {
    const uint8_t *at[PACK_TOK];
    __mmask16 tokens;
    int n_tok;
} pack_rows;

TILE_INLINE pack_rows pack_rows_of(const void *p, size_t row_bytes, int t0, int n_tok)
{
    pack_rows rows;
    rows.n_tok = n_tok;
    rows.tokens = (__mmask16)((1 << n_tok) - 1);
    for (int t = 0; t < PACK_TOK; t++)
        rows.at[t] = (const uint8_t *)p + (size_t)(t0 + (t < n_tok ? t : n_tok - 1)) * row_bytes;
    return rows;
}

/* out[g] = dword g of 4 at byte offset of every token */
TILE_INLINE void pack_read(const pack_rows *rows, size_t offset, __m512i *out)
{
    transpose_rows(rows->at, offset, PACK_QUARTERS, out);
}

/* One number of every token; at: its byte offset inside a block, times n_tok in the end */
TILE_INLINE void pack_write(const pack_rows *rows, uint8_t *block, int at, __m512i v)
{
    _mm512_mask_storeu_epi32(block + at * rows->n_tok, rows->tokens, v);
}

TILE_INLINE __m512i negative(__m512i v)
{
    return _mm512_sub_epi32(_mm512_setzero_si512(), v);
}

/* The 32 codes at column of every token */
TILE_INLINE void pack_codes_32(const pack_rows *q, size_t column, uint8_t *block)
{
    __m512i v[PANEL_STEPS];
    pack_read(q, column, v);
    pack_read(q, column + 16, v + 4);
    #pragma GCC unroll 8
    for (int g = 0; g < PANEL_STEPS; g++)
        pack_write(q, block, 4 * g, v[g]);
}

TILE_STATIC void q32_pack_x_512(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    const size_t row_bytes = (size_t)n_blocks * 4;
    if (n_blocks < 4) {
        q32_pack_x(x, t0, n_tok, packed);
        return;
    }
    const pack_rows q = pack_rows_of(x->q, (size_t)x->n, t0, n_tok), d = pack_rows_of(x->d, row_bytes, t0, n_tok);
    const pack_rows s = pack_rows_of(x->s, row_bytes, t0, n_tok), bsum = pack_rows_of(x->bsum, row_bytes, t0, n_tok);
    for (int b = 0; b < n_blocks; b += 4) {
        const int first = b + 4 <= n_blocks ? b : n_blocks - 4; /* the last four may overlap those before */
        __m512i vd[4], vs[4], sum[4];
        pack_read(&d, (size_t)first * 4, vd);
        pack_read(&s, (size_t)first * 4, vs);
        pack_read(&bsum, (size_t)first * 4, sum);
        #pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            uint8_t *block = packed + (size_t)(first + i) * Q32_PACK_BLOCK * (size_t)n_tok;
            const __m512i minus = negative(sum[i]);
            pack_codes_32(&q, (size_t)(first + i) * 32, block);
            pack_write(&q, block, Q32_PACK_D, vd[i]);
            pack_write(&q, block, Q32_PACK_S, vs[i]);
            pack_write(&q, block, Q32_PACK_START8, _mm512_slli_epi32(minus, 3));
            pack_write(&q, block, Q32_PACK_START16, _mm512_slli_epi32(minus, 4));
            pack_write(&q, block, Q32_PACK_START128, _mm512_slli_epi32(minus, 7));
        }
    }
}

TILE_STATIC void k_pack_x_512(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 256;
    const pack_rows q = pack_rows_of(x->q, (size_t)x->n, t0, n_tok);
    const pack_rows sum = pack_rows_of(x->sum, (size_t)x->n / 8, t0, n_tok);
    for (int b = 0; b < n_blocks; b++, packed += (size_t)K_PACK_BLOCK * (size_t)n_tok) {
        __m512i pair[PANEL_SUBS]; /* the sums of the two halves of a sub-block, as int16 */
        pack_read(&sum, (size_t)b * 32, pair);
        pack_read(&sum, (size_t)b * 32 + 16, pair + 4);
        #pragma GCC unroll 8
        for (int j = 0; j < PANEL_SUBS; j++) {
            uint8_t *sub = packed + j * K_PACK_SUB * n_tok;
            pack_codes_32(&q, (size_t)b * 256 + (size_t)j * 32, sub);
            const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(pair[j], 16), 16);
            const __m512i high = _mm512_srai_epi32(pair[j], 16);
            pack_write(&q, sub, K_PACK_START, _mm512_slli_epi32(negative(low), 5));
            pack_write(&q, sub, K_PACK_START + 4, _mm512_slli_epi32(negative(high), 5));
        }
        #pragma GCC unroll 4
        for (int j = 0; j < PANEL_SUBS / 2; j++) {
            const __m512i ones = _mm512_set1_epi16(1);
            const __m512i even = _mm512_madd_epi16(pair[2 * j], ones), odd = _mm512_madd_epi16(pair[2 * j + 1], ones);
            pack_write(&q, packed, K_PACK_SUMS + 4 * j,
                       _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(odd, 16)));
        }
        for (int t = 0; t < n_tok; t++)
            memcpy(packed + K_PACK_D * n_tok + t * 4, x->d + (size_t)(t0 + t) * (size_t)n_blocks + b, 4);
    }
}

/* Gives every type that packs its input by one of the two functions above the faster form of it. */
TILE_INLINE void pack_set(pn_kernels *k)
{
    for (int i = 0; i < PN_TYPE_COUNT; i++) {
        pn_type_ops *ops = &k->type[i];
        if (ops->pack_x == q32_pack_x)
            ops->pack_x = q32_pack_x_512;
        else if (ops->pack_x == k_pack_x)
            ops->pack_x = k_pack_x_512;
    }
}

#endif
