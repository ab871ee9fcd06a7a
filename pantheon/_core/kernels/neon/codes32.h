/* Blocks of 32 codes as signed bytes, elements 0..15 and 16..31, for the vector products and for the panels. */
#ifndef PN_NEON_CODES32_H
#define PN_NEON_CODES32_H

#include "neon.h"

typedef struct codes32 {
    int8x16_t lo, hi;
} codes32;

typedef codes32 (*codes_fn)(const uint8_t *block);

NEON_INLINE int8x16_t less(int8x16_t v, int8_t offset) { return vsubq_s8(v, vdupq_n_s8(offset)); }

NEON_INLINE codes32 q4_0_codes(const uint8_t *b)
{
    const uint8x16_t v = vld1q_u8(b + 2);
    return (codes32){less(low_nibbles(v), 8), less(high_nibbles(v), 8)};
}

NEON_INLINE codes32 q4_1_codes(const uint8_t *b)
{
    const uint8x16_t v = vld1q_u8(b + 4);
    return (codes32){low_nibbles(v), high_nibbles(v)};
}

/* 16 where a bit of the two bytes at p is clear, else 0: what a 5-bit code lowered by 16 misses to its nibble. */
NEON_INLINE int8x16_t fifth_bits_clear(const uint8_t *p)
{
    const uint8x8_t place = vcreate_u8(0x8040201008040201);
    const uint8x16_t set = vcombine_u8(vtst_u8(vdup_n_u8(p[0]), place), vtst_u8(vdup_n_u8(p[1]), place));
    return vreinterpretq_s8_u8(vbicq_u8(vdupq_n_u8(16), set));
}

NEON_INLINE codes32 q5_codes(const uint8_t *high, const uint8_t *nibbles)
{
    const uint8x16_t v = vld1q_u8(nibbles);
    return (codes32){vsubq_s8(low_nibbles(v), fifth_bits_clear(high)),
                     vsubq_s8(high_nibbles(v), fifth_bits_clear(high + 2))};
}

NEON_INLINE codes32 q5_0_codes(const uint8_t *b) { return q5_codes(b + 2, b + 6); }
NEON_INLINE codes32 q5_1_codes(const uint8_t *b) { return q5_codes(b + 4, b + 8); }

NEON_INLINE codes32 q8_0_codes(const uint8_t *b)
{
    return (codes32){vld1q_s8((const int8_t *)b + 2), vld1q_s8((const int8_t *)b + 18)};
}

#endif
