/* ref/deltanet.c in 8-wide registers: the same operations in the same order, so the same bits. */
#include <math.h>

#include "kernels.h"
#include "x86/exp.h"
#include "x86/lanes.h"

static void sigmoid_mul(float *x, const float *gate, int n)
{
    int i = 0;
    for (; i + PN_LANES <= n; i += PN_LANES)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), pn_sigmoid_avx2(_mm256_loadu_ps(gate + i))));
    if (i < n) {
        __m256i mask = pn_lanes_mask(n - i);
        __m256 s = pn_sigmoid_avx2(_mm256_maskload_ps(gate + i, mask));
        _mm256_maskstore_ps(x + i, mask, _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), s));
    }
}

static void l2_norm(const float *x, float eps, float scale, int n, float *y)
{
    int whole = n / PN_LANES * PN_LANES;
    __m256i mask = pn_lanes_mask(n - whole);
    __m256 last = _mm256_maskload_ps(x + whole, mask), sum = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += PN_LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    sum = _mm256_fmadd_ps(last, last, sum);
    __m256 factor = _mm256_set1_ps(scale / sqrtf(pn_lanes_sum_avx2(sum) + eps));
    for (int i = 0; i < whole; i += PN_LANES)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    _mm256_maskstore_ps(y + whole, mask, _mm256_mul_ps(last, factor));
}

/* The 4 weights of channel c in the low half, those of channel c + 4 in the high one. */
static inline __m256 taps_of(const float *w, int c)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(w + 4 * c)), _mm_loadu_ps(w + 4 * c + 16), 1);
}

/* 8 channels from c on, all of the usual 4 taps */
static inline __m256 conv_4taps(const float *w, const float *const *rows, int c)
{
    __m256 a = taps_of(w, c), b = taps_of(w, c + 1), d = taps_of(w, c + 2), e = taps_of(w, c + 3);
    __m256 ab_lo = _mm256_unpacklo_ps(a, b), ab_hi = _mm256_unpackhi_ps(a, b);
    __m256 de_lo = _mm256_unpacklo_ps(d, e), de_hi = _mm256_unpackhi_ps(d, e);
    __m256 sum = _mm256_setzero_ps();
    sum = _mm256_fmadd_ps(_mm256_shuffle_ps(ab_lo, de_lo, 0x44), _mm256_loadu_ps(rows[0] + c), sum);
    sum = _mm256_fmadd_ps(_mm256_shuffle_ps(ab_lo, de_lo, 0xee), _mm256_loadu_ps(rows[1] + c), sum);
    sum = _mm256_fmadd_ps(_mm256_shuffle_ps(ab_hi, de_hi, 0x44), _mm256_loadu_ps(rows[2] + c), sum);
    return _mm256_fmadd_ps(_mm256_shuffle_ps(ab_hi, de_hi, 0xee), _mm256_loadu_ps(rows[3] + c), sum);
}

static void conv_silu(const float *w, const float *const *rows, int taps, int n, float *y)
{
    int c = 0;
    for (; taps == 4 && c + PN_LANES <= n; c += PN_LANES) {
        __m256 sum = conv_4taps(w, rows, c);
        _mm256_storeu_ps(y + c, _mm256_mul_ps(sum, pn_sigmoid_avx2(sum)));
    }
    for (; c < n; c++) {
        float sum = 0.0f;
        for (int j = 0; j < taps; j++)
            sum = fmaf(w[c * taps + j], rows[j][c], sum);
        y[c] = sum * pn_sigmoid(sum);
    }
}

#define LOAD(p) (whole ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, mask))
#define STORE(p, v) (whole ? _mm256_storeu_ps(p, v) : _mm256_maskstore_ps(p, mask, v))

/* One token of n_vec registers of columns that start at s; a row is `stride` long. Four registers keep the loop over the
 * rows short of its latency, and their group of the state within the first cache. */
static inline __attribute__((always_inline)) void columns(float *s, int stride, const float *q, const float *k,
                                                          const float *v, float decay, float rate, int dk, float *o,
                                                          const int n_vec, const int whole, __m256i mask)
{
    __m256 delta[4], out[4], keep = _mm256_set1_ps(decay);
    for (int j = 0; j < n_vec; j++)
        delta[j] = out[j] = _mm256_setzero_ps();
    for (int i = 0; i < dk; i++) {
        __m256 ki = _mm256_set1_ps(k[i]);
        for (int j = 0; j < n_vec; j++)
            delta[j] = _mm256_fmadd_ps(LOAD(s + (size_t)i * stride + 8 * j), ki, delta[j]);
    }
    for (int j = 0; j < n_vec; j++) {
        delta[j] = _mm256_fnmadd_ps(keep, delta[j], LOAD(v + 8 * j));
        delta[j] = _mm256_mul_ps(delta[j], _mm256_set1_ps(rate));
    }
    for (int i = 0; i < dk; i++) {
        __m256 ki = _mm256_set1_ps(k[i]), qi = _mm256_set1_ps(q[i]);
        float *row = s + (size_t)i * stride;
        for (int j = 0; j < n_vec; j++) {
            __m256 next = _mm256_fmadd_ps(ki, delta[j], _mm256_mul_ps(keep, LOAD(row + 8 * j)));
            STORE(row + 8 * j, next);
            out[j] = _mm256_fmadd_ps(next, qi, out[j]);
        }
    }
    for (int j = 0; j < n_vec; j++)
        STORE(o + 8 * j, out[j]);
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay, float rate, int dk,
                       int dv, float *o)
{
    const __m256i all = _mm256_set1_epi32(-1);
    int c0 = 0;
    for (; c0 + PN_DELTA_COLUMNS <= dv; c0 += PN_DELTA_COLUMNS)
        columns(state + (size_t)c0 * dk, PN_DELTA_COLUMNS, q, k, v + c0, decay, rate, dk, o + c0, 4, 1, all);
    float *group = state + (size_t)c0 * dk;
    int n = dv - c0, c = 0;
    for (; c + PN_LANES <= n; c += PN_LANES)
        columns(group + c, n, q, k, v + c0 + c, decay, rate, dk, o + c0 + c, 1, 1, all);
    if (c < n)
        columns(group + c, n, q, k, v + c0 + c, decay, rate, dk, o + c0 + c, 1, 0, pn_lanes_mask(n - c));
}

void pn_avx2_deltanet(pn_kernels *k)
{
    k->sigmoid_mul = sigmoid_mul;
    k->l2_norm = l2_norm;
    k->conv_silu = conv_silu;
    k->delta_step = delta_step;
}
