/* IEEE half precision in plain C, with the bits that F16C gives: exact to float, round to nearest even to half. */
#ifndef PN_HALF_H
#define PN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float pn_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
    float x;
    if (exponent == 31) { /* infinity, or a NaN made quiet */
        bits = 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0);
    } else if (exponent) {
        bits = (exponent + 112) << 23 | mantissa << 13;
    } else { /* zero and subnormals: mantissa * 2^-24, exact */
        x = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &x, 4);
    }
    bits |= sign;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint16_t pn_float_to_half(float x)
{
    uint32_t bits, a;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) /* NaN: made quiet, the upper payload kept */
        return sign | 0x7e00 | (a >> 13 & 0x3ff);
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (a < 0x38800000u) { /* below 2^-14: the sum with 0.5 rounds at 2^-24, the unit of subnormals */
        float y;
        memcpy(&y, &a, 4);
        y += 0.5f;
        memcpy(&a, &y, 4);
        return sign | (uint16_t)(a - 0x3f000000u);
    }
    a += 0xfff + (a >> 13 & 1);
    return sign | (uint16_t)((a - 0x38000000u) >> 13);
}

#endif
