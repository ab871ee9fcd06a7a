/* Everything on float vectors: quantising, norms, activations, softmax, rotation. */
#include <math.h>
#include <string.h>

#include "crosscheck.h"

enum { MOST = 4099 };

static float in[3][MOST], got[MOST], expected[MOST];

/* kind 0: ordinary numbers; 1: with large and tiny ones; 2: with infinities and NaN. */
static void fill(float *x, int n, int kind)
{
    static const float SPECIALS[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, 1e20f, -90.0f, 90.0f,
                                     INFINITY, -INFINITY, NAN};
    for (int i = 0; i < n; i++) {
        x[i] = random_float(4);
        if (kind && random_below(7) == 0)
            x[i] = SPECIALS[random_below(kind == 1 ? 9 : 12)];
    }
}

#define IN_PLACE(name, ...) \
    do { \
        memcpy(got, in[0], sizeof got); \
        memcpy(expected, in[0], sizeof expected); \
        level->name(got, __VA_ARGS__); \
        ref->name(expected, __VA_ARGS__); \
        same_floats(got, expected, MOST, #name ", n %d, kind %d", n, kind); \
    } while (0)

static void check_length(int n, int kind)
{
    for (int i = 0; i < 3; i++)
        fill(in[i], MOST, kind);
    level->rms_norm(in[0], in[1], 1e-5f, n, got);
    ref->rms_norm(in[0], in[1], 1e-5f, n, expected);
    same_floats(got, expected, (size_t)n, "rms_norm, n %d, kind %d", n, kind);
    level->layer_norm(in[0], in[1], in[2], 1e-5f, n, got);
    ref->layer_norm(in[0], in[1], in[2], 1e-5f, n, expected);
    same_floats(got, expected, (size_t)n, "layer_norm, n %d, kind %d", n, kind);
    IN_PLACE(add, in[1], n);
    IN_PLACE(scale_add, in[1], 0.37f, n);
    IN_PLACE(silu_mul, in[1], n);
    IN_PLACE(gelu_tanh, n);
    IN_PLACE(softmax, n);
    IN_PLACE(attn_finish, 0.77f, n);
    const int best = level->argmax(in[0], n), wanted = ref->argmax(in[0], n);
    same_bytes(&best, &wanted, sizeof best, "argmax, n %d, kind %d", n, kind);
    for (int n_pair = n / 2; n_pair > 0 && n <= 256; n_pair /= 2) {
        IN_PLACE(rope_norm, 3, n, in[1], n_pair);
        IN_PLACE(rope_neox, 3, n, in[1], n_pair);
    }
}

static void check_quantize(pn_act_kind kind, int n_block, int special)
{
    const int block = kind == PN_ACT_Q32 ? 32 : 256, n = n_block * block, n_tok = 2;
    const size_t all = (size_t)n * (size_t)n_tok;
    pn_act x[2];
    float *f = aligned(all * 4);
    fill(f, (int)all, special);
    if (special == 1) /* blocks around the smallest magnitude that is not stored as zeros */
        for (int i = 0; i < block; i++)
            f[i] *= 0x1p-101f;
    for (int i = 0; i < 2; i++) {
        x[i] = (pn_act){.n = n, .n_tok = n_tok, .f = f, .q = aligned(all), .d = aligned(all / 32 * 4),
                        .s = aligned(all / 32 * 4), .bsum = aligned(all / 32 * 4), .sum = aligned(all / 16 * 2)};
        for (int t = 0; t < n_tok; t++)
            (i ? ref : level)->quantize[kind](&x[i], t);
    }
    same_bytes(x[0].q, x[1].q, all, "quantize %d codes, %d blocks, kind %d", kind, n_block, special);
    same_floats(x[0].d, x[1].d, all / 32, "quantize %d scales, %d blocks, kind %d", kind, n_block, special);
    same_floats(x[0].s, x[1].s, all / 32, "quantize %d s, %d blocks, kind %d", kind, n_block, special);
    same_bytes(x[0].bsum, x[1].bsum, all / 32 * 4, "quantize %d bsum, %d blocks, kind %d", kind, n_block, special);
    same_bytes(x[0].sum, x[1].sum, all / 16 * 2, "quantize %d sums, %d blocks, kind %d", kind, n_block, special);
    release();
}

void check_floats(void)
{
    static const int LONG[] = {127, 128, 256, 576, 1000, MOST};
    for (int kind = 0; kind < 3; kind++) {
        for (int n = 1; n <= 70; n++)
            check_length(n, kind);
        for (int i = 0; i < 6; i++)
            check_length(LONG[i], kind);
        for (int n_block = 1; n_block <= 9; n_block++) {
            check_quantize(PN_ACT_Q32, n_block, kind);
            check_quantize(PN_ACT_Q256, n_block, kind);
        }
    }
}
