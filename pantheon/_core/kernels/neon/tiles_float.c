/* Matrix x matrix tiles of F32, F16 and BF16. The panel is the 16 rows as f32, so a weight is converted once for all
 * tokens; packed input is the input. Each product is the row product of the vector path. */
#include "row_product.h"
#include "tiles.h"

enum { FLOAT_TOK = 4 };

static size_t panel_bytes(int n) { return (size_t)n * PN_PANEL * sizeof(float); }
static size_t pack_bytes(int n, int n_tok) { return (size_t)n * (size_t)n_tok * sizeof(float); }

NEON_INLINE void unpack(load8_fn load8, load1_fn load1, int size, const uint8_t *w, size_t row_bytes, int n_rows, int n,
                        uint8_t *panel)
{
    float *out = (float *)panel;
    for (int r = 0; r < n_rows; r++, w += row_bytes, out += n) {
        int i = 0;
        for (; i + 8 <= n; i += 8)
            f32x8_store(out + i, load8(w + i * size));
        for (; i < n; i++)
            out[i] = load1(w + i * size);
    }
    memset(out, 0, (size_t)(PN_PANEL - n_rows) * (size_t)n * sizeof(float));
}

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    memcpy(packed, x->f + (size_t)t0 * (size_t)x->n, pack_bytes(x->n, n_tok));
}

static void tile(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy)
{
    for (int r = 0; r < PN_PANEL; r++, panel += (size_t)n * sizeof(float))
        for (int t = 0; t < n_tok; t++)
            y[(size_t)t * ldy + r] = row_product(load_f32x8, load_f32, 4, panel,
                                                 (const float *)packed + (size_t)t * n, n);
}

#define FLOAT_TILE(type, size) \
    static void unpack_##type(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(load_##type##x8, load_##type, size, w, row_bytes, n_rows, n, panel); \
    }

FLOAT_TILE(f32, 4)
FLOAT_TILE(f16, 2)
FLOAT_TILE(bf16, 2)

void PN_NEON(tiles_float)(pn_kernels *k)
{
    tiles_set(&k->type[PN_F32], FLOAT_TOK, panel_bytes, unpack_f32, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_F16], FLOAT_TOK, panel_bytes, unpack_f16, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_BF16], FLOAT_TOK, panel_bytes, unpack_bf16, pack_bytes, pack_x, tile);
}
