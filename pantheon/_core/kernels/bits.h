/* Reading the fields of a quantised block. Blocks are byte-packed, so every field may be unaligned. */
#ifndef PN_BITS_H
#define PN_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint16_t pn_load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t pn_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float pn_bits_to_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE half to float, exact: subnormals, infinities and NaN included (a signalling NaN becomes quiet, as in
 * hardware). */
static inline float pn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, em = h & 0x7FFF;
    if (em >= 0x7C00)
        return pn_bits_to_f32(sign | 0x7F800000 | (em & 0x3FF ? 0x400000 | (em & 0x3FF) << 13 : 0));
    if (em < 0x400) {
        float f = (float)(int)em * 0x1p-24f;
        return sign ? -f : f;
    }
    return pn_bits_to_f32(sign | ((em << 13) + (112u << 23)));
}

static inline float pn_bf16_to_f32(uint16_t h) { return pn_bits_to_f32((uint32_t)h << 16); }

static inline float pn_load_f16(const uint8_t *p) { return pn_f16_to_f32(pn_load16(p)); }

/* nibble h (0 low, 1 high) of a byte */
static inline int pn_nibble(int byte, int h) { return byte >> 4 * h & 15; }

/* 6-bit scale and minimum j of the 12 packed bytes of Q4_K and Q5_K */
static inline void pn_k4_scale(const uint8_t *s, int j, int *sc, int *m)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *m = s[j + 4] & 63;
    } else {
        *sc = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *m = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

#endif
