/* What the NEON families share. AArch64 always has NEON; the dotprod level compiles the same sources with sdot. A family
 * file defines PN_NEON(family)(k), whose name is that of the level that the build compiles it for, PN_LEVEL. */
#ifndef PN_NEON_NEON_H
#define PN_NEON_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "bits.h"
#include "kernels.h"
#include "lanes.h"

#define PN_NEON(family) PN_NEON_OF(PN_LEVEL, family)
#define PN_NEON_OF(level, family) PN_NEON_NAME(level, family)
#define PN_NEON_NAME(level, family) pn_##level##_##family

#define NEON_INLINE static inline __attribute__((always_inline))

/* ---- integers ---------------------------------------------------------------------------------------------------- */

/* acc + 16 products, spread over the 4 lanes in a way that depends on the level: only the sum of the lanes counts.
 * Exact for weights in [-128, 127] and input in [-127, 127]: two products fit 16 bits. */
NEON_INLINE int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(acc, w, x);
#else
    return vpadalq_s16(acc, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
#endif
}

/* Lane r: the sum of the lanes of s[r]. */
NEON_INLINE int32x4_t sums4(const int32x4_t *s)
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

NEON_INLINE int8x16_t low_nibbles(uint8x16_t v) { return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))); }
NEON_INLINE int8x16_t high_nibbles(uint8x16_t v) { return vreinterpretq_s8_u8(vshrq_n_u8(v, 4)); }

/* ---- floats ------------------------------------------------------------------------------------------------------ */

typedef struct f32x8 { /* lanes 0..3, 4..7 of lanes.h */
    float32x4_t lo, hi;
} f32x8;

NEON_INLINE f32x8 f32x8_set(float x) { return (f32x8){vdupq_n_f32(x), vdupq_n_f32(x)}; }
NEON_INLINE f32x8 f32x8_load(const float *p) { return (f32x8){vld1q_f32(p), vld1q_f32(p + 4)}; }
NEON_INLINE void f32x8_store(float *p, f32x8 v)
{
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}
NEON_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { return (f32x8){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
NEON_INLINE f32x8 f32x8_sub(f32x8 a, f32x8 b) { return (f32x8){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
NEON_INLINE f32x8 f32x8_mul(f32x8 a, f32x8 b) { return (f32x8){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
NEON_INLINE f32x8 f32x8_div(f32x8 a, f32x8 b) { return (f32x8){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
NEON_INLINE f32x8 f32x8_fma(f32x8 a, f32x8 b, f32x8 c) /* a * b + c */
{
    return (f32x8){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

/* pn_max of lanes.h, which drops a NaN in a; fmax of NEON would keep it. */
NEON_INLINE float32x4_t max4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
NEON_INLINE f32x8 f32x8_max(f32x8 a, f32x8 b) { return (f32x8){max4(a.lo, b.lo), max4(a.hi, b.hi)}; }

/* The trees of lanes.h. */
NEON_INLINE float f32x8_lanes_sum(f32x8 v)
{
    float lane[PN_LANES];
    f32x8_store(lane, v);
    return pn_lanes_sum(lane);
}

NEON_INLINE float f32x8_lanes_max(f32x8 v)
{
    float lane[PN_LANES];
    f32x8_store(lane, v);
    return pn_lanes_max(lane);
}

NEON_INLINE float32x4_t f16x4(const uint8_t *p)
{
    uint16_t h[4];
    memcpy(h, p, 8);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

/* f16 numbers of 4 rows, stride bytes apart */
NEON_INLINE float32x4_t f16_of_rows(const uint8_t *p, size_t stride)
{
    const uint16_t h[4] = {pn_load16(p), pn_load16(p + stride), pn_load16(p + 2 * stride), pn_load16(p + 3 * stride)};
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

/* 8 rows of a result, os elements apart */
NEON_INLINE void store_rows(float *out, size_t os, const float32x4_t *acc)
{
    float v[8];
    vst1q_f32(v, acc[0]);
    vst1q_f32(v + 4, acc[1]);
    for (int r = 0; r < 8; r++)
        out[(size_t)r * os] = v[r];
}

/* ---- the table entry --------------------------------------------------------------------------------------------- */

#define NEON_SET(k, id, prefix) ((k)->type[id].dot8 = prefix##_dot8, (k)->type[id].dot1 = prefix##_dot1)

#endif
