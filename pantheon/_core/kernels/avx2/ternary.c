/* Ternary rows: two-bit codes are masked out of a vector and multiplied as unsigned bytes, and the sum of the input's
 * codes is taken off once. 16-bit sums take at most 3 * 127 * 2 = 762 a step and lane, so 32 steps fit. */
#include "x86/rows8.h"

enum { STEPS = 32 };

PN_INLINE __m256i codes_at(__m256i bytes, int shift)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(3));
}

PN_INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i q)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, q));
}

PN_INLINE __m256i widened(__m256i total, __m256i part)
{
    return _mm256_add_epi32(total, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
}

PN_INLINE int32_t sum_of(__m256i v)
{
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

static void t2_rows_dot1(const uint8_t *row, const pn_act *x, int t, float *out)
{
    const int8_t *q = x->q + (size_t)t * x->n;
    const int whole = x->n / 32 * 32;
    __m256i t0 = _mm256_setzero_si256(), t1 = t0, t2 = t0, t3 = t0;
    for (int i = 0; i < whole;) {
        const int end = whole - i > 32 * STEPS ? i + 32 * STEPS : whole;
        __m256i p0 = _mm256_setzero_si256(), p1 = p0, p2 = p0, p3 = p0;
        for (; i < end; i += 32) {
            __m256i w = load256(row + i), v = load256(q + i);
            p0 = add_products(p0, codes_at(w, 0), v);
            p1 = add_products(p1, codes_at(w, 2), v);
            p2 = add_products(p2, codes_at(w, 4), v);
            p3 = add_products(p3, codes_at(w, 6), v);
        }
        t0 = widened(t0, p0);
        t1 = widened(t1, p1);
        t2 = widened(t2, p2);
        t3 = widened(t3, p3);
    }
    int32_t sum[4] = {sum_of(t0), sum_of(t1), sum_of(t2), sum_of(t3)};
    for (int c = whole; c < x->n; c++)
        for (int k = 0; k < 4; k++)
            sum[k] += (row[c] >> 2 * k & 3) * q[c];
    for (int k = 0; k < 4; k++)
        out[k] = (float)(sum[k] - x->bsum[t]);
}

static void i2_s_dot1(const uint8_t *row, const pn_act *x, int t, float *out)
{
    const int8_t *q = x->q + (size_t)t * x->n;
    const int n_groups = x->n / 128;
    __m256i total = _mm256_setzero_si256();
    for (int g = 0; g < n_groups;) {
        const int end = n_groups - g > STEPS / 4 ? g + STEPS / 4 : n_groups;
        __m256i part = _mm256_setzero_si256();
        for (; g < end; g++) {
            __m256i w = load256(row + 32 * g);
            part = add_products(part, codes_at(w, 6), load256(q + 128 * g));
            part = add_products(part, codes_at(w, 4), load256(q + 128 * g + 32));
            part = add_products(part, codes_at(w, 2), load256(q + 128 * g + 64));
            part = add_products(part, codes_at(w, 0), load256(q + 128 * g + 96));
        }
        total = widened(total, part);
    }
    *out = (float)(sum_of(total) - x->bsum[t]);
}

static void i2_s_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    for (int r = 0; r < 8; r++)
        i2_s_dot1(w + r * stride, x, t, out + r * os);
}

void pn_avx2_ternary(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_I2_S, i2_s);
    k->type[PN_T2_ROWS].dot1 = t2_rows_dot1;
}
