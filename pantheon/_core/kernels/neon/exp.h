/* pn_exp and pn_sigmoid of ../exp.h for 8 numbers: the same operations, so the same bits. */
#ifndef PN_NEON_EXP_H
#define PN_NEON_EXP_H

#include "../exp.h"
#include "neon.h"

NEON_INLINE float32x4_t exp4(float32x4_t x)
{
    const float32x4_t shift = vdupq_n_f32(PN_EXP_SHIFT), one = vdupq_n_f32(1.0f);
    const float32x4_t shifted = vfmaq_f32(shift, x, vdupq_n_f32(PN_EXP_LOG2E)), n = vsubq_f32(shifted, shift);
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(PN_EXP_LN2_HI));
    r = vfmsq_f32(r, n, vdupq_n_f32(PN_EXP_LN2_LO));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(PN_EXP_C5), vdupq_n_f32(PN_EXP_C6), r);
    p = vfmaq_f32(vdupq_n_f32(PN_EXP_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(PN_EXP_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(PN_EXP_C2), p, r);
    p = vfmaq_f32(one, p, r);
    p = vfmaq_f32(one, p, r);
    const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    const uint32x4_t whole = vaddq_u32(vreinterpretq_u32_f32(p), power);
    const uint32x4_t in_range = vcgeq_f32(x, vdupq_n_f32(PN_EXP_LOWEST));
    const float32x4_t e = vreinterpretq_f32_u32(vandq_u32(whole, in_range));
    return vbslq_f32(vceqq_f32(x, x), e, x); /* NaN for NaN */
}

NEON_INLINE float32x4_t sigmoid4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), e = exp4(vnegq_f32(vabsq_f32(x)));
    return vdivq_f32(vbslq_f32(vcltq_f32(x, vdupq_n_f32(0)), e, one), vaddq_f32(one, e));
}

NEON_INLINE f32x8 exp8(f32x8 x) { return (f32x8){exp4(x.lo), exp4(x.hi)}; }

#endif
