/* Q2_K to Q6_K: super-blocks of 256 with integer scales per 16 or 32 elements and f16 scales for the whole.
 *
 * Indices, with element i = 128n + 32g + l: in Q2_K, Q3_K and Q6_K the two-bit fields of byte 32n + l belong to g =
 * 0..3; k = i / 16 is the sub-block of a scale. */
#include "blocks.h"

static void q2_k_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b + 80);
    s->m = pn_load_f16(b + 82);
    for (int k = 0; k < 16; k++) {
        s->sc[k] = b[k] & 15;
        s->mn[k] = b[k] >> 4;
    }
    for (int i = 0; i < 256; i++)
        s->q[i] = b[16 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
}
PN_REF_SUPER(q2_k, 84, 1)

static void q3_k_unpack(const uint8_t *b, pn_super *s)
{
    const uint8_t *packed = b + 96;
    s->d = pn_load_f16(b + 108);
    for (int k = 0; k < 16; k++)
        s->sc[k] = (pn_nibble(packed[k % 8], k / 8) | (packed[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
    for (int i = 0; i < 256; i++) {
        int low = b[32 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3, high = b[i % 32] >> i / 32 & 1;
        s->q[i] = low - (high ? 0 : 4);
    }
}
PN_REF_SUPER(q3_k, 110, 0)

PN_INLINE void k4_scales(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b);
    s->m = pn_load_f16(b + 2);
    for (int k = 0; k < 16; k++) {
        int sc, mn;
        pn_k4_scale(b + 4, k / 2, &sc, &mn);
        s->sc[k] = sc;
        s->mn[k] = mn;
    }
}

static void q4_k_unpack(const uint8_t *b, pn_super *s)
{
    k4_scales(b, s);
    for (int i = 0; i < 256; i++)
        s->q[i] = pn_nibble(b[16 + 32 * (i / 64) + i % 32], i / 32 % 2);
}
PN_REF_SUPER(q4_k, 144, 1)

static void q5_k_unpack(const uint8_t *b, pn_super *s)
{
    k4_scales(b, s);
    for (int i = 0; i < 256; i++)
        s->q[i] = pn_nibble(b[48 + 32 * (i / 64) + i % 32], i / 32 % 2) | (b[16 + i % 32] >> i / 32 & 1) << 4;
}
PN_REF_SUPER(q5_k, 176, 1)

static void q6_k_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b + 208);
    for (int k = 0; k < 16; k++)
        s->sc[k] = (int8_t)b[192 + k];
    for (int i = 0; i < 256; i++) {
        int n = i / 128, g = i / 32 % 4, l = i % 32;
        int low = pn_nibble(b[64 * n + 32 * (g & 1) + l], g >> 1), high = b[128 + 32 * n + l] >> 2 * g & 3;
        s->q[i] = (low | high << 4) - 32;
    }
}
PN_REF_SUPER(q6_k, 210, 0)

void pn_ref_types_k(pn_kernels *k)
{
    PN_REF_SET(k, PN_Q2_K, "Q2_K", 256, 84, PN_ACT_Q256, q2_k);
    PN_REF_SET(k, PN_Q3_K, "Q3_K", 256, 110, PN_ACT_Q256, q3_k);
    PN_REF_SET(k, PN_Q4_K, "Q4_K", 256, 144, PN_ACT_Q256, q4_k);
    PN_REF_SET(k, PN_Q5_K, "Q5_K", 256, 176, PN_ACT_Q256, q5_k);
    PN_REF_SET(k, PN_Q6_K, "Q6_K", 256, 210, PN_ACT_Q256, q6_k);
}
