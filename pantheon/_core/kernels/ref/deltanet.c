/* The gated delta rule and its gates: the definition.
 *
 * Every column of a head's state is a recurrence of its own, and its sums run over the rows in order, so columns may be
 * worked on in any number at once. Exponentials are those of exp.h; a fused multiply-add is written as fmaf.
 */
#include <math.h>

#include "exp.h"
#include "kernels.h"
#include "lanes.h"

static void sigmoid_mul(float *x, const float *gate, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = x[i] * pn_sigmoid(gate[i]);
}

static void l2_norm(const float *x, float eps, float scale, int n, float *y)
{
    float lane[PN_LANES] = {0};
    for (int i = 0; i < n; i++)
        lane[i % PN_LANES] = fmaf(x[i], x[i], lane[i % PN_LANES]);
    float factor = scale / sqrtf(pn_lanes_sum(lane) + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

static void conv_silu(const float *w, const float *const *rows, int taps, int n, float *y)
{
    for (int c = 0; c < n; c++) {
        float sum = 0.0f;
        for (int j = 0; j < taps; j++)
            sum = fmaf(w[c * taps + j], rows[j][c], sum);
        y[c] = sum * pn_sigmoid(sum);
    }
}

/* log(1 + exp(x)); x itself where the rest is below half a unit in the last place */
static float softplus(float x)
{
    return x > 20.0f ? x : (x > 0.0f ? x : 0.0f) + log1pf(pn_exp(-fabsf(x)));
}

static void delta_gates(const float *alpha, const float *beta, const float *a, const float *dt, int n, float *decay,
                        float *rate)
{
    for (int h = 0; h < n; h++) {
        decay[h] = pn_exp(a[h] * softplus(alpha[h] + dt[h]));
        rate[h] = pn_sigmoid(beta[h]);
    }
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay, float rate, int dk,
                       int dv, float *o)
{
    for (int c0 = 0; c0 < dv; c0 += PN_DELTA_COLUMNS) {
        int n = dv - c0 < PN_DELTA_COLUMNS ? dv - c0 : PN_DELTA_COLUMNS;
        float delta[PN_DELTA_COLUMNS] = {0}, out[PN_DELTA_COLUMNS] = {0};
        float *group = state + (size_t)c0 * dk;
        for (int i = 0; i < dk; i++)
            for (int c = 0; c < n; c++)
                delta[c] = fmaf(group[i * n + c], k[i], delta[c]);
        for (int c = 0; c < n; c++)
            delta[c] = fmaf(-decay, delta[c], v[c0 + c]) * rate;
        for (int i = 0; i < dk; i++)
            for (int c = 0; c < n; c++) {
                group[i * n + c] = fmaf(k[i], delta[c], decay * group[i * n + c]);
                out[c] = fmaf(group[i * n + c], q[i], out[c]);
            }
        for (int c = 0; c < n; c++)
            o[c0 + c] = out[c];
    }
}

void pn_ref_deltanet(pn_kernels *k)
{
    k->sigmoid_mul = sigmoid_mul;
    k->l2_norm = l2_norm;
    k->conv_silu = conv_silu;
    k->delta_gates = delta_gates;
    k->delta_step = delta_step;
}
