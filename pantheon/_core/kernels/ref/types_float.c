/* F32, F16, BF16: the input stays float. 32 running sums, element i in sum i % 32; whole groups of 8 go there, then
 * one fixed tree, then what is left of the row (fewer than 8 elements) in order. Every multiply-add is fused. */
#include "blocks.h"

PN_INLINE float f32_at(const uint8_t *w, int64_t i) { return pn_bits_to_f32(pn_load32(w + 4 * i)); }
PN_INLINE float f16_at(const uint8_t *w, int64_t i) { return pn_load_f16(w + 2 * i); }
PN_INLINE float bf16_at(const uint8_t *w, int64_t i) { return pn_bf16_to_f32(pn_load16(w + 2 * i)); }

typedef float (*load_at)(const uint8_t *w, int64_t i);

PN_INLINE void float_dequant(load_at at, const uint8_t *w, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = at(w, i);
}

PN_INLINE float float_dot(load_at at, const uint8_t *w, const pn_act *x, int t)
{
    const float *xf = x->f + (size_t)t * x->n;
    float acc[32] = {0}, v[8];
    int whole = x->n / 8 * 8;
    for (int i = 0; i < whole; i++)
        acc[i % 32] = fmaf(at(w, i), xf[i], acc[i % 32]);
    for (int j = 0; j < 8; j++)
        v[j] = (acc[j] + acc[8 + j]) + (acc[16 + j] + acc[24 + j]);
    for (int j = 0; j < 4; j++)
        v[j] += v[4 + j];
    float sum = (v[0] + v[2]) + (v[1] + v[3]);
    for (int i = whole; i < x->n; i++)
        sum = fmaf(at(w, i), xf[i], sum);
    return sum;
}

PN_REF_TYPE(f32, float_dequant(f32_at, w, out, n), float_dot(f32_at, w, x, t))
PN_REF_TYPE(f16, float_dequant(f16_at, w, out, n), float_dot(f16_at, w, x, t))
PN_REF_TYPE(bf16, float_dequant(bf16_at, w, out, n), float_dot(bf16_at, w, x, t))

void pn_ref_types_float(pn_kernels *k)
{
    PN_REF_SET(k, PN_F32, "F32", 1, 4, PN_ACT_F32, f32);
    PN_REF_SET(k, PN_F16, "F16", 1, 2, PN_ACT_F32, f16);
    PN_REF_SET(k, PN_BF16, "BF16", 1, 2, PN_ACT_F32, bf16);
}
