/* Matrix x matrix tiles of the 32-weight types: one tile product a block, K = 32, then a float step from exact sums.
 *
 * Panels are those of panels.h with codes made signed: what they were offset by is taken off when they are unpacked.
 * Packed input: see pack.h. The float accumulators of a unit are 16 vectors, lane = row.
 */
#include "pack.h"
#include "x86/tiles512.h"

enum {
    TOK = PN_TILE_TOK,          /* tokens of a tile: a chunk of the panel is read once for all of them */
    CHUNK = 32,        /* blocks of a panel that the first cache holds beside the input */
    DEPTH = 4          /* blocks in the tile registers */
};

TILE_INLINE ptrdiff_t q32_block(int has_min) { return Q32_M + (has_min ? PANEL_SET : 0); }

static size_t pack_bytes(int n, int n_tok) { return (size_t)units_of(n_tok) * (size_t)(n / 32) * Q32_UNIT; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const uint8_t *q[UNIT], *d[UNIT], *s[UNIT];
    const size_t row_bytes = (size_t)(x->n / 32) * 4;
    unit_rows(x->q, (size_t)x->n, t0, n_tok, q);
    unit_rows(x->d, row_bytes, t0, n_tok, d);
    unit_rows(x->s, row_bytes, t0, n_tok, s);
    for (int b = 0; b < x->n / 32; b++, packed += Q32_UNIT) {
        unit_codes(q, (size_t)b * 32, 32, n_tok, packed);
        _mm512_store_si512(packed + Q32_UNIT_D, unit_column(d, (size_t)b * 4, n_tok));
        _mm512_store_si512(packed + Q32_UNIT_S, unit_column(s, (size_t)b * 4, n_tok));
    }
}

/* acc = fma(d_w * d_x, isum, acc), then acc = fma(s_x, m, acc) */
TILE_INLINE void float_step(int has_min, const uint8_t *w, const uint8_t *x, const uint8_t *sums, __m512 *acc)
{
    const __m512 d = load_ps(w + Q32_D), m = has_min ? load_ps(w + Q32_M) : d;
    #pragma GCC unroll 16
    for (int t = 0; t < UNIT; t++) {
        const __m512 scale = _mm512_mul_ps(d, broadcast_ps(x + Q32_UNIT_D + t * 4));
        acc[t] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(load_512(sums + t * 64)), acc[t]);
        if (has_min)
            acc[t] = _mm512_fmadd_ps(m, broadcast_ps(x + Q32_UNIT_S + t * 4), acc[t]);
        KEEP_512(acc[t]);
    }
}

/* C number c = the sums of block i from w and x on */
#define BLOCK_SUMS(c, a, b, i) \
    do { \
        amx_zero(c); \
        amx_load(a, x + (i) * Q32_UNIT, 32); \
        amx_load(b, w + (i) * w_block, PANEL_SET); \
        amx_dot(c, a, b); \
    } while (0)

/* While the float step of block i - 4 is done, block i goes through the tile registers; that of i - 3, which has left
 * them, is stored for the next step. A store that waits for its sums would hold up everything after it. */
#define ROUND_STEP(c, a, b, next) \
    do { \
        BLOCK_SUMS(c, a, b, c); \
        float_step(has_min, w - (DEPTH - c) * w_block, x - (DEPTH - c) * Q32_UNIT, sums[c], acc); \
        amx_store(next, sums[next]); \
    } while (0)

/* The first DEPTH blocks of a unit or more, in rounds; returns how many. */
TILE_INLINE int rounds(int has_min, const uint8_t *w, const uint8_t *x, int n, __m512 *acc)
{
    uint8_t sums[DEPTH][AMX_TILE_BYTES] __attribute__((aligned(64)));
    const ptrdiff_t w_block = q32_block(has_min);
    int b = DEPTH;
    if (n < DEPTH)
        return 0;
    BLOCK_SUMS(0, 4, 6, 0);
    BLOCK_SUMS(1, 5, 7, 1);
    BLOCK_SUMS(2, 4, 6, 2);
    BLOCK_SUMS(3, 5, 7, 3);
    amx_store(0, sums[0]);
    for (; b + DEPTH <= n; b += DEPTH) {
        w += DEPTH * w_block;
        x += DEPTH * Q32_UNIT;
        ROUND_STEP(0, 4, 6, 1);
        ROUND_STEP(1, 5, 7, 2);
        ROUND_STEP(2, 4, 6, 3);
        ROUND_STEP(3, 5, 7, 0);
    }
    amx_store(1, sums[1]);
    amx_store(2, sums[2]);
    amx_store(3, sums[3]);
    for (int i = 0; i < DEPTH; i++)
        float_step(has_min, w + i * w_block, x + i * Q32_UNIT, sums[i], acc);
    return b;
}

/* n blocks of one unit; first: y begins here. */
TILE_INLINE void unit(int has_min, const uint8_t *w, const uint8_t *x, int n, int first, int n_tok, float *y,
                      size_t ldy)
{
    uint8_t sums[AMX_TILE_BYTES] __attribute__((aligned(64)));
    const ptrdiff_t w_block = q32_block(has_min);
    __m512 acc[UNIT];
    #pragma GCC unroll 16
    for (int t = 0; t < UNIT; t++)
        acc[t] = first || t >= n_tok ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (size_t)t * ldy);
    for (int b = rounds(has_min, w, x, n, acc); b < n; b++) {
        BLOCK_SUMS(0, 4, 6, b);
        amx_store(0, sums);
        float_step(has_min, w + b * w_block, x + b * Q32_UNIT, sums, acc);
    }
    #pragma GCC unroll 16
    for (int t = 0; t < UNIT; t++)
        if (t < n_tok)
            _mm512_storeu_ps(y + (size_t)t * ldy, acc[t]);
}

/* Some panels, columns [k0, k0 + n) of n_all; see tile_part in kernels.h. */
TILE_INLINE void strip(int n_panels, int has_min, const uint8_t *w, const uint8_t *x, int n_all, int k0, int n,
                       int n_tok, float *y, size_t ldy)
{
    const size_t w_block = (size_t)q32_block(has_min), x_unit = (size_t)(n_all / 32) * Q32_UNIT;
    const size_t panel_bytes = (size_t)(n / 32) * w_block;
    x += (size_t)(k0 / 32) * Q32_UNIT;
    amx_begin(32, UNIT, 6);
    prefetch_rows(y, ldy, n_tok, n_panels);
    for (int b = 0; b < n / 32; b += CHUNK) {
        const int count = n / 32 - b < CHUNK ? n / 32 - b : CHUNK;
        for (int i = 0; i < n_panels; i++)
            for (int t = 0; t < n_tok; t += UNIT)
                unit(has_min, w + (size_t)i * panel_bytes + (size_t)b * w_block,
                     x + (size_t)(t / UNIT) * x_unit + (size_t)b * Q32_UNIT, count, k0 + b == 0,
                     n_tok - t < UNIT ? n_tok - t : UNIT, y + (size_t)t * ldy + i * PN_PANEL, ldy);
    }
    amx_end();
}

AMX_TILE(tile_plain, strip, 0)
AMX_TILE(tile_min, strip, 1)

/* ---- panels: those of the level below, less the codes' offset ---------------------------------------------------- */

TILE_INLINE void take_offset(int offset, int has_min, int n, uint8_t *panel)
{
    for (int b = 0; b < n / 32; b++, panel += q32_block(has_min))
        #pragma GCC unroll 8
        for (int g = 0; g < PANEL_STEPS; g++)
            _mm512_store_si512(panel + g * PANEL_SET,
                               _mm512_sub_epi8(load_512(panel + g * PANEL_SET), _mm512_set1_epi8((char)offset)));
}

typedef void (*unpack_fn)(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel);

/* panels: the type whose panels the level below makes of it. */
#define SIGNED_TYPE(name, id, panels) \
    static unpack_fn lower_##name; \
    static void signed_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        lower_##name(w, row_bytes, n_rows, n, panel); \
        if (q32_offset_shift(panels)) \
            take_offset(1 << q32_offset_shift(panels), q32_has_min(panels), n, panel); \
    } \
    static void set_##name(pn_kernels *k) \
    { \
        pn_type_ops *ops = &k->type[id]; \
        lower_##name = ops->unpack; \
        tiles_set(ops, TOK, ops->panel_bytes, signed_##name, pack_bytes, pack_x, \
                  q32_has_min(panels) ? tile_min : tile_plain); \
        ops->tile_part = q32_has_min(panels) ? tile_min_part : tile_plain_part; \
        ops->pack_tok = UNIT; \
    }

#define TYPES(X) \
    X(q4_0, PN_Q4_0, PN_Q4_0) \
    X(q4_1, PN_Q4_1, PN_Q4_1) \
    X(q5_0, PN_Q5_0, PN_Q5_0) \
    X(q5_1, PN_Q5_1, PN_Q5_1) \
    X(q8_0, PN_Q8_0, PN_Q8_0) \
    X(iq4_nl, PN_IQ4_NL, PN_Q8_0) \
    X(mxfp4, PN_MXFP4, PN_Q5_0) \
    X(q1_0, PN_Q1_0, PN_Q5_0) \
    X(q2_0, PN_Q2_0, PN_Q5_0)
#define SET_TYPE(name, id, panels) set_##name(k);

TYPES(SIGNED_TYPE)

void pn_amx_tiles_q32(pn_kernels *k)
{
    TYPES(SET_TYPE)
}
