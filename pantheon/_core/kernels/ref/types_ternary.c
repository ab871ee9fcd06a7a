/* One to two bits a weight: TQ1_0 and TQ2_0 (-1, 0, 1), Q1_0 (-1, 1), Q2_0 (-1, 0, 1, 2). */
#include "blocks.h"

/* Digit m, the most significant first, of a byte that holds five base-3 digits as ceil(value * 256 / 243). */
PN_INLINE int base3_digit(int byte, int m)
{
    static const uint8_t POWER[5] = {1, 3, 9, 27, 81};
    return (byte * POWER[m] & 255) * 3 >> 8;
}

PN_INLINE void unit_scales(pn_super *s)
{
    for (int k = 0; k < 16; k++)
        s->sc[k] = 1;
}

/* 160 elements in bytes 0..31, 80 in bytes 32..47, 16 in bytes 48..51: neighbours in one digit of neighbouring bytes */
static void tq1_0_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b + 52);
    unit_scales(s);
    for (int i = 0; i < 256; i++) {
        int byte = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        s->q[i] = base3_digit(b[byte], digit) - 1;
    }
}
PN_REF_SUPER(tq1_0, 54, 0)

static void tq2_0_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b + 64);
    unit_scales(s);
    for (int i = 0; i < 256; i++)
        s->q[i] = (b[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3) - 1;
}
PN_REF_SUPER(tq2_0, 66, 0)

/* Q1_0 and Q2_0 have one scale for several blocks of the input: one multiply-add for each of those. */
static void q1_0_unpack(const uint8_t *b, pn_codes *c)
{
    for (int k = 0; k < 4; k++)
        c->d[k] = pn_load_f16(b);
    for (int i = 0; i < 128; i++)
        c->q[i] = b[2 + i / 8] >> i % 8 & 1 ? 1 : -1;
}
PN_REF_CODES(q1_0, 128, 18, 32)

static void q2_0_unpack(const uint8_t *b, pn_codes *c)
{
    c->d[0] = c->d[1] = pn_load_f16(b);
    for (int i = 0; i < 64; i++)
        c->q[i] = (b[2 + i / 4] >> 2 * (i % 4) & 3) - 1;
}
PN_REF_CODES(q2_0, 64, 18, 32)

void pn_ref_types_ternary(pn_kernels *k)
{
    PN_REF_SET(k, PN_TQ1_0, "TQ1_0", 256, 54, PN_ACT_Q256, tq1_0);
    PN_REF_SET(k, PN_TQ2_0, "TQ2_0", 256, 66, PN_ACT_Q256, tq2_0);
    PN_REF_SET(k, PN_Q1_0, "Q1_0", 128, 18, PN_ACT_Q32, q1_0);
    PN_REF_SET(k, PN_Q2_0, "Q2_0", 64, 18, PN_ACT_Q32, q2_0);
}
