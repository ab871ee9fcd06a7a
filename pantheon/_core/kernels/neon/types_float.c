/* F32, F16, BF16: vector products. */
#include "row_product.h"

#define FLOAT_TYPE(type, size) \
    static void type##_dot1(const uint8_t *w, const pn_act *x, int t, float *out) \
    { \
        *out = row_product(load_##type##x8, load_##type, size, w, x->f + (size_t)t * x->n, x->n); \
    } \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        for (size_t r = 0; r < 8; r++) \
            type##_dot1(w + r * stride, x, t, out + r * os); \
    }

FLOAT_TYPE(f32, 4)
FLOAT_TYPE(f16, 2)
FLOAT_TYPE(bf16, 2)

void PN_NEON(types_float)(pn_kernels *k)
{
    NEON_SET(k, PN_F32, f32);
    NEON_SET(k, PN_F16, f16);
    NEON_SET(k, PN_BF16, bf16);
}
