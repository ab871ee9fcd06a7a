/* Quantising of activations and everything on float vectors that is not a weight product: the definition.
 *
 * Sums and maxima follow lanes.h, exponentials exp.h; a fused multiply-add is written as fmaf, and nothing else
 * is fused.
 */
#include <math.h>
#include <string.h>

#include "exp.h"
#include "kernels.h"
#include "lanes.h"

/* A block whose largest magnitude is below this is stored as zeros: 127 / amax would overflow soon after. */
#define AMAX_ZERO 0x1p-100f

/* Codes of one block of n elements (n at most 256); returns the scale. NaN and infinity give codes in [-127, 127]. */
static float quantize_block(const float *x, int n, int8_t *q)
{
    float amax = 0.0f;
    for (int i = 0; i < n; i++)
        amax = pn_max(fabsf(x[i]), amax);
    if (amax < AMAX_ZERO) {
        memset(q, 0, (size_t)n);
        return 0.0f;
    }
    float id = 127.0f / amax;
    for (int i = 0; i < n; i++) {
        float v = x[i] * id;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        q[i] = (int8_t)(int)((v + PN_EXP_SHIFT) - PN_EXP_SHIFT); /* round to nearest even */
    }
    return amax / 127.0f;
}

static int sum_codes(const int8_t *q, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

static void quantize_f32(pn_act *x, int t)
{
    (void)x; /* the products read x->f itself */
    (void)t;
}

static void quantize_q32(pn_act *x, int t)
{
    size_t n = (size_t)x->n, n_block = n / 32;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block, *s = x->s + t * n_block;
    int32_t *bsum = x->bsum + t * n_block;
    for (size_t b = 0; b < n_block; b++) {
        d[b] = quantize_block(f + b * 32, 32, q + b * 32);
        bsum[b] = sum_codes(q + b * 32, 32);
        s[b] = d[b] * (float)bsum[b];
    }
}

static void quantize_q256(pn_act *x, int t)
{
    size_t n = (size_t)x->n, n_block = n / 256;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block;
    int16_t *sum = x->sum + t * (n / 16);
    for (size_t b = 0; b < n_block; b++)
        d[b] = quantize_block(f + b * 256, 256, q + b * 256);
    for (size_t i = 0; i < n_block * 16; i++)
        sum[i] = (int16_t)sum_codes(q + i * 16, 16);
}

static void rms_norm(const float *x, const float *w, float eps, int n, float *y)
{
    float lane[PN_LANES] = {0};
    for (int i = 0; i < n; i++)
        lane[i % PN_LANES] = fmaf(x[i], x[i], lane[i % PN_LANES]);
    float inv = 1.0f / sqrtf(pn_lanes_sum(lane) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * inv * w[i];
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, int n, float *y)
{
    float lane[PN_LANES] = {0};
    for (int i = 0; i < n; i++)
        lane[i % PN_LANES] += x[i];
    float mean = pn_lanes_sum(lane) / (float)n;
    memset(lane, 0, sizeof lane);
    for (int i = 0; i < n; i++) {
        float c = x[i] - mean;
        lane[i % PN_LANES] = fmaf(c, c, lane[i % PN_LANES]);
    }
    float inv = 1.0f / sqrtf(pn_lanes_sum(lane) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = fmaf((x[i] - mean) * inv, w[i], b[i]);
}

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void scale_add(float *x, const float *y, float a, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

static void silu_mul(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        gate[i] = gate[i] * pn_sigmoid(gate[i]) * up[i];
}

/* x/2 * (1 + tanh(u)) = x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3) */
static void gelu_tanh(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float inner = fmaf(x[i] * x[i], 0.044715f * 1.5957691216f, 1.5957691216f);
        x[i] = x[i] * pn_sigmoid(x[i] * inner);
    }
}

static void softmax(float *x, int n)
{
    float lane[PN_LANES];
    for (int j = 0; j < PN_LANES; j++)
        lane[j] = -INFINITY;
    for (int i = 0; i < n; i++)
        lane[i % PN_LANES] = pn_max(x[i], lane[i % PN_LANES]);
    float max = pn_lanes_max(lane);
    memset(lane, 0, sizeof lane);
    for (int i = 0; i < n; i++) {
        x[i] = pn_exp(x[i] - max);
        lane[i % PN_LANES] += x[i];
    }
    float sum = pn_lanes_sum(lane);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

static inline void rotate(float *a, float *b, float c, float s)
{
    float x = *a, y = *b;
    *a = fmaf(x, c, -(y * s));
    *b = fmaf(y, c, x * s);
}

static void rope_norm(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim)
        for (int p = 0; p < n_pair; p++)
            rotate(x + 2 * p, x + 2 * p + 1, cs[2 * p], cs[2 * p + 1]);
}

static void rope_neox(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim)
        for (int p = 0; p < n_pair; p++)
            rotate(x + p, x + n_pair + p, cs[2 * p], cs[2 * p + 1]);
}

static void attn_finish(float *acc, float s, int head_dim)
{
    for (int d = 0; d < head_dim; d++)
        acc[d] /= s;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best] || (x[best] != x[best] && x[i] == x[i]))
            best = i;
    return best;
}

static void lerp(const float *a, const float *b, const float *t, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = fmaf(b[i] - a[i], t[i], a[i]);
}

static void vector_tanh(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = pn_tanh(x[i]);
}

static void sigmoid(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = pn_sigmoid(x[i]);
}

static void relu_sqr(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float v = pn_max(0.0f, x[i]); /* a NaN stays one */
        x[i] = v * v;
    }
}

void pn_ref_floats(pn_kernels *k)
{
    k->quantize[PN_ACT_F32] = quantize_f32;
    k->quantize[PN_ACT_Q32] = quantize_q32;
    k->quantize[PN_ACT_Q256] = quantize_q256;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->add = add;
    k->scale_add = scale_add;
    k->silu_mul = silu_mul;
    k->gelu_tanh = gelu_tanh;
    k->softmax = softmax;
    k->rope_norm = rope_norm;
    k->rope_neox = rope_neox;
    k->attn_finish = attn_finish;
    k->argmax = argmax;
    k->lerp = lerp;
    k->tanh = vector_tanh;
    k->sigmoid = sigmoid;
    k->relu_sqr = relu_sqr;
}
