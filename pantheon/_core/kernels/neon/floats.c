/* ref/floats.c in 4-wide registers: quantising of activations and everything on float vectors that is not a weight
 * product. Whole groups of 8 first; the rest as the definition writes it. argmax is the definition's own. */
#include "exp.h"

/* ---- quantising -------------------------------------------------------------------------------------------------- */

#define AMAX_ZERO 0x1p-100f

NEON_INLINE float32x4_t clamp_127(float32x4_t v)
{
    const float32x4_t high = vdupq_n_f32(127), low = vdupq_n_f32(-127);
    v = vbslq_f32(vcltq_f32(v, high), v, high); /* NaN becomes 127 */
    return vbslq_f32(vcgtq_f32(v, low), v, low);
}

NEON_INLINE int8x16_t codes16(const float *x, float id)
{
    int32x4_t q[4];
    for (int i = 0; i < 4; i++)
        q[i] = vcvtnq_s32_f32(clamp_127(vmulq_n_f32(vld1q_f32(x + 4 * i), id)));
    return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]))),
                       vmovn_s16(vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]))));
}

/* Codes of n elements (a multiple of 16) and the sum of every 16 of them; returns the scale. */
NEON_INLINE float quantize_block(const float *x, int n, int8_t *q, int16_t *sum)
{
    float32x4_t top = vdupq_n_f32(0);
    for (int i = 0; i < n; i += 4)
        top = max4(vabsq_f32(vld1q_f32(x + i)), top);
    const float amax = vmaxvq_f32(top);
    if (amax < AMAX_ZERO) {
        memset(q, 0, (size_t)n);
        memset(sum, 0, (size_t)n / 16 * sizeof *sum);
        return 0.0f;
    }
    const float id = 127.0f / amax;
    for (int i = 0; i < n; i += 16) {
        const int8x16_t v = codes16(x + i, id);
        vst1q_s8(q + i, v);
        sum[i / 16] = vaddlvq_s8(v);
    }
    return amax / 127.0f;
}

static void quantize_q32(pn_act *x, int t)
{
    const size_t n = (size_t)x->n, n_block = n / 32, at = (size_t)t * n_block;
    for (size_t b = 0; b < n_block; b++) {
        int16_t sum[2];
        const float d = quantize_block(x->f + t * n + b * 32, 32, x->q + t * n + b * 32, sum);
        x->d[at + b] = d;
        x->bsum[at + b] = sum[0] + sum[1];
        x->s[at + b] = d * (float)(sum[0] + sum[1]);
    }
}

static void quantize_q256(pn_act *x, int t)
{
    const size_t n = (size_t)x->n, n_block = n / 256;
    for (size_t b = 0; b < n_block; b++)
        x->d[t * n_block + b] = quantize_block(x->f + t * n + b * 256, 256, x->q + t * n + b * 256,
                                               x->sum + t * (n / 16) + b * 16);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* Lanes of the sum of squares of x - mean. */
NEON_INLINE float sum_of_squares(const float *x, float mean, int n)
{
    float lane[PN_LANES];
    f32x8 acc = f32x8_set(0);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        const f32x8 c = f32x8_sub(f32x8_load(x + i), f32x8_set(mean));
        acc = f32x8_fma(c, c, acc);
    }
    f32x8_store(lane, acc);
    for (; i < n; i++)
        lane[i % 8] = fmaf(x[i] - mean, x[i] - mean, lane[i % 8]);
    return pn_lanes_sum(lane);
}

static void rms_norm(const float *x, const float *w, float eps, int n, float *y)
{
    const float inv = 1.0f / sqrtf(sum_of_squares(x, 0, n) / (float)n + eps);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        f32x8_store(y + i, f32x8_mul(f32x8_mul(f32x8_load(x + i), f32x8_set(inv)), f32x8_load(w + i)));
    for (; i < n; i++)
        y[i] = x[i] * inv * w[i];
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, int n, float *y)
{
    float lane[PN_LANES];
    f32x8 sum = f32x8_set(0);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        sum = f32x8_add(sum, f32x8_load(x + i));
    f32x8_store(lane, sum);
    for (; i < n; i++)
        lane[i % 8] += x[i];
    const float mean = pn_lanes_sum(lane) / (float)n;
    const float inv = 1.0f / sqrtf(sum_of_squares(x, mean, n) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        const f32x8 c = f32x8_mul(f32x8_sub(f32x8_load(x + i), f32x8_set(mean)), f32x8_set(inv));
        f32x8_store(y + i, f32x8_fma(c, f32x8_load(w + i), f32x8_load(b + i)));
    }
    for (; i < n; i++)
        y[i] = fmaf((x[i] - mean) * inv, w[i], b[i]);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static void add(float *x, const float *y, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        f32x8_store(x + i, f32x8_add(f32x8_load(x + i), f32x8_load(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

static void scale_add(float *x, const float *y, float a, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        f32x8_store(x + i, f32x8_fma(f32x8_set(a), f32x8_load(y + i), f32x8_load(x + i)));
    for (; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

static void silu_mul(float *gate, const float *up, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t g = vld1q_f32(gate + i);
        vst1q_f32(gate + i, vmulq_f32(vmulq_f32(g, sigmoid4(g)), vld1q_f32(up + i)));
    }
    for (; i < n; i++)
        gate[i] = gate[i] * pn_sigmoid(gate[i]) * up[i];
}

static void gelu_tanh(float *x, int n)
{
    const float linear = 1.5957691216f, cubic = 0.044715f * 1.5957691216f;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t v = vld1q_f32(x + i);
        const float32x4_t inner = vfmaq_f32(vdupq_n_f32(linear), vmulq_f32(v, v), vdupq_n_f32(cubic));
        vst1q_f32(x + i, vmulq_f32(v, sigmoid4(vmulq_f32(v, inner))));
    }
    for (; i < n; i++)
        x[i] = x[i] * pn_sigmoid(x[i] * fmaf(x[i] * x[i], cubic, linear));
}

static void softmax(float *x, int n)
{
    float lane[PN_LANES];
    f32x8 top = f32x8_set(-INFINITY), sum = f32x8_set(0);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        top = f32x8_max(f32x8_load(x + i), top);
    f32x8_store(lane, top);
    for (; i < n; i++)
        lane[i % 8] = pn_max(x[i], lane[i % 8]);
    const float max = pn_lanes_max(lane);
    for (i = 0; i + 8 <= n; i += 8) {
        const f32x8 e = exp8(f32x8_sub(f32x8_load(x + i), f32x8_set(max)));
        f32x8_store(x + i, e);
        sum = f32x8_add(sum, e);
    }
    f32x8_store(lane, sum);
    for (; i < n; i++) {
        x[i] = pn_exp(x[i] - max);
        lane[i % 8] += x[i];
    }
    const float total = pn_lanes_sum(lane);
    for (i = 0; i < n; i++)
        x[i] /= total;
}

static void attn_finish(float *acc, float s, int head_dim)
{
    for (int d = 0; d < head_dim; d++)
        acc[d] /= s;
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

NEON_INLINE void rotate4(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s)
{
    const float32x4_t x = *a, y = *b;
    *a = vfmaq_f32(vnegq_f32(vmulq_f32(y, s)), x, c);
    *b = vfmaq_f32(vmulq_f32(x, s), y, c);
}

NEON_INLINE void rotate1(float *a, float *b, float c, float s)
{
    const float x = *a, y = *b;
    *a = fmaf(x, c, -(y * s));
    *b = fmaf(y, c, x * s);
}

static void rope_norm(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim) {
        int p = 0;
        for (; p + 4 <= n_pair; p += 4) {
            float32x4x2_t v = vld2q_f32(x + 2 * p);
            const float32x4x2_t angle = vld2q_f32(cs + 2 * p);
            rotate4(&v.val[0], &v.val[1], angle.val[0], angle.val[1]);
            vst2q_f32(x + 2 * p, v);
        }
        for (; p < n_pair; p++)
            rotate1(x + 2 * p, x + 2 * p + 1, cs[2 * p], cs[2 * p + 1]);
    }
}

static void rope_neox(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim) {
        int p = 0;
        for (; p + 4 <= n_pair; p += 4) {
            float32x4_t a = vld1q_f32(x + p), b = vld1q_f32(x + n_pair + p);
            const float32x4x2_t angle = vld2q_f32(cs + 2 * p);
            rotate4(&a, &b, angle.val[0], angle.val[1]);
            vst1q_f32(x + p, a);
            vst1q_f32(x + n_pair + p, b);
        }
        for (; p < n_pair; p++)
            rotate1(x + p, x + n_pair + p, cs[2 * p], cs[2 * p + 1]);
    }
}

void PN_NEON(floats)(pn_kernels *k)
{
    k->quantize[PN_ACT_Q32] = quantize_q32;
    k->quantize[PN_ACT_Q256] = quantize_q256;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->add = add;
    k->scale_add = scale_add;
    k->silu_mul = silu_mul;
    k->gelu_tanh = gelu_tanh;
    k->softmax = softmax;
    k->attn_finish = attn_finish;
    k->rope_norm = rope_norm;
    k->rope_neox = rope_neox;
}
