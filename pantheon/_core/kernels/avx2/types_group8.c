/* int8 with one scale per 32 weights and inputs of 16 bits: ref/types_group8.c, eight rows at once. */
#include "x86/rows8.h"

enum { SIZE = 32, BYTES = 4 + SIZE };

PN_INLINE __m256i codes16(const uint8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }

static void group8_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / SIZE;
    const int16_t *xq = x->wide + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += BYTES, xq += SIZE) {
        const __m256i x0 = load256(xq), x1 = load256(xq + 16);
        float scale[8];
        __m256i s[8];
        for (int r = 0; r < 8; r++) {
            const uint8_t *row = w + r * stride;
            scale[r] = pn_bits_to_f32(pn_load32(row));
            s[r] = _mm256_add_epi32(_mm256_madd_epi16(codes16(row + 4), x0), _mm256_madd_epi16(codes16(row + 20), x1));
        }
        const __m256 d = _mm256_mul_ps(_mm256_loadu_ps(scale), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
    }
    store8(out, os, acc);
}

PN_DOT1_FROM_DOT8(group8)

void pn_avx2_types_group8(pn_kernels *k)
{
    k->group8.dot8 = group8_dot8;
    k->group8.dot1 = group8_dot1;
}
