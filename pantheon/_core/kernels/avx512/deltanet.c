/* The gated delta rule and its convolution (ref/deltanet.c) in 16-wide registers: the same operations in the same
 * order, so the same bits.
 */
#include <immintrin.h>

#include "kernels.h"
#include "x86/exp.h"

enum { LANES = 16, GROUP_VECS = PN_DELTA_COLUMNS / LANES, VECS = 2 * GROUP_VECS };

static void (*lower_step)(float *, const float *, const float *, const float *, float, float, int, int, float *);

static void (*lower_conv)(const float *, const float *const *, int, int, float *);

/* Tap j of 16 channels, of which z holds the 4 taps each. */
static inline __m512 tap_of(const __m512 *z, int j)
{
    const __m512i of = _mm512_add_epi32(_mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28),
                                        _mm512_set1_epi32(j));
    const __m512 low = _mm512_permutex2var_ps(z[0], of, z[1]), high = _mm512_permutex2var_ps(z[2], of, z[3]);
    return _mm512_mask_mov_ps(low, 0xff00, high);
}

static void conv_silu(const float *w, const float *const *rows, int taps, int n, float *y)
{
    int c = 0;
    for (; taps == 4 && c + LANES <= n; c += LANES) {
        const __m512 z[4] = {_mm512_loadu_ps(w + 4 * c), _mm512_loadu_ps(w + 4 * c + 16),
                             _mm512_loadu_ps(w + 4 * c + 32), _mm512_loadu_ps(w + 4 * c + 48)};
        __m512 sum = _mm512_setzero_ps();
        #pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum = _mm512_fmadd_ps(tap_of(z, j), _mm512_loadu_ps(rows[j] + c), sum);
        _mm512_storeu_ps(y + c, _mm512_mul_ps(sum, pn_sigmoid_avx512(sum)));
    }
    if (c == 0) {
        lower_conv(w, rows, taps, n, y);
    } else if (c < n) {
        const float *const rest[4] = {rows[0] + c, rows[1] + c, rows[2] + c, rows[3] + c};
        lower_conv(w + 4 * c, rest, 4, n - c, y + c);
    }
}

/* Two groups of columns at once: a column's sums wait for one another, so only more columns keep the multipliers busy.
 * The groups' states fit into the first cache together. Where vector j of row i of the two lies. */
static inline float *at(float *s, int dk, int i, int j)
{
    return s + (size_t)(j / GROUP_VECS * dk + i) * PN_DELTA_COLUMNS + j % GROUP_VECS * LANES;
}

static void two_groups(float *s, const float *q, const float *k, const float *v, float decay, float rate, int dk,
                       float *o)
{
    const __m512 keep = _mm512_set1_ps(decay), factor = _mm512_set1_ps(rate);
    __m512 delta[VECS], out[VECS];
    #pragma GCC unroll 4
    for (int j = 0; j < VECS; j++)
        delta[j] = out[j] = _mm512_setzero_ps();
    for (int i = 0; i < dk; i++) {
        const __m512 ki = _mm512_set1_ps(k[i]);
        #pragma GCC unroll 4
        for (int j = 0; j < VECS; j++)
            delta[j] = _mm512_fmadd_ps(_mm512_loadu_ps(at(s, dk, i, j)), ki, delta[j]);
    }
    #pragma GCC unroll 4
    for (int j = 0; j < VECS; j++)
        delta[j] = _mm512_mul_ps(_mm512_fnmadd_ps(keep, delta[j], _mm512_loadu_ps(v + LANES * j)), factor);
    for (int i = 0; i < dk; i++) {
        const __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
        #pragma GCC unroll 4
        for (int j = 0; j < VECS; j++) {
            float *p = at(s, dk, i, j);
            const __m512 next = _mm512_fmadd_ps(ki, delta[j], _mm512_mul_ps(keep, _mm512_loadu_ps(p)));
            _mm512_storeu_ps(p, next);
            out[j] = _mm512_fmadd_ps(next, qi, out[j]);
        }
    }
    #pragma GCC unroll 4
    for (int j = 0; j < VECS; j++)
        _mm512_storeu_ps(o + LANES * j, out[j]);
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay, float rate, int dk,
                       int dv, float *o)
{
    if (dv % (2 * PN_DELTA_COLUMNS)) { /* not whole pairs of groups */
        lower_step(state, q, k, v, decay, rate, dk, dv, o);
        return;
    }
    for (int c = 0; c < dv; c += 2 * PN_DELTA_COLUMNS)
        two_groups(state + (size_t)c * (size_t)dk, q, k, v + c, decay, rate, dk, o + c);
}

void pn_avx512_deltanet(pn_kernels *k)
{
    lower_conv = k->conv_silu;
    lower_step = k->delta_step;
    k->conv_silu = conv_silu;
    k->delta_step = delta_step;
}
