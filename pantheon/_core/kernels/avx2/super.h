/* Types with super-blocks of 256 codes, integer scales per 16 and one float scale, written once.
 *
 * A type says how 32 codes and the 16 scales of a block come out of its bytes; the product with a vector and the panels
 * of the matrix product follow here. Products with a vector take one row a vector of 32 codes. Panels are of two kinds:
 * codes of at most 32 in size go into those of Q6_K (panels.h) and use its tile; larger ones are multiplied by their
 * scales while they are unpacked, as int16 (tiles_s16.c).
 *
 * Range: two products of a code and an activation fit 16 bits, 2 * 127 * 127 < 2^15; times a scale, 256 of them fit 32:
 * 256 * 127 * 127 * 32 < 2^28.
 */
#ifndef PN_AVX2_SUPER_H
#define PN_AVX2_SUPER_H

#include "values.h"
#include "x86/panels.h"
#include "x86/rows8.h"
#include "x86/tiles.h"

typedef struct pn_super_type {
    int bytes;                            /* of a block */
    int offset;                           /* codes are unsigned and this much too large; SUPER_SIGNED: signed codes */
    float factor;                         /* joins the float scale */
    __m256i (*codes)(const uint8_t *b, int j); /* 32j .. 32j + 31, int8 or uint8 */
    __m128i (*scales)(const uint8_t *b);  /* (16,) int8; NULL: all are one */
    uint16_t (*d)(const uint8_t *b);      /* bits of the f16 scale */
    __m128i (*mins)(const uint8_t *b);    /* (16,) uint8; NULL: none */
    uint16_t (*dmin)(const uint8_t *b);
} pn_super_type;

enum { SUPER_SIGNED = -1 };

/* ---- product with a vector --------------------------------------------------------------------------------------- */

/* 16 scales as the sums need them: even ones in the low half, odd ones in the high half, because the 32 codes of a
 * vector have two scales. Scale j of the halves then belongs to codes 32j and 32j + 16. */
PN_INLINE __m256i even_odd_scales(__m128i scales)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order));
}

PN_INLINE __m256i even_odd_sums(const int16_t *sum)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load256(sum), order), 0xD8);
}

/* 16-bit scale j of each half to all its lanes */
#define SCALE(sc, j) _mm256_shuffle_epi8(sc, _mm256_set1_epi16(0x0100 + 0x0202 * (j)))

/* Eight partial sums of scale * code * activation of one block; xsum: even_odd_sums of the activations. */
PN_INLINE __m256i super_sums(const pn_super_type *ty, const uint8_t *b, const int8_t *x, __m256i xsum)
{
    __m256i sc = ty->scales ? even_odd_scales(ty->scales(b)) : _mm256_set1_epi16(1);
    __m256i s = _mm256_setzero_si256();
    if (ty->offset > 0)
        s = _mm256_mullo_epi32(_mm256_madd_epi16(sc, xsum), _mm256_set1_epi32(-ty->offset));
    __m256i part = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        __m256i c = ty->codes(b, j), xv = load256(x + 32 * j);
        __m256i p = ty->offset == SUPER_SIGNED ? _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(xv, c))
                                               : _mm256_maddubs_epi16(c, xv);
        if (ty->scales)
            s = _mm256_add_epi32(s, _mm256_madd_epi16(p, SCALE(sc, j)));
        else /* ternary: 16 products of 2 * 127 fit 16 bits */
            part = _mm256_add_epi16(part, p);
    }
    return ty->scales ? s : _mm256_add_epi32(s, _mm256_madd_epi16(part, sc));
}

/* Eight f16 numbers, one of each row. */
PN_INLINE __m256 super_halves(uint16_t (*half)(const uint8_t *), const uint8_t *w, size_t stride)
{
    __m128i v = _mm_cvtsi32_si128(half(w));
    v = _mm_insert_epi16(v, half(w + stride), 1);
    v = _mm_insert_epi16(v, half(w + 2 * stride), 2);
    v = _mm_insert_epi16(v, half(w + 3 * stride), 3);
    v = _mm_insert_epi16(v, half(w + 4 * stride), 4);
    v = _mm_insert_epi16(v, half(w + 5 * stride), 5);
    v = _mm_insert_epi16(v, half(w + 6 * stride), 6);
    v = _mm_insert_epi16(v, half(w + 7 * stride), 7);
    return _mm256_cvtph_ps(v);
}

PN_INLINE void super_dot8(const pn_super_type *ty, const uint8_t *w, size_t stride, const pn_act *x, int t, float *out,
                          size_t os)
{
    const int n_blocks = x->n / 256;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int16_t *xsum = x->sum + (size_t)t * n_blocks * 16;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += ty->bytes, xq += 256, xsum += 16) {
        const __m256i sums = even_odd_sums(xsum);
        const __m256 dx = _mm256_broadcast_ss(xd + b);
        __m256i s[8], m[8];
#pragma GCC unroll 1
        for (int r = 0; r < 8; r++) {
            s[r] = super_sums(ty, w + r * stride, xq, sums);
            if (ty->mins)
                m[r] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(ty->mins(w + r * stride)), load256(xsum));
        }
        __m256 d = super_halves(ty->d, w, stride);
        if (ty->factor != 1)
            d = _mm256_mul_ps(d, _mm256_set1_ps(ty->factor));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
        if (ty->mins) {
            __m256 dmin = _mm256_mul_ps(super_halves(ty->dmin, w, stride), dx);
            acc = _mm256_fnmadd_ps(dmin, _mm256_cvtepi32_ps(tree8_epi32(m)), acc);
        }
    }
    store8(out, os, acc);
}

/* ---- rows to floats ---------------------------------------------------------------------------------------------- */

/* Signed codes of 32 weights. */
PN_INLINE __m256i super_signed(const pn_super_type *ty, const uint8_t *b, int j)
{
    __m256i c = ty->codes(b, j);
    return ty->offset > 0 ? _mm256_sub_epi8(c, _mm256_set1_epi8((char)ty->offset)) : c;
}

PN_INLINE __m128i super_scales(const pn_super_type *ty, const uint8_t *b)
{
    return ty->scales ? ty->scales(b) : _mm_set1_epi8(1);
}

PN_INLINE float super_d(const pn_super_type *ty, const uint8_t *b) { return _cvtsh_ss(ty->d(b)) * ty->factor; }

/* (d * scale) * code - dmin * min */
PN_INLINE void super_dequant(const pn_super_type *ty, const uint8_t *w, float *out, int64_t n)
{
    for (; n > 0; n -= 256, w += ty->bytes) {
        const float d = super_d(ty, w), dmin = ty->mins ? _cvtsh_ss(ty->dmin(w)) : 0;
        int8_t sc[16], m[16];
        _mm_storeu_si128((__m128i *)sc, super_scales(ty, w));
        _mm_storeu_si128((__m128i *)m, ty->mins ? ty->mins(w) : _mm_setzero_si128());
#pragma GCC unroll 1
        for (int j = 0; j < 8; j++, out += 32) {
            __m256i c = super_signed(ty, w, j);
            store_16_values(out, _mm256_castsi256_si128(c), ty->mins != NULL, d * (float)sc[2 * j],
                            -(dmin * (float)m[2 * j]));
            store_16_values(out + 16, _mm256_extracti128_si256(c, 1), ty->mins != NULL, d * (float)sc[2 * j + 1],
                            -(dmin * (float)m[2 * j + 1]));
        }
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

PN_INLINE void super_unpack_s16(const pn_super_type *ty, const uint8_t *w, size_t row_bytes, int n_rows, int n,
                                uint8_t *panel)
{
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, (size_t)ty->bytes);
    for (int b = 0; b < n / 256; b++, panel += s16_panel_block(ty->mins != NULL), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            const uint8_t *const *block = rows.at + v * LANES;
            float *d = (float *)(panel + S16_D) + v * LANES;
            int16_t sc[LANES][16];
            rows_prefetch(&rows, v * LANES, 2 * (size_t)ty->bytes, (size_t)ty->bytes);
            for (int i = 0; i < LANES; i++) {
                _mm256_storeu_si256((__m256i *)sc[i], _mm256_cvtepi8_epi16(super_scales(ty, block[i])));
                d[i] = super_d(ty, block[i]);
            }
#pragma GCC unroll 1
            for (int j = 0; j < 8; j++) {
                __m256i lo[8], hi[8];
#pragma GCC unroll 1
                for (int i = 0; i < LANES; i++) {
                    __m256i c = super_signed(ty, block[i], j);
                    lo[i] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(c)),
                                               _mm256_set1_epi16(sc[i][2 * j]));
                    hi[i] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(c, 1)),
                                               _mm256_set1_epi16(sc[i][2 * j + 1]));
                }
                transpose_8x8(lo);
                transpose_8x8(hi);
                store_steps(panel + 16 * j * PANEL_SET, v, lo, 8);
                store_steps(panel + (16 * j + 8) * PANEL_SET, v, hi, 8);
            }
            if (ty->mins) {
                float *dmin = (float *)(panel + S16_DMIN) + v * LANES;
                __m256i m[8];
                for (int i = 0; i < LANES; i++) {
                    m[i] = _mm256_cvtepu8_epi16(ty->mins(block[i]));
                    dmin[i] = _cvtsh_ss(ty->dmin(block[i]));
                }
                transpose_8x8(m);
                store_steps(panel + S16_MINS, v, m, 8);
            }
        }
    }
}

/* Q6_K's panel: codes offset by 32, two scales a sub-block. */
PN_INLINE void super_unpack_u6(const pn_super_type *ty, const uint8_t *w, size_t row_bytes, int n_rows, int n,
                               uint8_t *panel)
{
    const __m256i pair = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13,
                                          0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, (size_t)ty->bytes);
    for (int b = 0; b < n / 256; b++, panel += k_panel_block(PN_Q6_K), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            const uint8_t *const *block = rows.at + v * LANES;
            float *d = (float *)(panel + k_panel_d(PN_Q6_K)) + v * LANES;
            __m256i scale[2][8];
            rows_prefetch(&rows, v * LANES, 2 * (size_t)ty->bytes, (size_t)ty->bytes);
            for (int i = 0; i < LANES; i++) {
                __m128i s = super_scales(ty, block[i]);
                scale[0][i] = _mm256_shuffle_epi8(_mm256_cvtepi8_epi32(s), pair);
                scale[1][i] = _mm256_shuffle_epi8(_mm256_cvtepi8_epi32(_mm_srli_si128(s, 8)), pair);
                d[i] = super_d(ty, block[i]);
            }
            transpose_8x8(scale[0]);
            transpose_8x8(scale[1]);
            for (int k = 0; k < 16; k++)
                store_i(panel + k / 2 * k_panel_sub(PN_Q6_K) + K_SCALES + k % 2 * PANEL_SET + v * 32,
                        scale[k / 8][k % 8]);
#pragma GCC unroll 1
            for (int j = 0; j < PANEL_SUBS; j++) {
                __m256i c[8];
#pragma GCC unroll 1
                for (int i = 0; i < LANES; i++)
                    c[i] = _mm256_add_epi8(super_signed(ty, block[i], j), _mm256_set1_epi8(32));
                transpose_8x8(c);
                store_steps(panel + j * k_panel_sub(PN_Q6_K), v, c, PANEL_STEPS);
            }
        }
    }
}

/* ---- the table entry --------------------------------------------------------------------------------------------- */

/* The functions of a type described by the constant `form`; panel_kind is s16 or u6. */
#define PN_SUPER_ROWS(type, form) \
    static void type##_dequant(const uint8_t *w, float *out, int64_t n) { super_dequant(&form, w, out, n); } \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        super_dot8(&form, w, stride, x, t, out, os); \
    } \
    PN_DOT1_FROM_DOT8(type)

#define PN_SUPER_FUNCTIONS(type, form, panel_kind) \
    PN_SUPER_ROWS(type, form) \
    static void type##_unpack(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        super_unpack_##panel_kind(&form, w, row_bytes, n_rows, n, panel); \
    }

#define PN_SUPER_SET_ROWS(k, id, prefix) (PN_AVX2_SET(k, id, prefix), (k)->type[id].dequant = prefix##_dequant)

#define PN_SUPER_SET(k, id, prefix) (PN_SUPER_SET_ROWS(k, id, prefix), (k)->type[id].unpack = prefix##_unpack)

#endif
