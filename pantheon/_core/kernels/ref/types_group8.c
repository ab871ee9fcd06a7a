/* int8 with one scale per 32 weights, made at load: blocks of a f32 scale and 32 codes. The input has codes of 16 bits:
 * what is lost is the rounding of the weights alone.
 * y = sum over blocks of 32, in order, of (d_w * d_x) * (exact integer sum). */
#include <float.h>
#include <string.h>

#include "blocks.h"

enum { SIZE = 32, BYTES = 4 + SIZE, TRIED = 8, WIDEST = 32000 };

static const float SHIFT = 0x1.8p+23f; /* adding it and taking it away rounds to an integer, halves to even */

PN_INLINE float scale_of(const uint8_t *block) { return pn_bits_to_f32(pn_load32(block)); }

static void dequant_all(const uint8_t *w, float *out, int64_t n)
{
    for (int64_t b = 0; b < n / SIZE; b++, w += BYTES)
        for (int i = 0; i < SIZE; i++)
            out[b * SIZE + i] = scale_of(w) * (float)((const int8_t *)w)[4 + i];
}

static float dot(const uint8_t *w, const pn_act *x, int t)
{
    const int16_t *xq = x->wide + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / SIZE);
    float acc = 0;
    for (int b = 0; b < x->n / SIZE; b++, w += BYTES, xq += SIZE) {
        const int8_t *q = (const int8_t *)(w + 4);
        int32_t sum = 0;
        for (int i = 0; i < SIZE; i++)
            sum += q[i] * xq[i];
        acc = fmaf(scale_of(w) * xd[b], (float)sum, acc);
    }
    return acc;
}

PN_REF_TYPE(group8, dequant_all(w, out, n), dot(w, x, t))

static float largest(const float *x)
{
    float amax = 0;
    for (int i = 0; i < SIZE; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    return amax;
}

/* Codes of a block under scale d; returns their squared error. */
static float encode(const float *x, float d, int8_t *q)
{
    float lane[8] = {0};
    for (int i = 0; i < SIZE; i++) {
        float v = x[i] / d;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        v = (v + SHIFT) - SHIFT;
        q[i] = (int8_t)(int)v;
        float e = x[i] - d * v;
        lane[i % 8] += e * e;
    }
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* The scale is the one of TRIED, from max|x| / 127 to 6 % more, that loses least, the smallest of equal ones. 0 where that
 * is no normal number: the block is lost then, which is less than 1e-36. */
static void group8_quantize(const float *x, int n, uint8_t *w)
{
    for (int b = 0; b < n / SIZE; b++, x += SIZE, w += BYTES) {
        const float least = largest(x) / 127.0f;
        float best = INFINITY;
        memset(w, 0, BYTES);
        for (int k = 0; k < TRIED && least >= FLT_MIN; k++) {
            const float d = least * (1.0f + 0.06f * (float)k / (float)(TRIED - 1));
            int8_t q[SIZE];
            float error = encode(x, d, q);
            if (k == 0 || error < best) {
                best = error;
                memcpy(w, &d, 4);
                memcpy(w + 4, q, SIZE);
            }
        }
    }
}

/* d = max|x| / WIDEST, codes rounded to nearest even; 0 where that is no normal number */
static void quantize_wide(pn_act *x, int t)
{
    const int n_block = x->n / SIZE;
    const float *f = x->f + (size_t)t * x->n;
    int16_t *q = x->wide + (size_t)t * x->n;
    for (int b = 0; b < n_block; b++, f += SIZE, q += SIZE) {
        float d = largest(f) / (float)WIDEST;
        const int lost = !(d >= FLT_MIN);
        const float inverse = lost ? 0.0f : 1.0f / d;
        for (int i = 0; i < SIZE; i++) {
            if (f[i] != f[i])
                d = f[i];                /* not a number: the products are to be none either */
            float v = f[i] * inverse;
            v = v < 32767.0f ? v : 32767.0f;
            v = v > -32767.0f ? v : -32767.0f;
            q[i] = (int16_t)(int)((v + SHIFT) - SHIFT);
        }
        x->d[(size_t)t * n_block + b] = lost && d == d ? 0.0f : d;
    }
}

void pn_ref_types_group8(pn_kernels *k)
{
    k->group8 = (pn_type_ops){.name = "int8 per 32", .block = SIZE, .block_bytes = BYTES, .act = PN_ACT_WIDE,
                              .dequant = group8_dequant, .dot8 = group8_dot8, .dot1 = group8_dot1};
    k->group8_quantize = group8_quantize;
    k->quantize[PN_ACT_WIDE] = quantize_wide;
}
