/* int8 with one scale per row, made at load: a f32 scale, then n codes (n a multiple of 32).
 * y = scale * sum over blocks of 32, in order, of d * (exact integer sum). */
#include <string.h>

#include "blocks.h"

PN_INLINE float row_scale(const uint8_t *w) { return pn_bits_to_f32(pn_load32(w)); }

static void row8_dequant_all(const uint8_t *w, float *out, int64_t n)
{
    const int8_t *q = (const int8_t *)(w + 4);
    for (int64_t i = 0; i < n; i++)
        out[i] = row_scale(w) * (float)q[i];
}

static float row8_dot(const uint8_t *w, const pn_act *x, int t)
{
    const int8_t *q = (const int8_t *)(w + 4), *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 32);
    float acc = 0;
    for (int b = 0; b < x->n / 32; b++)
        acc = fmaf(xd[b], (float)pn_isum(q + 32 * b, xq + 32 * b, 32), acc);
    return row_scale(w) * acc;
}

PN_REF_TYPE(row8, row8_dequant_all(w, out, n), row8_dot(w, x, t))

/* scale = max|x| / 127, 1 for a row of zeros; codes rounded to nearest even */
static void row8_quantize(const float *x, int n, uint8_t *w)
{
    const float shift = 0x1.8p+23f; /* adding it rounds to an integer */
    int8_t *q = (int8_t *)(w + 4);
    float amax = 0, scale = 1;
    for (int i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    if (amax / 127.0f > 0)
        scale = amax / 127.0f;
    memcpy(w, &scale, 4);
    for (int i = 0; i < n; i++) {
        float v = x[i] / scale;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        q[i] = (int8_t)(int)((v + shift) - shift);
    }
}

void pn_ref_types_row8(pn_kernels *k)
{
    k->row8 = (pn_type_ops){.name = "int8 per row", .block = 32, .block_bytes = 32, .act = PN_ACT_Q32, .level = "ref",
                            .dequant = row8_dequant, .dot8 = row8_dot8, .dot1 = row8_dot1};
    k->row8_quantize = row8_quantize;
}
