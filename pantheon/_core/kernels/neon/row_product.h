/* The product of one float row with one input, as ref/types_float.c defines it: 32 running sums in 8 registers, its
 * tree, then the last n % 8 elements in order. */
#ifndef PN_NEON_ROW_PRODUCT_H
#define PN_NEON_ROW_PRODUCT_H

#include "neon.h"

NEON_INLINE f32x8 load_f32x8(const uint8_t *p)
{
    float v[8];
    memcpy(v, p, sizeof v);
    return f32x8_load(v);
}

NEON_INLINE f32x8 load_f16x8(const uint8_t *p) { return (f32x8){f16x4(p), f16x4(p + 8)}; }

NEON_INLINE f32x8 load_bf16x8(const uint8_t *p)
{
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    const uint16x8_t v = vld1q_u16(h);
    return (f32x8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
                   vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
}

NEON_INLINE float load_f32(const uint8_t *p) { return pn_bits_to_f32(pn_load32(p)); }
NEON_INLINE float load_f16(const uint8_t *p) { return pn_load_f16(p); }
NEON_INLINE float load_bf16(const uint8_t *p) { return pn_bf16_to_f32(pn_load16(p)); }

typedef f32x8 (*load8_fn)(const uint8_t *p);
typedef float (*load1_fn)(const uint8_t *p);

NEON_INLINE float row_product(load8_fn load8, load1_fn load1, int size, const uint8_t *w, const float *x, int n)
{
    f32x8 acc[4] = {f32x8_set(0), f32x8_set(0), f32x8_set(0), f32x8_set(0)};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int c = 0; c < 4; c++)
            acc[c] = f32x8_fma(load8(w + (i + 8 * c) * size), f32x8_load(x + i + 8 * c), acc[c]);
    for (int c = 0; i + 8 <= n; i += 8, c++)
        acc[c] = f32x8_fma(load8(w + i * size), f32x8_load(x + i), acc[c]);
    const f32x8 v = f32x8_add(f32x8_add(acc[0], acc[1]), f32x8_add(acc[2], acc[3]));
    float total = f32x8_lanes_sum(v);
    for (; i < n; i++)
        total = fmaf(load1(w + i * size), x[i], total);
    return total;
}

#endif
