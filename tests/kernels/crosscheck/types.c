/* Weight types: vector products and matrix tiles of the level against ref's products. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "crosscheck.h"

/* Where a block has its f16 numbers; those of the last three are set below. A type that gets functions at some level
 * needs its line here. */
static const struct {
    int type, at[2];
} SCALES[] = {
    {PN_Q4_0, {0, -1}}, {PN_Q4_1, {0, 2}}, {PN_Q5_0, {0, -1}}, {PN_Q5_1, {0, 2}}, {PN_Q8_0, {0, -1}},
    {PN_Q2_K, {80, 82}}, {PN_Q3_K, {108, -1}}, {PN_Q4_K, {0, 2}}, {PN_Q5_K, {0, 2}}, {PN_Q6_K, {208, -1}},
    {PN_IQ2_XXS, {0, -1}}, {PN_IQ2_XS, {0, -1}}, {PN_IQ2_S, {0, -1}}, {PN_IQ3_XXS, {0, -1}}, {PN_IQ3_S, {0, -1}},
    {PN_IQ1_S, {0, -1}}, {PN_IQ4_NL, {0, -1}}, {PN_IQ4_XS, {0, -1}}, {PN_TQ1_0, {52, -1}}, {PN_TQ2_0, {64, -1}},
    {PN_Q1_0, {0, -1}}, {PN_Q2_0, {0, -1}}, {PN_IQ1_M, {-1, -1}}, {PN_MXFP4, {-1, -1}}, {PN_NVFP4, {-1, -1}},
};
enum { N_SCALES = sizeof SCALES / sizeof *SCALES };

static int is_float(int type) { return type == PN_F32 || type == PN_F16 || type == PN_BF16; }

int has_own(int type) { return level->type[type].dot8 != ref->type[type].dot8 || level->type[type].tile != NULL; }

size_t row_bytes(int type, int n)
{
    const pn_type_ops *ops = &ref->type[type];
    return (size_t)(n / ops->block) * (size_t)ops->block_bytes;
}

static uint16_t random_half(void) /* normal, at most 0.06 in size */
{
    return (uint16_t)((random_bits() & 0x83FF) | (uint64_t)(1 + random_below(10)) << 10);
}

/* Scales that are no f16 number in one piece. */
static void set_odd_scale(int type, uint8_t *block)
{
    if (type == PN_MXFP4) /* 2^(e - 128) */
        block[0] = (uint8_t)(120 + random_below(10));
    for (int i = 0; type == PN_NVFP4 && i < 4; i++) /* unsigned float of 8 bits; 0x7F and 0xFF are not numbers */
        block[i] = (uint8_t)(16 + random_below(80));
    const int half = random_half();
    for (int i = 0; type == PN_IQ1_M && i < 4; i++) /* an f16 number in the upper nibbles of four words */
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
}

static void put16(uint8_t *p, uint16_t h) { memcpy(p, &h, 2); }

void fill_rows(int type, uint8_t *w, int n_rows, int n, int pattern)
{
    const pn_type_ops *ops = &ref->type[type];
    const size_t total = row_bytes(type, n) * (size_t)n_rows;
    if (is_float(type)) {
        for (size_t i = 0; i < total; i += (size_t)ops->block_bytes) {
            float x = random_float(2);
            uint32_t bits;
            memcpy(&bits, &x, 4);
            if (type == PN_F32)
                memcpy(w + i, &x, 4);
            else
                put16(w + i, type == PN_F16 ? random_half() : (uint16_t)(bits >> 16));
        }
        return;
    }
    for (size_t i = 0; i < total; i++)
        w[i] = pattern < 0 ? (uint8_t)random_bits() : (uint8_t)pattern;
    for (int s = 0; s < N_SCALES; s++)
        if (SCALES[s].type == type) {
            for (size_t i = 0; i < total; i += (size_t)ops->block_bytes) {
                if (SCALES[s].at[0] < 0)
                    set_odd_scale(type, w + i);
                else
                    for (int f = 0; f < 2 && SCALES[s].at[f] >= 0; f++)
                        put16(w + i + SCALES[s].at[f], random_half());
            }
            return;
        }
    fprintf(stderr, "crosscheck: types.c does not know where %s has its scales\n", ops->name);
    exit(2);
}

pn_act random_input(int type, int n, int n_tok, int extreme)
{
    const size_t all = (size_t)n * (size_t)n_tok;
    pn_act x = {.n = n, .n_tok = n_tok};
    float *f = aligned(all * 4);
    for (size_t i = 0; i < all; i++)
        f[i] = extreme == 0 ? random_float(3) : extreme == 1 || (extreme == 3 && i % 7 < 3) ? 2.0f : -2.0f;
    x.f = f;
    if (ref->type[type].act == PN_ACT_F32)
        return x;
    x.q = aligned(all);
    x.d = aligned(all / 32 * 4);
    x.s = aligned(all / 32 * 4);
    x.bsum = aligned(all / 32 * 4);
    x.sum = aligned(all / 16 * 2);
    for (int t = 0; t < n_tok; t++)
        ref->quantize[ref->type[type].act](&x, t);
    return x;
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

enum { GROUP = 2, ROWS = 8 * GROUP, TOKENS = 3 };

static void check_vectors(int type, int n, size_t slack, int pattern, int extreme)
{
    const size_t bytes = row_bytes(type, n);
    uint8_t *w = guarded(bytes * ROWS, slack);
    float expected[ROWS], by8[ROWS], by1[ROWS];
    fill_rows(type, w, ROWS, n, pattern);
    const pn_act x = random_input(type, n, TOKENS, extreme);
    for (int r = 0; r < ROWS; r++) {
        ref->type[type].dot1(w + (size_t)r * bytes, &x, TOKENS - 1, expected + r);
        level->type[type].dot1(w + (size_t)r * bytes, &x, TOKENS - 1, by1 + r);
    }
    for (int r = 0; r < GROUP; r++)
        level->type[type].dot8(w + (size_t)r * bytes, GROUP * bytes, &x, TOKENS - 1, by8 + r, GROUP);
    const char *name = ref->type[type].name;
    same_floats(by1, expected, ROWS, "%s dot1, n %d, slack %zu, codes %d, input %d", name, n, slack, pattern, extreme);
    same_floats(by8, expected, ROWS, "%s dot8, n %d, slack %zu, codes %d, input %d", name, n, slack, pattern, extreme);
    release();
}

static const int LENGTHS[] = {1, 2, 3, 5, 8, 17};
static const int FLOAT_LENGTHS[] = {1, 3, 7, 8, 9, 15, 16, 24, 31, 32, 33, 40, 63, 64, 65, 100, 127, 257, 576};
static const int PATTERNS[] = {-1, 0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

void check_types(void)
{
    for (int type = 0; type < PN_TYPE_COUNT; type++) {
        if (!ref->type[type].name || !has_own(type))
            continue;
        if (ref->type[type].act == PN_ACT_ROW) /* codes without scales: tests/kernels/test_ternary.py */
            continue;
        const int floats = is_float(type);
        for (int i = 0; i < (floats ? COUNT(FLOAT_LENGTHS) : COUNT(LENGTHS)); i++) {
            const int n = floats ? FLOAT_LENGTHS[i] : LENGTHS[i] * ref->type[type].block;
            for (size_t slack = 0; slack < 5; slack++)
                for (int p = 0; p < (floats ? 1 : COUNT(PATTERNS)); p++)
                    for (int extreme = 0; extreme < (floats ? 1 : 4); extreme++)
                        check_vectors(type, n, slack, PATTERNS[p], extreme);
        }
    }
    for (int type = 0; type < PN_TYPE_COUNT; type++) /* values: all bytes, not numbers too */
        if (ref->type[type].name && ref->type[type].act != PN_ACT_ROW
            && level->type[type].dequant != ref->type[type].dequant) {
            const int n = 24 * ref->type[type].block;
            uint8_t *w = guarded(row_bytes(type, n), 1);
            float got[24 * 256], expected[24 * 256];
            for (size_t i = 0; i < row_bytes(type, n); i++)
                w[i] = (uint8_t)random_bits();
            ref->type[type].dequant(w, expected, n);
            level->type[type].dequant(w, got, n);
            same_floats(got, expected, (size_t)n, "%s dequant", ref->type[type].name);
            release();
        }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static void check_tile(int type, int n, int n_rows, int n_tok, size_t slack, int pattern, int extreme)
{
    const pn_type_ops *ops = &level->type[type];
    const size_t bytes = row_bytes(type, n), unit = (ops->pack_bytes(n, ops->pack_tok) + 63) / 64 * 64;
    float *y = aligned((size_t)n_tok * PN_PANEL * 4), expected[PN_TILE_TOK * PN_PANEL] = {0};
    uint8_t *w = guarded(bytes * (size_t)n_rows, slack);
    uint8_t *panel = aligned(ops->panel_bytes(n)), *packed = aligned(unit * (size_t)((n_tok + ops->pack_tok - 1) / ops->pack_tok));
    fill_rows(type, w, n_rows, n, pattern);
    const pn_act x = random_input(type, n, n_tok + 1, extreme);
    memset(panel, 0xA5, ops->panel_bytes(n));
    ops->unpack(w, bytes, n_rows, n, panel);
    for (int t = 0; t < n_tok; t += ops->pack_tok)
        ops->pack_x(&x, 1 + t, n_tok - t < ops->pack_tok ? n_tok - t : ops->pack_tok,
                    packed + unit * (size_t)(t / ops->pack_tok));
    ops->tile(panel, packed, n, n_tok, y, PN_PANEL);
    for (int t = 0; t < n_tok; t++)
        for (int r = 0; r < n_rows; r++)
            ref->type[type].dot1(w + (size_t)r * bytes, &x, t + 1, expected + t * PN_PANEL + r);
    same_floats(y, expected, (size_t)(n_tok * PN_PANEL),
                "%s tile, n %d, %d rows, %d tokens, slack %zu, codes %d, input %d", ops->name, n, n_rows, n_tok,
                slack, pattern, extreme);
    release();
}

/* Two parts of the columns, three panels at once. */
static void check_parts(int type, int n, int n_tok)
{
    const pn_type_ops *ops = &level->type[type];
    const size_t bytes = row_bytes(type, n), unit = (ops->pack_bytes(n, ops->pack_tok) + 63) / 64 * 64;
    enum { PANELS = 3, N_ROWS = PANELS * PN_PANEL };
    float *y = aligned((size_t)n_tok * N_ROWS * 4), *expected = aligned((size_t)n_tok * N_ROWS * 4);
    uint8_t *w = guarded(bytes * N_ROWS, 0), *panels = aligned(PANELS * ops->panel_bytes(n));
    uint8_t *packed = aligned(unit * (size_t)((n_tok + ops->pack_tok - 1) / ops->pack_tok));
    fill_rows(type, w, N_ROWS, n, -1);
    const pn_act x = random_input(type, n, n_tok, 0);
    for (int t = 0; t < n_tok; t += ops->pack_tok)
        ops->pack_x(&x, t, n_tok - t < ops->pack_tok ? n_tok - t : ops->pack_tok,
                    packed + unit * (size_t)(t / ops->pack_tok));
    for (int k = 0; k < n; k += 256) {
        const size_t columns = ops->panel_bytes(256);
        for (int p = 0; p < PANELS; p++)
            ops->unpack(w + (size_t)(p * PN_PANEL) * bytes + row_bytes(type, k), bytes, PN_PANEL, 256,
                        panels + (size_t)p * columns);
        ops->tile_part(panels, PANELS, packed, n, k, 256, n_tok, y, N_ROWS);
    }
    for (int t = 0; t < n_tok; t++)
        for (int r = 0; r < N_ROWS; r++)
            ref->type[type].dot1(w + (size_t)r * bytes, &x, t, expected + t * N_ROWS + r);
    same_floats(y, expected, (size_t)(n_tok * N_ROWS), "%s parts, n %d, %d tokens", ops->name, n, n_tok);
    release();
}

void check_tiles(void)
{
    for (int type = 0; type < PN_TYPE_COUNT; type++) {
        const pn_type_ops *ops = &level->type[type];
        if (!ops->name || !ops->tile)
            continue;
        const int floats = is_float(type), n = floats ? 77 : 2 * ops->block;
        for (int n_tok = 1; n_tok <= ops->tile_tok; n_tok++)
            for (int i = 0; i < (floats ? COUNT(FLOAT_LENGTHS) : 4); i++)
                check_tile(type, floats ? FLOAT_LENGTHS[i] : LENGTHS[i] * ops->block, PN_PANEL, n_tok, 0, -1, 0);
        for (int n_rows = 1; n_rows <= PN_PANEL; n_rows++)
            check_tile(type, n, n_rows, 1 + n_rows % ops->tile_tok, (size_t)n_rows % 5, -1, 0);
        for (int n_tok = 1; ops->tile_part && n_tok <= ops->tile_tok; n_tok += 19)
            check_parts(type, 512, n_tok);
        for (int p = 0; p < (floats ? 0 : COUNT(PATTERNS)); p++)
            for (int extreme = 0; extreme < 4; extreme++)
                check_tile(type, n, PN_PANEL, ops->tile_tok, 1, PATTERNS[p], extreme);
    }
}
