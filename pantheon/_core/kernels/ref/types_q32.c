/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with f16 scales. In the 4- and 5-bit types element j and j + 16 share
 * byte j, j in the low nibble; the fifth bits of the 5-bit types are one 32-bit word, bit i for element i. */
#include "blocks.h"

static void q4_0_unpack(const uint8_t *b, pn_codes *c)
{
    c->d[0] = pn_load_f16(b);
    for (int i = 0; i < 32; i++)
        c->q[i] = pn_nibble(b[2 + i % 16], i / 16) - 8;
}
PN_REF_CODES(q4_0, 32, 18, 32)

PN_INLINE int q5_code(const uint8_t *qs, uint32_t high, int i)
{
    return pn_nibble(qs[i % 16], i / 16) | (int)(high >> i & 1) << 4;
}

static void q5_0_unpack(const uint8_t *b, pn_codes *c)
{
    uint32_t high = pn_load32(b + 2);
    c->d[0] = pn_load_f16(b);
    for (int i = 0; i < 32; i++)
        c->q[i] = q5_code(b + 6, high, i) - 16;
}
PN_REF_CODES(q5_0, 32, 22, 32)

static void q8_0_unpack(const uint8_t *b, pn_codes *c)
{
    c->d[0] = pn_load_f16(b);
    memcpy(c->q, b + 2, 32);
}
PN_REF_CODES(q8_0, 32, 34, 32)

/* Types with a minimum: y = d * q + m. Their codes are unsigned. */

PN_INLINE void q4_1_codes(const uint8_t *b, int8_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] = pn_nibble(b[4 + i % 16], i / 16);
}

PN_INLINE void q5_1_codes(const uint8_t *b, int8_t *q)
{
    uint32_t high = pn_load32(b + 4);
    for (int i = 0; i < 32; i++)
        q[i] = q5_code(b + 8, high, i);
}

typedef void (*unpack_min)(const uint8_t *block, int8_t *q);

PN_INLINE void min_dequant(unpack_min unpack, int bytes, const uint8_t *w, float *out, int64_t n)
{
    int8_t q[32];
    for (; n > 0; n -= 32, w += bytes, out += 32) {
        float d = pn_load_f16(w), m = pn_load_f16(w + 2);
        unpack(w, q);
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)q[i] + m;
    }
}

/* offset: the codes are lowered by it and the minimum is raised by offset * d in return, which keeps the 16-bit partial
 * sums of the vector levels in range. It is part of the definition because m + offset * d is rounded. */
PN_INLINE float min_dot(unpack_min unpack, int bytes, int offset, const uint8_t *w, const pn_act *x, int t)
{
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 32), *xs = x->s + (size_t)t * (x->n / 32);
    float acc = 0;
    int8_t q[32];
    for (int b = 0; b < x->n / 32; b++, w += bytes, xq += 32) {
        float d = pn_load_f16(w), m = pn_load_f16(w + 2);
        unpack(w, q);
        for (int i = 0; i < 32; i++)
            q[i] -= offset;
        if (offset)
            m = fmaf((float)offset, d, m);
        acc = fmaf(d * xd[b], (float)pn_isum(q, xq, 32), acc);
        acc = fmaf(xs[b], m, acc);
    }
    return acc;
}

PN_REF_TYPE(q4_1, min_dequant(q4_1_codes, 20, w, out, n), min_dot(q4_1_codes, 20, 0, w, x, t))
PN_REF_TYPE(q5_1, min_dequant(q5_1_codes, 24, w, out, n), min_dot(q5_1_codes, 24, 16, w, x, t))

void pn_ref_types_q32(pn_kernels *k)
{
    PN_REF_SET(k, PN_Q4_0, "Q4_0", 32, 18, PN_ACT_Q32, q4_0);
    PN_REF_SET(k, PN_Q4_1, "Q4_1", 32, 20, PN_ACT_Q32, q4_1);
    PN_REF_SET(k, PN_Q5_0, "Q5_0", 32, 22, PN_ACT_Q32, q5_0);
    PN_REF_SET(k, PN_Q5_1, "Q5_1", 32, 24, PN_ACT_Q32, q5_1);
    PN_REF_SET(k, PN_Q8_0, "Q8_0", 32, 34, PN_ACT_Q32, q8_0);
}
