/* ref/rwkv.c in 8-wide registers: the same operations in the same order, so the same bits. */
#include <math.h>

#include "for_lanes.h"
#include "kernels.h"
#include "rwkv.h"
#include "x86/exp.h"

enum { N = PN_RWKV_HEAD, V = N / PN_LANES };

#define AT(p, g) _mm256_loadu_ps((p) + (g) * PN_LANES)

static inline float dot(const __m256 a[V], const __m256 b[V])
{
    __m256 sum = _mm256_setzero_ps();
    for (int g = 0; g < V; g++)
        sum = _mm256_fmadd_ps(a[g], b[g], sum);
    return pn_lanes_sum_avx2(sum);
}

/* Four registers of values at a time: with their running sums they and the factors of a key fit the register file. */
static inline void recur(float *state, const float *r, const float *w, const float *k, const __m256 v[V],
                         const float *kk, const float *a, __m256 y[V])
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int part = 0; part < V; part += 4) {
        __m256 removed[4], out[4];
        #pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            removed[g] = out[g] = _mm256_setzero_ps();
        for (int j = 0; j < N; j++) {
            const __m256 minus_kk = _mm256_xor_ps(_mm256_broadcast_ss(kk + j), sign);
            #pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                removed[g] = _mm256_fmadd_ps(AT(state + j * N, part + g), minus_kk, removed[g]);
        }
        for (int j = 0; j < N; j++) {
            const __m256 wj = _mm256_broadcast_ss(w + j), kj = _mm256_broadcast_ss(k + j);
            const __m256 bj = _mm256_mul_ps(_mm256_broadcast_ss(kk + j), _mm256_broadcast_ss(a + j));
            const __m256 rj = _mm256_broadcast_ss(r + j);
            #pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                __m256 s = _mm256_fmadd_ps(removed[g], bj, _mm256_mul_ps(v[part + g], kj));
                s = _mm256_fmadd_ps(AT(state + j * N, part + g), wj, s);
                _mm256_storeu_ps(state + j * N + (part + g) * PN_LANES, s);
                out[g] = _mm256_fmadd_ps(s, rj, out[g]);
            }
        }
        #pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            y[part + g] = out[g];
    }
}

static void rwkv7_head(const pn_rwkv7_step *p)
{
    const __m256 one = _mm256_set1_ps(1.0f), decay = _mm256_set1_ps(PN_RWKV_DECAY);
    float w[N] __attribute__((aligned(32))), a[N] __attribute__((aligned(32)));
    float k[N] __attribute__((aligned(32))), kk[N] __attribute__((aligned(32)));
    __m256 v[V], y[V], sum = _mm256_setzero_ps();
    for (int g = 0; g < V; g++) {
        __m256 kg = AT(p->k, g), ag = pn_sigmoid_avx2(_mm256_add_ps(AT(p->a0, g), AT(p->a, g)));
        __m256 wg = pn_sigmoid_avx2(_mm256_add_ps(AT(p->w0, g), AT(p->w, g)));
        __m256 kkg = _mm256_mul_ps(kg, AT(p->k_k, g));
        _mm256_store_ps(w + g * PN_LANES, pn_exp_avx2(_mm256_mul_ps(decay, wg)));
        _mm256_store_ps(a + g * PN_LANES, ag);
        _mm256_store_ps(kk + g * PN_LANES, kkg);
        _mm256_store_ps(k + g * PN_LANES,
                        _mm256_mul_ps(kg, _mm256_fmadd_ps(_mm256_sub_ps(ag, one), AT(p->k_a, g), one)));
        sum = _mm256_fmadd_ps(kkg, kkg, sum);
        v[g] = AT(p->v, g);
        if (p->mix)
            v[g] = _mm256_fmadd_ps(_mm256_sub_ps(AT(p->v_first, g), v[g]),
                                   pn_sigmoid_avx2(_mm256_add_ps(AT(p->v0, g), AT(p->mix, g))), v[g]);
    }
    const __m256 inv = _mm256_set1_ps(1.0f / pn_max(sqrtf(pn_lanes_sum_avx2(sum)), PN_RWKV_TINY));
    for (int g = 0; g < V; g++)
        _mm256_store_ps(kk + g * PN_LANES, _mm256_mul_ps(AT(kk, g), inv));
    recur(p->state, p->r, w, k, v, kk, a, y);

    sum = _mm256_setzero_ps();
    for (int g = 0; g < V; g++)
        sum = _mm256_add_ps(sum, y[g]);
    const __m256 mean = _mm256_set1_ps(pn_lanes_sum_avx2(sum) / (float)N);
    for (int g = 0; g < V; g++)
        y[g] = _mm256_sub_ps(y[g], mean);
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf(dot(y, y) / (float)N + PN_RWKV_NORM_EPS));
    sum = _mm256_setzero_ps();
    for (int g = 0; g < V; g++)
        sum = _mm256_fmadd_ps(_mm256_mul_ps(AT(p->r, g), AT(k, g)), AT(p->r_k, g), sum);
    const __m256 bonus = _mm256_set1_ps(pn_lanes_sum_avx2(sum));
    for (int g = 0; g < V; g++) {
        __m256 normed = _mm256_fmadd_ps(_mm256_mul_ps(y[g], scale), AT(p->ln_w, g), AT(p->ln_b, g));
        _mm256_storeu_ps(p->y + g * PN_LANES, _mm256_mul_ps(_mm256_fmadd_ps(bonus, v[g], normed), AT(p->g, g)));
        if (p->k_out)
            _mm256_storeu_ps(p->k_out + g * PN_LANES, AT(k, g));
        if (p->v_out)
            _mm256_storeu_ps(p->v_out + g * PN_LANES, v[g]);
    }
}

static float rwkv7_loss(const float *state, const float *k, const float *v)
{
    __m256 kv[V], sum = _mm256_setzero_ps();
    for (int g = 0; g < V; g++)
        kv[g] = AT(k, g);
    for (int j = 0; j < N; j += PN_LANES) {
        float restored[PN_LANES];
        for (int jj = 0; jj < PN_LANES; jj++) {
            __m256 row[V];
            for (int g = 0; g < V; g++)
                row[g] = AT(state + (j + jj) * N, g);
            restored[jj] = dot(row, kv);
        }
        __m256 d = _mm256_sub_ps(_mm256_loadu_ps(v + j), _mm256_loadu_ps(restored));
        sum = _mm256_fmadd_ps(d, d, sum);
    }
    return pn_lanes_sum_avx2(sum);
}

void pn_avx2_rwkv(pn_kernels *k)
{
    k->rwkv7_head = rwkv7_head;
    k->rwkv7_loss = rwkv7_loss;
}
