/* Q4_K, Q5_K, Q6_K: vector products. The sums of a group are multiplied by its scale in their 4 lanes; lanes are added
 * up once a block. int32 holds them: 256 * 63 * 31 * 127 < 2^26 (Q5_K), 256 * 128 * 32 * 127 < 2^28 (Q6_K). */
#include "codes_k.h"

typedef struct block_result { /* of one row; every number is the sum of the 4 lanes */
    int32x4_t isum, msum;
} block_result;

typedef block_result (*block_fn)(const uint8_t *block, const int8_t *x, const int16_t *xsum);

NEON_INLINE block_result q45_k_block(int five, const uint8_t *block, const int8_t *x, const int16_t *xsum)
{
    const k4_scales s = k4_unpack_scales(block + 4);
    block_result r = {vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const codes32 c = five ? q5_k_codes(block, g) : q4_k_codes(block, g);
        const int32x4_t sum = dot16(dot16(vdupq_n_s32(0), c.lo, vld1q_s8(x + 32 * g)), c.hi, vld1q_s8(x + 32 * g + 16));
        r.isum = vmlaq_n_s32(r.isum, sum, s.sc[g]);
    }
    const int16x8_t mins = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(s.mn)));
    const int16x8_t sums = vpaddq_s16(vld1q_s16(xsum), vld1q_s16(xsum + 8)); /* of 32 codes */
    r.msum = vmlal_high_s16(vmull_s16(vget_low_s16(mins), vget_low_s16(sums)), mins, sums);
    return r;
}

NEON_INLINE block_result q4_k_block(const uint8_t *block, const int8_t *x, const int16_t *xsum)
{
    return q45_k_block(0, block, x, xsum);
}

NEON_INLINE block_result q5_k_block(const uint8_t *block, const int8_t *x, const int16_t *xsum)
{
    return q45_k_block(1, block, x, xsum);
}

NEON_INLINE block_result q6_k_block(const uint8_t *block, const int8_t *x, const int16_t *xsum)
{
    const int8_t *sc = (const int8_t *)block + 192;
    block_result r = {vdupq_n_s32(0), vdupq_n_s32(0)};
    (void)xsum;
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const codes32 c = q6_k_codes(block, g);
        r.isum = vmlaq_n_s32(r.isum, dot16(vdupq_n_s32(0), c.lo, vld1q_s8(x + 32 * g)), sc[2 * g]);
        r.isum = vmlaq_n_s32(r.isum, dot16(vdupq_n_s32(0), c.hi, vld1q_s8(x + 32 * g + 16)), sc[2 * g + 1]);
    }
    return r;
}

/* d_at: where the block has its scale; the minimum, where has_min, is the number after it. */
NEON_INLINE void k_dot8(block_fn block, int bytes, int d_at, int has_min, const uint8_t *w, size_t stride,
                        const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 256;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int16_t *xsum = x->sum + (size_t)t * n_blocks * 16;
    float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    for (int b = 0; b < n_blocks; b++, w += bytes, xq += 256, xsum += 16) {
        for (int half = 0; half < 2; half++) {
            const uint8_t *row = w + 4 * (size_t)half * stride;
            int32x4_t isum[4], msum[4];
            for (int r = 0; r < 4; r++) {
                const block_result one = block(row + (size_t)r * stride, xq, xsum);
                isum[r] = one.isum;
                msum[r] = one.msum;
            }
            const float32x4_t scale = vmulq_n_f32(f16_of_rows(row + d_at, stride), xd[b]);
            acc[half] = vfmaq_f32(acc[half], scale, vcvtq_f32_s32(sums4(isum)));
            if (has_min) {
                const float32x4_t min = vmulq_n_f32(f16_of_rows(row + d_at + 2, stride), xd[b]);
                acc[half] = vfmsq_f32(acc[half], min, vcvtq_f32_s32(sums4(msum)));
            }
        }
    }
    store_rows(out, os, acc);
}

NEON_INLINE void k_dot1(block_fn block, int bytes, int d_at, int has_min, const uint8_t *w, const pn_act *x, int t,
                        float *out)
{
    const int n_blocks = x->n / 256;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    const int16_t *xsum = x->sum + (size_t)t * n_blocks * 16;
    float acc = 0;
    for (int b = 0; b < n_blocks; b++, w += bytes, xq += 256, xsum += 16) {
        const block_result one = block(w, xq, xsum);
        acc = fmaf(pn_load_f16(w + d_at) * xd[b], (float)vaddvq_s32(one.isum), acc);
        if (has_min)
            acc = fmaf(-(pn_load_f16(w + d_at + 2) * xd[b]), (float)vaddvq_s32(one.msum), acc);
    }
    *out = acc;
}

#define K_TYPE(type, bytes, d_at, has_min) \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        k_dot8(type##_block, bytes, d_at, has_min, w, stride, x, t, out, os); \
    } \
    static void type##_dot1(const uint8_t *w, const pn_act *x, int t, float *out) \
    { \
        k_dot1(type##_block, bytes, d_at, has_min, w, x, t, out); \
    }

K_TYPE(q4_k, 144, 0, 1)
K_TYPE(q5_k, 176, 0, 1)
K_TYPE(q6_k, 210, 208, 0)

void PN_NEON(types_k)(pn_kernels *k)
{
    NEON_SET(k, PN_Q4_K, q4_k);
    NEON_SET(k, PN_Q5_K, q5_k);
    NEON_SET(k, PN_Q6_K, q6_k);
}
