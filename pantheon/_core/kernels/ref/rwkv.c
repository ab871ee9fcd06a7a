/* RWKV-7: one head of one token. The definition.
 *
 * A head's state maps 64 keys to 64 values; it is kept as [key][value], so that the recurrence runs over values side by
 * side and over keys in order.
 */
#include <math.h>
#include <string.h>

#include "exp.h"
#include "kernels.h"
#include "lanes.h"
#include "rwkv.h"

enum { N = PN_RWKV_HEAD };

static float dot(const float *a, const float *b)
{
    float lane[PN_LANES] = {0};
    for (int i = 0; i < N; i++)
        lane[i % PN_LANES] = fmaf(a[i], b[i], lane[i % PN_LANES]);
    return pn_lanes_sum(lane);
}

/* y = S r after S <- S diag(w) + (S -kk) (kk a)^T + v k^T */
static void recur(float *state, const float *r, const float *w, const float *k, const float *v, const float *kk,
                  const float *a, float *y)
{
    float removed[N] = {0};
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            removed[i] = fmaf(state[j * N + i], -kk[j], removed[i]);
    memset(y, 0, N * sizeof *y);
    for (int j = 0; j < N; j++) {
        const float b = kk[j] * a[j];
        float *row = state + j * N;
        for (int i = 0; i < N; i++) {
            row[i] = fmaf(row[i], w[j], fmaf(removed[i], b, v[i] * k[j]));
            y[i] = fmaf(row[i], r[j], y[i]);
        }
    }
}

static void rwkv7_head(const pn_rwkv7_step *p)
{
    float w[N], a[N], k[N], v[N], kk[N], y[N];
    for (int i = 0; i < N; i++) {
        w[i] = pn_exp(PN_RWKV_DECAY * pn_sigmoid(p->w0[i] + p->w[i]));
        a[i] = pn_sigmoid(p->a0[i] + p->a[i]);
        kk[i] = p->k[i] * p->k_k[i];
        k[i] = p->k[i] * fmaf(a[i] - 1.0f, p->k_a[i], 1.0f);
        v[i] = p->v[i];
        if (p->mix)
            v[i] = fmaf(p->v_first[i] - v[i], pn_sigmoid(p->v0[i] + p->mix[i]), v[i]);
    }
    float inv = 1.0f / pn_max(sqrtf(dot(kk, kk)), PN_RWKV_TINY);
    for (int i = 0; i < N; i++)
        kk[i] *= inv;
    recur(p->state, p->r, w, k, v, kk, a, y);

    float lane[PN_LANES] = {0};
    for (int i = 0; i < N; i++)
        lane[i % PN_LANES] += y[i];
    float mean = pn_lanes_sum(lane) / (float)N;
    for (int i = 0; i < N; i++)
        y[i] -= mean;
    float scale = 1.0f / sqrtf(dot(y, y) / (float)N + PN_RWKV_NORM_EPS);
    memset(lane, 0, sizeof lane);
    for (int i = 0; i < N; i++)
        lane[i % PN_LANES] = fmaf(p->r[i] * k[i], p->r_k[i], lane[i % PN_LANES]);
    float bonus = pn_lanes_sum(lane);
    for (int i = 0; i < N; i++) {
        float normed = fmaf(y[i] * scale, p->ln_w[i], p->ln_b[i]);
        p->y[i] = fmaf(bonus, v[i], normed) * p->g[i];
    }
    if (p->k_out)
        memcpy(p->k_out, k, sizeof k);
    if (p->v_out)
        memcpy(p->v_out, v, sizeof v);
}

static float rwkv7_loss(const float *state, const float *k, const float *v)
{
    float lane[PN_LANES] = {0};
    for (int j = 0; j < N; j++) {
        float d = v[j] - dot(state + j * N, k);
        lane[j % PN_LANES] = fmaf(d, d, lane[j % PN_LANES]);
    }
    return pn_lanes_sum(lane);
}

void pn_ref_rwkv(pn_kernels *k)
{
    k->rwkv7_head = rwkv7_head;
    k->rwkv7_loss = rwkv7_loss;
}
