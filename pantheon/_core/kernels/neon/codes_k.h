/* Q4_K, Q5_K and Q6_K: 32 codes of a block as signed bytes, and the packed scales. */
#ifndef PN_NEON_CODES_K_H
#define PN_NEON_CODES_K_H

#include "codes32.h"

typedef struct k4_scales { /* 8 scales and 8 minimums of Q4_K and Q5_K, each below 64 */
    uint8_t sc[8], mn[8];
} k4_scales;

NEON_INLINE k4_scales k4_unpack_scales(const uint8_t *packed)
{
    const uint32_t a = pn_load32(packed), b = pn_load32(packed + 4), c = pn_load32(packed + 8);
    const uint32_t words[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030),
                               b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
    k4_scales s;
    memcpy(&s, words, sizeof s);
    return s;
}

/* Group g of 32 codes, g in [0, 8). */
NEON_INLINE codes32 q4_k_codes(const uint8_t *block, int g)
{
    const uint8x16_t u = vld1q_u8(block + 16 + 32 * (g / 2)), v = vld1q_u8(block + 32 + 32 * (g / 2));
    return g % 2 ? (codes32){high_nibbles(u), high_nibbles(v)} : (codes32){low_nibbles(u), low_nibbles(v)};
}

/* 16 where bit g of a byte is set. */
NEON_INLINE int8x16_t bit_as_16(const uint8_t *p, int g)
{
    return vreinterpretq_s8_u8(vandq_u8(vtstq_u8(vld1q_u8(p), vdupq_n_u8((uint8_t)(1 << g))), vdupq_n_u8(16)));
}

NEON_INLINE codes32 q5_k_codes(const uint8_t *block, int g)
{
    const codes32 low = q4_k_codes(block + 32, g);
    return (codes32){vorrq_s8(low.lo, bit_as_16(block + 16, g)), vorrq_s8(low.hi, bit_as_16(block + 32, g))};
}

/* 16 codes of Q6_K, lowered by 32: low has the nibbles, high the two upper bits at place 2 * (g % 4). */
NEON_INLINE int8x16_t q6_k_16(const uint8_t *low, const uint8_t *high, int g)
{
    const uint8x16_t v = vld1q_u8(low), h = vld1q_u8(high);
    const uint8x16_t nibbles = g % 4 / 2 ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
    const uint8x16_t top = vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)(4 - 2 * (g % 4)))), vdupq_n_u8(0x30));
    return less(vreinterpretq_s8_u8(vorrq_u8(nibbles, top)), 32);
}

NEON_INLINE codes32 q6_k_codes(const uint8_t *block, int g)
{
    const uint8_t *low = block + 64 * (g / 4) + 32 * (g % 2), *high = block + 128 + 32 * (g / 4);
    return (codes32){q6_k_16(low, high, g), q6_k_16(low + 16, high + 16, g)};
}

#endif
