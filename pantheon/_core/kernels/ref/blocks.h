/* The definition of a product with quantised weights, written once for every type.
 *
 * A type gives one function that unpacks a block into small integers and scales; what it means to dequantise the
 * block and to multiply it with quantised activations follows here. Sums are exact integers within a block (or a
 * sub-block with a float scale of its own); between blocks there is one float accumulator and one fused multiply-add
 * per scale, in order.
 */
#ifndef PN_REF_BLOCKS_H
#define PN_REF_BLOCKS_H

#include <math.h>
#include "bits.h"
#include "kernels.h"

#define PN_INLINE static inline __attribute__((always_inline))

PN_INLINE int32_t pn_isum(const int8_t *a, const int8_t *b, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- types of n codes with one float scale per sub-block of sub codes: y = d * q ---- */

typedef struct pn_codes {
    float d[4];
    int8_t q[128];
} pn_codes;

typedef void (*pn_unpack_codes)(const uint8_t *block, pn_codes *c);

PN_INLINE void pn_codes_dequant(pn_unpack_codes unpack, int size, int bytes, int sub, const uint8_t *w, float *out,
                               int64_t n)
{
    pn_codes c;
    for (; n > 0; n -= size, w += bytes, out += size) {
        unpack(w, &c);
        for (int i = 0; i < size; i++)
            out[i] = c.d[i / sub] * (float)c.q[i];
    }
}

PN_INLINE float pn_codes_dot(pn_unpack_codes unpack, int size, int bytes, int sub, const uint8_t *w, const pn_act *x,
                            int t)
{
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 32);
    float acc = 0;
    pn_codes c;
    for (int i = 0; i < x->n; i += size, w += bytes) {
        unpack(w, &c);
        for (int k = 0; k < size; k += sub)
            acc = fmaf(c.d[k / sub] * xd[(i + k) / 32], (float)pn_isum(c.q + k, xq + i + k, sub), acc);
    }
    return acc;
}

/* ---- super-blocks of 256 codes with integer scales per 16: y = (d * sc) * q - m * mn ---- */

typedef struct pn_super {
    float d, m;
    int16_t sc[16], mn[16]; /* mn and m only where the type has minimums */
    int8_t q[256];
} pn_super;

typedef void (*pn_unpack_super)(const uint8_t *block, pn_super *s);

PN_INLINE void pn_super_dequant(pn_unpack_super unpack, int bytes, int has_min, const uint8_t *w, float *out, int64_t n)
{
    pn_super s;
    for (; n > 0; n -= 256, w += bytes, out += 256) {
        unpack(w, &s);
        for (int i = 0; i < 256; i++) {
            float v = s.d * (float)s.sc[i / 16] * (float)s.q[i];
            out[i] = has_min ? v - s.m * (float)s.mn[i / 16] : v;
        }
    }
}

PN_INLINE float pn_super_dot(pn_unpack_super unpack, int bytes, int has_min, const uint8_t *w, const pn_act *x, int t)
{
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 256);
    const int16_t *xsum = x->sum + (size_t)t * (x->n / 16);
    float acc = 0;
    pn_super s;
    for (int b = 0; b < x->n / 256; b++, w += bytes, xq += 256, xsum += 16) {
        int32_t isum = 0, msum = 0;
        unpack(w, &s);
        for (int k = 0; k < 16; k++) {
            isum += s.sc[k] * pn_isum(s.q + 16 * k, xq + 16 * k, 16);
            if (has_min)
                msum += s.mn[k] * xsum[k];
        }
        acc = fmaf(s.d * xd[b], (float)isum, acc);
        if (has_min)
            acc = fmaf(-(s.m * xd[b]), (float)msum, acc);
    }
    return acc;
}

/* The three functions of a type, from an expression for the dequantised row and one for the product. */
#define PN_REF_TYPE(type, dequant_row, dot_row) \
    static void type##_dequant(const uint8_t *w, float *out, int64_t n) { dequant_row; } \
    static void type##_dot1(const uint8_t *w, const pn_act *x, int t, float *out) { *out = dot_row; } \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        for (int r = 0; r < 8; r++) \
            type##_dot1(w + r * stride, x, t, out + r * os); \
    }

#define PN_REF_CODES(type, size, bytes, sub) \
    PN_REF_TYPE(type, pn_codes_dequant(type##_unpack, size, bytes, sub, w, out, n), \
                pn_codes_dot(type##_unpack, size, bytes, sub, w, x, t))

#define PN_REF_SUPER(type, bytes, has_min) \
    PN_REF_TYPE(type, pn_super_dequant(type##_unpack, bytes, has_min, w, out, n), \
                pn_super_dot(type##_unpack, bytes, has_min, w, x, t))

#define PN_REF_SET(k, id, type_name, size, bytes, act_kind, prefix) \
    (k)->type[id] = (pn_type_ops){.name = type_name, .block = size, .block_bytes = bytes, .act = act_kind, \
                                  .dequant = prefix##_dequant, .dot8 = prefix##_dot8, .dot1 = prefix##_dot1}

#endif
