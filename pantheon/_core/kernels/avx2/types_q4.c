/* Q4_0 and Q4_1. 16 products of a 4-bit code and an activation fit 16 bits (16 * 15 * 127 = 30480), so the sums of a
 * block stay in 16 bits until one last multiply-add by ones. */
#include "x86/rows8.h"

/* Lane r: sum of code * activation of row r's block, the 16 code bytes at qs + r * stride. */
PN_INLINE __m256i q4_sums(const uint8_t *qs, size_t stride, const int8_t *x)
{
    const __m256i low4 = _mm256_set1_epi8(15);
    const __m256i x0 = twice128(x), x1 = twice128(x + 16);
    __m256i s[4];
    for (int r = 0; r < 4; r++) {
        __m256i v = pair128(qs + r * stride, qs + (r + 4) * stride);
        __m256i lo = _mm256_and_si256(v, low4), hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
        s[r] = _mm256_add_epi16(_mm256_maddubs_epi16(lo, x0), _mm256_maddubs_epi16(hi, x1));
    }
    return _mm256_madd_epi16(tree_epi16(s), _mm256_set1_epi16(1));
}

static void q4_0_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int32_t *xsum = x->bsum + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 18) {
        __m256i isum = q4_sums(w + 2, stride, xq + 32 * b);
        isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(8 * xsum[b]));
        __m256 d = _mm256_mul_ps(load_scales(w, stride), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q4_0)

static void q4_1_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks, *xs = x->s + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 20) {
        __m256i isum = q4_sums(w + 4, stride, xq + 32 * b);
        __m256 d, m;
        load_scales_mins(w, stride, &d, &m);
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_broadcast_ss(xd + b)), _mm256_cvtepi32_ps(isum), acc);
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(xs + b), m, acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q4_1)

void pn_avx2_types_q4(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_Q4_0, q4_0);
    PN_AVX2_SET(k, PN_Q4_1, q4_1);
}
