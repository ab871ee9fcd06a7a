/* Q8_0: whole rows of 32 bytes. The multiply takes one unsigned operand: |w| times the activation with w's sign. */
#include "x86/rows8.h"

static void q8_0_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const __m256i one = _mm256_set1_epi16(1);
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 34) {
        const __m256i xv = load256(xq + 32 * b);
        __m256i s[8];
        for (int r = 0; r < 8; r++) {
            __m256i v = load256(w + 2 + r * stride);
            s[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(xv, v)), one);
        }
        __m256 d = _mm256_mul_ps(load_scales(w, stride), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(q8_0)

void pn_avx2_types_q8(pn_kernels *k) { PN_AVX2_SET(k, PN_Q8_0, q8_0); }
