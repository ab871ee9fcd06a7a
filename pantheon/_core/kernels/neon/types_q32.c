/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: vector products. Codes are made signed in registers, so one dot product serves all.
 *
 * min is the form of the minimum: 0 none, 1 as it stands, 16 raised by 16 * d because the codes are lowered by 16.
 */
#include "codes32.h"

NEON_INLINE int32x4_t block_sums(codes_fn codes, const uint8_t *block, int8x16_t x0, int8x16_t x1)
{
    const codes32 c = codes(block);
    return dot16(dot16(vdupq_n_s32(0), c.lo, x0), c.hi, x1);
}

NEON_INLINE void q32_dot8(codes_fn codes, int bytes, int min, const uint8_t *w, size_t stride, const pn_act *x, int t,
                          float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks, *xs = x->s + (size_t)t * n_blocks;
    float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    for (int b = 0; b < n_blocks; b++, w += bytes) {
        const int8x16_t x0 = vld1q_s8(xq + 32 * b), x1 = vld1q_s8(xq + 32 * b + 16);
        for (int half = 0; half < 2; half++) {
            const uint8_t *row = w + 4 * (size_t)half * stride;
            int32x4_t s[4];
            for (int r = 0; r < 4; r++)
                s[r] = block_sums(codes, row + (size_t)r * stride, x0, x1);
            const float32x4_t d = f16_of_rows(row, stride);
            acc[half] = vfmaq_f32(acc[half], vmulq_n_f32(d, xd[b]), vcvtq_f32_s32(sums4(s)));
            if (min) {
                float32x4_t m = f16_of_rows(row + 2, stride);
                if (min > 1)
                    m = vfmaq_f32(m, vdupq_n_f32((float)min), d);
                acc[half] = vfmaq_f32(acc[half], vdupq_n_f32(xs[b]), m);
            }
        }
    }
    store_rows(out, os, acc);
}

NEON_INLINE void q32_dot1(codes_fn codes, int bytes, int min, const uint8_t *w, const pn_act *x, int t, float *out)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks, *xs = x->s + (size_t)t * n_blocks;
    float acc = 0;
    for (int b = 0; b < n_blocks; b++, w += bytes, xq += 32) {
        const float d = pn_load_f16(w);
        const int32_t isum = vaddvq_s32(block_sums(codes, w, vld1q_s8(xq), vld1q_s8(xq + 16)));
        acc = fmaf(d * xd[b], (float)isum, acc);
        if (min) {
            const float m = pn_load_f16(w + 2);
            acc = fmaf(xs[b], min > 1 ? fmaf((float)min, d, m) : m, acc);
        }
    }
    *out = acc;
}

#define Q32_TYPE(type, bytes, min) \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        q32_dot8(type##_codes, bytes, min, w, stride, x, t, out, os); \
    } \
    static void type##_dot1(const uint8_t *w, const pn_act *x, int t, float *out) \
    { \
        q32_dot1(type##_codes, bytes, min, w, x, t, out); \
    }

Q32_TYPE(q4_0, 18, 0)
Q32_TYPE(q4_1, 20, 1)
Q32_TYPE(q5_0, 22, 0)
Q32_TYPE(q5_1, 24, 16)
Q32_TYPE(q8_0, 34, 0)

void PN_NEON(types_q32)(pn_kernels *k)
{
    NEON_SET(k, PN_Q4_0, q4_0);
    NEON_SET(k, PN_Q4_1, q4_1);
    NEON_SET(k, PN_Q5_0, q5_0);
    NEON_SET(k, PN_Q5_1, q5_1);
    NEON_SET(k, PN_Q8_0, q8_0);
}
