/* The one exponential of the engine, for arguments of at most 0, which is all that softmax, a sigmoid and tanh need.
 *
 * exp(x) = 2^n * p(r) with n = round(x / ln 2), r = x - n ln 2 and a polynomial p of degree 6: relative error below
 * 1e-7 on [PN_EXP_LOWEST, 0], exactly 1 at 0, exactly 0 below PN_EXP_LOWEST (where 2^n would leave the normal range),
 * NaN for NaN. The vector forms of the levels do the same operations, so they give the same bits.
 */
#ifndef PN_EXP_H
#define PN_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PN_EXP_LOWEST -87.3f
#define PN_EXP_LOG2E 0x1.715476p+0f
#define PN_EXP_SHIFT 0x1.8p+23f /* adding it rounds to an integer, which is then in the low bits */
#define PN_EXP_LN2_HI 0x1.62e4p-1f
#define PN_EXP_LN2_LO 0x1.7f7d1cp-20f
#define PN_EXP_C6 0x1.6ab98p-10f
#define PN_EXP_C5 0x1.126d0cp-7f
#define PN_EXP_C4 0x1.55589ap-5f
#define PN_EXP_C3 0x1.55540ap-3f
#define PN_EXP_C2 0x1.fffffap-2f

static inline float pn_exp(float x)
{
    if (!(x >= PN_EXP_LOWEST))
        return x != x ? x : 0.0f;
    float shifted = fmaf(x, PN_EXP_LOG2E, PN_EXP_SHIFT), n = shifted - PN_EXP_SHIFT;
    float r = fmaf(-n, PN_EXP_LN2_LO, fmaf(-n, PN_EXP_LN2_HI, x));
    float p = fmaf(PN_EXP_C6, r, PN_EXP_C5);
    p = fmaf(p, r, PN_EXP_C4);
    p = fmaf(p, r, PN_EXP_C3);
    p = fmaf(p, r, PN_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    uint32_t power, bits;
    memcpy(&power, &shifted, 4);
    memcpy(&bits, &p, 4);
    bits += power << 23;
    memcpy(&p, &bits, 4);
    return p;
}

/* 1 / (1 + exp(-x)), from exp(-|x|) so that nothing overflows. */
static inline float pn_sigmoid(float x)
{
    float e = pn_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* An odd polynomial near 0, where 1 - exp(-2|x|) has lost its digits, else that quotient: relative error below 3e-7. */
#define PN_TANH_SMALL 0.25f /* up to here the polynomial of degree 9 is exact to 1e-8 */
#define PN_TANH_C9 (62.0f / 2835.0f)
#define PN_TANH_C7 (-17.0f / 315.0f)
#define PN_TANH_C5 (2.0f / 15.0f)
#define PN_TANH_C3 (-1.0f / 3.0f)

static inline float pn_tanh(float x)
{
    float e = pn_exp(-2.0f * fabsf(x)), s = x * x;
    float p = fmaf(PN_TANH_C9, s, PN_TANH_C7);
    p = fmaf(p, s, PN_TANH_C5);
    p = fmaf(p, s, PN_TANH_C3);
    p = fmaf(p * s, x, x);
    return fabsf(x) < PN_TANH_SMALL ? p : copysignf((1.0f - e) / (1.0f + e), x);
}

#endif
