/* int8 with one scale per row: ref/types_row8.c, eight rows at once. */
#include "rows8.h"

static void row8_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const __m256i one = _mm256_set1_epi16(1);
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const uint8_t *codes = w + 4;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, codes += 32) {
        const __m256i xv = load256(xq + 32 * b);
        __m256i s[8];
        for (int r = 0; r < 8; r++) {
            __m256i v = load256(codes + r * stride);
            s[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(xv, v)), one);
        }
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(xd + b), _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
    }
    float scale[8];
    for (int r = 0; r < 8; r++)
        scale[r] = pn_bits_to_f32(pn_load32(w + r * stride));
    store8(out, os, _mm256_mul_ps(_mm256_loadu_ps(scale), acc));
}

PN_DOT1_FROM_DOT8(row8)

void pn_avx2_types_row8(pn_kernels *k)
{
    k->row8.dot8 = row8_dot8;
    k->row8.dot1 = row8_dot1;
    k->row8.level = "avx2";
}
