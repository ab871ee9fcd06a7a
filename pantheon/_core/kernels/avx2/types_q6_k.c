/* Q6_K: sixteen groups of 16 codes with signed 8-bit scales. One row a vector; the offset of 32 is taken off through
 * the sums of the activations. */
#include "rows8.h"

/* Scales as the sums need them: even groups in the low half, odd groups in the high half, because 32 codes in one
 * vector are two groups. Scale j of the halves then belongs to groups 2j and 2j + 1. */
PN_INLINE __m256i even_odd_scales(const uint8_t *sc)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load128(sc), order));
}

PN_INLINE __m256i even_odd_sums(const int16_t *sum)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load256(sum), order), 0xD8);
}

/* 16-bit scale j of each half to all its lanes */
#define SCALE(sc, j) _mm256_shuffle_epi8(sc, _mm256_set1_epi16(0x0100 + 0x0202 * (j)))

/* Eight partial sums of scale * (code - 32) * activation of one block. */
PN_INLINE __m256i q6_k_sums(const uint8_t *p, const int8_t *x, __m256i xsum)
{
    const __m256i low4 = _mm256_set1_epi8(15), high2 = _mm256_set1_epi8(0x30);
    __m256i sc = even_odd_scales(p + 192);
    __m256i s = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(_mm256_madd_epi16(sc, xsum), 5));
#pragma GCC unroll 2
    for (int n = 0; n < 2; n++, x += 128) {
        __m256i a = load256(p + 64 * n), b = load256(p + 64 * n + 32), h = load256(p + 128 + 32 * n);
        __m256i q0 = _mm256_or_si256(_mm256_and_si256(a, low4), _mm256_and_si256(_mm256_slli_epi16(h, 4), high2));
        __m256i q1 = _mm256_or_si256(_mm256_and_si256(b, low4), _mm256_and_si256(_mm256_slli_epi16(h, 2), high2));
        __m256i q2 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 4), low4), _mm256_and_si256(h, high2));
        __m256i q3 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), low4),
                                     _mm256_and_si256(_mm256_srli_epi16(h, 2), high2));
        __m256i s0 = _mm256_madd_epi16(_mm256_maddubs_epi16(q0, load256(x)), SCALE(sc, 4 * n));
        __m256i s1 = _mm256_madd_epi16(_mm256_maddubs_epi16(q1, load256(x + 32)), SCALE(sc, 4 * n + 1));
        __m256i s2 = _mm256_madd_epi16(_mm256_maddubs_epi16(q2, load256(x + 64)), SCALE(sc, 4 * n + 2));
        __m256i s3 = _mm256_madd_epi16(_mm256_maddubs_epi16(q3, load256(x + 96)), SCALE(sc, 4 * n + 3));
        s = _mm256_add_epi32(s, _mm256_add_epi32(_mm256_add_epi32(s0, s1), _mm256_add_epi32(s2, s3)));
    }
    return s;
}

static void q6_k_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 256;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int16_t *xsum = x->sum + (size_t)t * n_blocks * 16;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 210, xq += 256, xsum += 16) {
        const __m256i sums = even_odd_sums(xsum);
        __m256i s[8];
#pragma GCC unroll 1
        for (int r = 0; r < 8; r++)
            s[r] = q6_k_sums(w + r * stride, xq, sums);
        __m256 d = _mm256_mul_ps(load_scales(w + 208, stride), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q6_k)

void pn_avx2_types_q6_k(pn_kernels *k) { PN_AVX2_SET(k, PN_Q6_K, q6_k); }
