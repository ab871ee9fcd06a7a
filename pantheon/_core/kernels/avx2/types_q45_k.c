/* Q4_K and Q5_K: eight groups of 32 codes, each with a 6-bit scale and minimum. */
#include "x86/rows8.h"

/* The 6-bit pairs of two rows: per half, 8 bytes of scales, then 8 of minimums. Reads 16 bytes where the pairs take
 * 12; the other 4 are the block's own. */
PN_INLINE __m256i k4_scales(const uint8_t *low, const uint8_t *high)
{
    __m256i v = pair128(low, high);
    __m256i first = _mm256_and_si256(v, _mm256_set1_epi32(0x3f3f3f3f));
    __m256i top2 = _mm256_and_si256(_mm256_srli_epi32(v, 2), _mm256_set1_epi32(0x30303030));
    __m256i low4 = _mm256_srlv_epi32(_mm256_shuffle_epi32(v, 0xAA), _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
    low4 = _mm256_and_si256(low4, _mm256_set1_epi32(0x0f0f0f0f));
    return _mm256_unpacklo_epi32(first, _mm256_or_si256(top2, low4));
}

/* Bit j of every byte of h, moved to bit 4. */
PN_INLINE __m256i q5_bit(__m256i h, int j)
{
    __m256i moved = j < 4 ? _mm256_slli_epi16(h, 4 - j) : _mm256_srli_epi16(h, j - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

/* Four 32-bit partial sums a row of scale * code * activation over one block; p and p4 are the blocks of rows r and
 * r + 4. */
PN_INLINE __m256i q45_k_sums(const uint8_t *p, const uint8_t *p4, int five, __m256i scales16, const int8_t *x)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    const int qs = five ? 48 : 16;
    __m256i g[8], h0 = _mm256_setzero_si256(), h1 = h0;
    if (five) {
        h0 = pair128(p + 16, p4 + 16);
        h1 = pair128(p + 32, p4 + 32);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) { /* 64 codes: group 2c in the low nibbles, 2c + 1 in the high ones */
        const uint8_t *w = p + qs + 32 * c, *w4 = p4 + qs + 32 * c;
        __m256i u = pair128(w, w4), v = pair128(w + 16, w4 + 16);
        __m256i ul = _mm256_and_si256(u, low4), uh = _mm256_and_si256(_mm256_srli_epi16(u, 4), low4);
        __m256i vl = _mm256_and_si256(v, low4), vh = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
        if (five) {
            ul = _mm256_or_si256(ul, q5_bit(h0, 2 * c));
            vl = _mm256_or_si256(vl, q5_bit(h1, 2 * c));
            uh = _mm256_or_si256(uh, q5_bit(h0, 2 * c + 1));
            vh = _mm256_or_si256(vh, q5_bit(h1, 2 * c + 1));
        }
        const int8_t *xc = x + 64 * c;
        g[2 * c] = _mm256_add_epi16(_mm256_maddubs_epi16(ul, twice128(xc)),
                                    _mm256_maddubs_epi16(vl, twice128(xc + 16)));
        g[2 * c + 1] = _mm256_add_epi16(_mm256_maddubs_epi16(uh, twice128(xc + 32)),
                                        _mm256_maddubs_epi16(vh, twice128(xc + 48)));
    }
    /* Groups in 32-bit lanes of two 16-bit sums: 0 1 0 1, 2 3 2 3, ... */
    __m256i g01 = fold_epi16(g[0], g[1]), g23 = fold_epi16(g[2], g[3]);
    __m256i g45 = fold_epi16(g[4], g[5]), g67 = fold_epi16(g[6], g[7]);
    __m256i s0 = _mm256_unpacklo_epi16(scales16, scales16), s1 = _mm256_unpackhi_epi16(scales16, scales16);
    if (!five) /* 16 products fit 16 bits: one more level before the scales */
        return _mm256_add_epi32(_mm256_madd_epi16(_mm256_add_epi16(LAST_LEVEL(g01, g23)), s0),
                                _mm256_madd_epi16(_mm256_add_epi16(LAST_LEVEL(g45, g67)), s1));
    __m256i a = _mm256_madd_epi16(g01, _mm256_shuffle_epi32(s0, 0x44));
    __m256i b = _mm256_madd_epi16(g23, _mm256_shuffle_epi32(s0, 0xEE));
    __m256i c = _mm256_madd_epi16(g45, _mm256_shuffle_epi32(s1, 0x44));
    __m256i d = _mm256_madd_epi16(g67, _mm256_shuffle_epi32(s1, 0xEE));
    return _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
}

PN_INLINE void q45_k_dot8(int five, const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const __m256i zero = _mm256_setzero_si256();
    const int n_blocks = x->n / 256, block_bytes = five ? 176 : 144;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int16_t *xsum = x->sum + (size_t)t * n_blocks * 16;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += block_bytes, xq += 256, xsum += 16) {
        const __m256i sum32 = _mm256_broadcastsi128_si256(_mm_hadd_epi16(load128(xsum), load128(xsum + 8)));
        __m256i s[4], m[4];
#pragma GCC unroll 1
        for (int r = 0; r < 4; r++) {
            const uint8_t *p = w + r * stride, *p4 = w + (r + 4) * stride;
            __m256i scales = k4_scales(p + 4, p4 + 4);
            m[r] = _mm256_madd_epi16(_mm256_unpackhi_epi8(scales, zero), sum32);
            s[r] = q45_k_sums(p, p4, five, _mm256_unpacklo_epi8(scales, zero), xq);
        }
        __m256i isum = tree_epi32(s), msum = tree_epi32(m);
        __m256 d, dmin, dx = _mm256_broadcast_ss(xd + b);
        load_scales_mins(w, stride, &d, &dmin);
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(isum), acc);
        acc = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_cvtepi32_ps(msum), acc);
    }
    store8(out, os, acc);
}

static void q4_k_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    q45_k_dot8(0, w, stride, x, t, out, os);
}
PN_DOT1_FROM_DOT8(q4_k)

static void q5_k_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    q45_k_dot8(1, w, stride, x, t, out, os);
}
PN_DOT1_FROM_DOT8(q5_k)

void pn_avx2_types_q45_k(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_Q4_K, q4_k);
    PN_AVX2_SET(k, PN_Q5_K, q5_k);
}
