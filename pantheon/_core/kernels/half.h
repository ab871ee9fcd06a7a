/* Float to IEEE half in plain C, round to nearest even, with the bits that F16C gives. The way back is in bits.h. */
#ifndef PN_HALF_H
#define PN_HALF_H

#include <stdint.h>
#include <string.h>

#include "bits.h"

static inline uint16_t pn_f32_to_f16(float x)
{
    uint32_t bits, a;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) /* NaN: made quiet, the upper payload kept */
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (a < 0x38800000u) { /* below 2^-14: the sum with 0.5 rounds at 2^-24, the unit of subnormals */
        float y = pn_bits_to_f32(a) + 0.5f;
        memcpy(&a, &y, 4);
        return (uint16_t)(sign | (a - 0x3f000000u));
    }
    a += 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

#endif
