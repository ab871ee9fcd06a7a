/* Ternary matrices whose scale belongs to the whole matrix, and their input: one int8 scale a token.
 *
 * A product is the exact integer sum of (code - 1) * q over the row, returned as a float, which holds it exactly up to
 * 131072 elements; the caller multiplies it by the token's scale and the matrix's. */
#include <math.h>

#include "exp.h"
#include "kernels.h"
#include "lanes.h"

/* Inputs below this count as this: what the models were trained with. */
#define AMAX_LEAST 1e-5f

static void quantize_row(pn_act *x, int t)
{
    size_t n = (size_t)x->n;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float amax = 0.0f;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        amax = pn_max(fabsf(f[i]), amax);
    amax = pn_max(amax, AMAX_LEAST);
    float id = 127.0f / amax;
    for (size_t i = 0; i < n; i++) {
        float v = f[i] * id;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        q[i] = (int8_t)(int)((v + PN_EXP_SHIFT) - PN_EXP_SHIFT); /* round to nearest even */
        sum += q[i];
    }
    x->d[t] = amax / 127.0f;
    x->bsum[t] = sum;
}

static int t2_code(const uint8_t *row, int c, int k)
{
    return row[c] >> 2 * k & 3;
}

/* Element c of an I2_S row: groups of 128 in 32 bytes, quarters of a group in bit pairs, the highest first. */
static int i2_s_code(const uint8_t *row, int64_t c)
{
    return row[c / 128 * 32 + c % 32] >> (6 - 2 * (c % 128 / 32)) & 3;
}

static void t2_rows_dot1(const uint8_t *row, const pn_act *x, int t, float *out)
{
    const int8_t *q = x->q + (size_t)t * x->n;
    for (int k = 0; k < 4; k++) {
        int32_t sum = 0;
        for (int c = 0; c < x->n; c++)
            sum += (t2_code(row, c, k) - 1) * q[c];
        out[k] = (float)sum;
    }
}

static void i2_s_dot1(const uint8_t *row, const pn_act *x, int t, float *out)
{
    const int8_t *q = x->q + (size_t)t * x->n;
    int32_t sum = 0;
    for (int c = 0; c < x->n; c++)
        sum += (i2_s_code(row, c) - 1) * q[c];
    *out = (float)sum;
}

static void i2_s_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    for (int r = 0; r < 8; r++)
        i2_s_dot1(w + r * stride, x, t, out + r * os);
}

static void i2_s_dequant(const uint8_t *row, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(i2_s_code(row, i) - 1);
}

void pn_ref_ternary(pn_kernels *k)
{
    k->quantize[PN_ACT_ROW] = quantize_row;
    k->type[PN_I2_S] = (pn_type_ops){.name = "I2_S", .block = 128, .block_bytes = 32, .act = PN_ACT_ROW,
                                     .dequant = i2_s_dequant, .dot8 = i2_s_dot8, .dot1 = i2_s_dot1};
    k->type[PN_T2_ROWS] = (pn_type_ops){.name = "T2_ROWS", .block = 1, .block_bytes = 1, .act = PN_ACT_ROW,
                                        .dot1 = t2_rows_dot1, .packed_rows = 4};
}
