/* Codes of 4 bits that index a list of values: IQ4_NL and IQ4_XS (a list of unequal steps), MXFP4 and NVFP4 (the eight
 * magnitudes of a 4-bit float, doubled to be integers; the half is in the scale). */
#include "blocks.h"

static const int8_t UNEQUAL[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t E2M1_TWICE[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void iq4_nl_unpack(const uint8_t *b, pn_codes *c)
{
    c->d[0] = pn_load_f16(b);
    for (int i = 0; i < 32; i++)
        c->q[i] = UNEQUAL[pn_nibble(b[2 + i % 16], i / 16)];
}
PN_REF_CODES(iq4_nl, 32, 18, 32)

/* 2^(e - 128): an 8-bit exponent and the half of the doubled values. The two smallest are subnormal floats. */
PN_INLINE float mx_scale(uint32_t e) { return pn_bits_to_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

static void mxfp4_unpack(const uint8_t *b, pn_codes *c)
{
    c->d[0] = mx_scale(b[0]);
    for (int i = 0; i < 32; i++)
        c->q[i] = E2M1_TWICE[pn_nibble(b[1 + i % 16], i / 16)];
}
PN_REF_CODES(mxfp4, 32, 17, 32)

/* Half of an unsigned 8-bit float with 4 bits of exponent (bias 7) and 3 of mantissa; 0x7F stands for zero. */
PN_INLINE float nv_scale(uint8_t s)
{
    uint32_t e = s >> 3 & 15, m = s & 7;
    if (s == 0x7F)
        return 0;
    if (e == 0)
        return (float)(int)m * 0x1p-10f;
    return pn_bits_to_f32((e + 119) << 23 | m << 20);
}

/* four sub-blocks of 16: elements j and j + 8 share a byte */
static void nvfp4_unpack(const uint8_t *b, pn_codes *c)
{
    for (int k = 0; k < 4; k++)
        c->d[k] = nv_scale(b[k]);
    for (int i = 0; i < 64; i++)
        c->q[i] = E2M1_TWICE[pn_nibble(b[4 + 8 * (i / 16) + i % 8], i / 8 % 2)];
}
PN_REF_CODES(nvfp4, 64, 36, 16)

static void iq4_xs_unpack(const uint8_t *b, pn_super *s)
{
    uint32_t high = pn_load16(b + 2);
    s->d = pn_load_f16(b);
    for (int k = 0; k < 16; k++) {
        int g = k / 2;
        s->sc[k] = (pn_nibble(b[4 + g / 2], g % 2) | (high >> 2 * g & 3) << 4) - 32;
    }
    for (int i = 0; i < 256; i++)
        s->q[i] = UNEQUAL[pn_nibble(b[8 + 16 * (i / 32) + i % 16], i / 16 % 2)];
}
PN_REF_SUPER(iq4_xs, 136, 0)

void pn_ref_types_fp4(pn_kernels *k)
{
    PN_REF_SET(k, PN_IQ4_NL, "IQ4_NL", 32, 18, PN_ACT_Q32, iq4_nl);
    PN_REF_SET(k, PN_MXFP4, "MXFP4", 32, 17, PN_ACT_Q32, mxfp4);
    PN_REF_SET(k, PN_NVFP4, "NVFP4", 64, 36, PN_ACT_Q32, nvfp4);
    PN_REF_SET(k, PN_IQ4_XS, "IQ4_XS", 256, 136, PN_ACT_Q256, iq4_xs);
}
