/* IQ1, IQ2, IQ3: codes are rows of a grid, eight (IQ3: four) values at a time, with separate signs and odd integer
 * scales 2s + 1. The constant factor of a type is a power of two and joins d. */
#include "blocks.h"
#include "iq_grids.h"

/* Seven stored sign bits; the eighth makes their number even. */
PN_INLINE int even_signs(int seven) { return seven | __builtin_parity(seven) << 7; }

/* q[j] = value j of a grid row, negative where bit j of signs is set */
PN_INLINE void grid8(int8_t *q, int row, const int8_t *values, int signs)
{
    for (int j = 0; j < 8; j++) {
        int v = values[row >> 2 * j & 3];
        q[j] = signs >> j & 1 ? -v : v;
    }
}

PN_INLINE void grid4(int8_t *q, int row, const int8_t *values, int signs)
{
    for (int j = 0; j < 4; j++) {
        int v = values[row >> 4 * j & 15];
        q[j] = signs >> j & 1 ? -v : v;
    }
}

static void iq2_xxs_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b) * 0.125f;
    for (int ib = 0; ib < 8; ib++) {
        const uint8_t *index = b + 2 + 8 * ib;
        uint32_t c = pn_load32(index + 4);
        s->sc[2 * ib] = s->sc[2 * ib + 1] = 2 * (c >> 28) + 1;
        for (int l = 0; l < 4; l++)
            grid8(s->q + 32 * ib + 8 * l, iq2_xxs_grid[index[l]], iq2_xxs_grid_values, even_signs(c >> 7 * l & 127));
    }
}
PN_REF_SUPER(iq2_xxs, 66, 0)

static void iq2_xs_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b) * 0.125f;
    for (int k = 0; k < 16; k++)
        s->sc[k] = 2 * pn_nibble(b[66 + k / 2], k % 2) + 1;
    for (int g = 0; g < 32; g++) {
        int c = pn_load16(b + 2 + 2 * g);
        grid8(s->q + 8 * g, iq2_xs_grid[c & 511], iq2_xs_grid_values, even_signs(c >> 9));
    }
}
PN_REF_SUPER(iq2_xs, 74, 0)

static void iq2_s_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b) * 0.125f;
    for (int k = 0; k < 16; k++)
        s->sc[k] = 2 * pn_nibble(b[74 + k / 2], k % 2) + 1;
    for (int g = 0; g < 32; g++) {
        int index = b[2 + g] | (b[66 + g / 4] >> 2 * (g % 4) & 3) << 8;
        grid8(s->q + 8 * g, iq2_s_grid[index], iq2_s_grid_values, b[34 + g]);
    }
}
PN_REF_SUPER(iq2_s, 82, 0)

static void iq3_xxs_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b) * 0.25f;
    for (int m = 0; m < 64; m++) { /* 8 grid rows of 4 share a word of signs and scale */
        uint32_t c = pn_load32(b + 66 + 4 * (m / 8));
        int signs = even_signs(c >> 7 * (m % 8 / 2) & 127);
        s->sc[m / 4] = 2 * (c >> 28) + 1;
        grid4(s->q + 4 * m, iq3_xxs_grid[b[2 + m]], iq3_xxs_grid_values, signs >> 4 * (m % 2));
    }
}
PN_REF_SUPER(iq3_xxs, 98, 0)

static void iq3_s_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b);
    for (int m = 0; m < 64; m++) {
        int ib = m / 8, index = b[2 + m] | (b[66 + ib] >> m % 8 & 1) << 8;
        s->sc[m / 4] = 2 * pn_nibble(b[106 + ib / 2], ib % 2) + 1;
        grid4(s->q + 4 * m, iq3_s_grid[index], iq3_s_grid_values, b[74 + m / 2] >> 4 * (m % 2));
    }
}
PN_REF_SUPER(iq3_s, 110, 0)

/* IQ1: grid values -1, 0, 1 plus or minus an eighth, here in eighths: 8 * value +- 1, still one exact integer sum. */
PN_INLINE void grid_eighths(int8_t *q, int row, int negative)
{
    for (int j = 0; j < 8; j++)
        q[j] = 8 * iq1_grid_values[row >> 2 * j & 3] + (negative ? -1 : 1);
}

static void iq1_s_unpack(const uint8_t *b, pn_super *s)
{
    s->d = pn_load_f16(b) * 0.125f;
    for (int ib = 0; ib < 8; ib++) {
        int h = pn_load16(b + 34 + 2 * ib);
        s->sc[2 * ib] = s->sc[2 * ib + 1] = 2 * (h >> 12 & 7) + 1;
        for (int l = 0; l < 4; l++)
            grid_eighths(s->q + 32 * ib + 8 * l, iq1_grid[b[2 + 4 * ib + l] | (h >> 3 * l & 7) << 8], h & 0x8000);
    }
}
PN_REF_SUPER(iq1_s, 50, 0)

static void iq1_m_unpack(const uint8_t *b, pn_super *s)
{
    int d = 0;
    for (int i = 0; i < 4; i++) /* d is spread over the top nibbles of the four words of scales */
        d |= (pn_load16(b + 48 + 2 * i) >> 12) << 4 * i;
    s->d = pn_f16_to_f32(d) * 0.125f;
    for (int k = 0; k < 16; k++)
        s->sc[k] = 2 * (pn_load16(b + 48 + 2 * (k / 4)) >> 3 * (k % 4) & 7) + 1;
    for (int g = 0; g < 32; g++) {
        int high = pn_nibble(b[32 + g / 2], g % 2);
        grid_eighths(s->q + 8 * g, iq1_grid[b[g] | (high & 7) << 8], high & 8);
    }
}
PN_REF_SUPER(iq1_m, 56, 0)

void pn_ref_types_iq(pn_kernels *k)
{
    PN_REF_SET(k, PN_IQ2_XXS, "IQ2_XXS", 256, 66, PN_ACT_Q256, iq2_xxs);
    PN_REF_SET(k, PN_IQ2_XS, "IQ2_XS", 256, 74, PN_ACT_Q256, iq2_xs);
    PN_REF_SET(k, PN_IQ2_S, "IQ2_S", 256, 82, PN_ACT_Q256, iq2_s);
    PN_REF_SET(k, PN_IQ3_XXS, "IQ3_XXS", 256, 98, PN_ACT_Q256, iq3_xxs);
    PN_REF_SET(k, PN_IQ3_S, "IQ3_S", 256, 110, PN_ACT_Q256, iq3_s);
    PN_REF_SET(k, PN_IQ1_S, "IQ1_S", 256, 50, PN_ACT_Q256, iq1_s);
    PN_REF_SET(k, PN_IQ1_M, "IQ1_M", 256, 56, PN_ACT_Q256, iq1_m);
}
