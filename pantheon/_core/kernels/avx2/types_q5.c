/* Q5_0 and Q5_1. Eight products of a 5-bit code and an activation fit 16 bits (8 * 31 * 127 = 31496): the sums go to
 * 32 bits one tree level before the end. */
#include "x86/rows8.h"

/* Lane r: sum of unsigned code * activation of row r's block; qh and qs are where row 0 has its fifth bits and
 * nibbles. */
PN_INLINE __m256i q5_sums(const uint8_t *qh, const uint8_t *qs, size_t stride, const int8_t *x)
{
    const __m256i low4 = _mm256_set1_epi8(15), bit4 = _mm256_set1_epi8(16), one = _mm256_set1_epi16(1);
    /* The 32 fifth bits of a row as the dwords h, h << 4, ...: then bit i of element i stands at place 4 + i % 4 of
     * a byte. A byte shuffle puts that byte under element i, the mask keeps the bit, and a minimum makes 16 of 16,
     * 32, 64 and 128. */
    const __m256i up = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    const __m256i to_low = _mm256_setr_epi8(4, 4, 4, 4, 0, 0, 0, 0, 5, 5, 5, 5, 1, 1, 1, 1,
                                            4, 4, 4, 4, 0, 0, 0, 0, 5, 5, 5, 5, 1, 1, 1, 1);
    const __m256i to_high = _mm256_add_epi8(to_low, _mm256_set1_epi8(2));
    const __m256i place = _mm256_set1_epi32((int)0x80402010);
    const __m256i x0 = twice128(x), x1 = twice128(x + 16);
    __m256i s[4];
    for (int r = 0; r < 4; r++) {
        __m256i v = pair128(qs + r * stride, qs + (r + 4) * stride);
        __m256i h = _mm256_blend_epi32(_mm256_set1_epi32((int)pn_load32(qh + r * stride)),
                                       _mm256_set1_epi32((int)pn_load32(qh + (r + 4) * stride)), 0xF0);
        h = _mm256_sllv_epi32(h, up);
        __m256i h0 = _mm256_min_epu8(_mm256_and_si256(_mm256_shuffle_epi8(h, to_low), place), bit4);
        __m256i h1 = _mm256_min_epu8(_mm256_and_si256(_mm256_shuffle_epi8(h, to_high), place), bit4);
        __m256i lo = _mm256_or_si256(_mm256_and_si256(v, low4), h0);
        __m256i hi = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(v, 4), low4), h1);
        s[r] = _mm256_add_epi16(_mm256_maddubs_epi16(lo, x0), _mm256_maddubs_epi16(hi, x1));
    }
    __m256i ab = _mm256_madd_epi16(fold_epi16(s[0], s[1]), one), cd = _mm256_madd_epi16(fold_epi16(s[2], s[3]), one);
    return _mm256_add_epi32(LAST_LEVEL(ab, cd));
}

static void q5_0_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int32_t *xsum = x->bsum + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 22) {
        __m256i isum = q5_sums(w + 2, w + 6, stride, xq + 32 * b);
        isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(16 * xsum[b]));
        __m256 d = _mm256_mul_ps(load_scales_wide(w, stride), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q5_0)

/* Codes lowered by 16 and minimums raised by 16 * d, as ref defines it. */
static void q5_1_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks, *xs = x->s + (size_t)t * n_blocks;
    const int32_t *xsum = x->bsum + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 24) {
        __m256i isum = q5_sums(w + 4, w + 8, stride, xq + 32 * b);
        isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(16 * xsum[b]));
        __m256 d, m;
        load_scales_mins(w, stride, &d, &m);
        m = _mm256_fmadd_ps(_mm256_set1_ps(16), d, m);
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_broadcast_ss(xd + b)), _mm256_cvtepi32_ps(isum), acc);
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(xs + b), m, acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q5_1)

void pn_avx2_types_q5(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_Q5_0, q5_0);
    PN_AVX2_SET(k, PN_Q5_1, q5_1);
}
