/* Matrix x matrix tiles of the types with super-blocks of 256 weights: 8 tile products of K = 64 a block, 4 for each
 * plane, then a float step from exact sums.
 *
 * Panels: see planes.h. Packed input: see pack.h. Two panels share what is loaded of the input: the second cache cannot
 * feed more. The float steps of a block are spread between the tile products of the next one.
 */
#include "pack.h"
#include "planes.h"
#include "unpack_k.h"

enum { TOK = PN_TILE_TOK, SPREAD = UNIT / 8 };

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* 8 int32 in the range of int16 */
TILE_INLINE __m128i narrowed(__m256i v)
{
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08));
}

/* n_sums pairs of sums of one token's block, 16 codes each (8) or 32 (4), from its 16 sums */
TILE_INLINE void token_sums(int n_sums, const int16_t *sum, int32_t *out)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)sum);
    if (n_sums == 8)
        _mm256_store_si256((__m256i *)out, v);
    else
        _mm_store_si128((__m128i *)out, narrowed(_mm256_madd_epi16(v, _mm256_set1_epi16(1))));
}

TILE_INLINE void pack_sums(int n_sums, const pn_act *x, int t0, int n_tok, int b, uint8_t *out)
{
    int32_t sums[UNIT][8] __attribute__((aligned(64)));
    for (int t = 0; t < n_tok; t++)
        token_sums(n_sums, x->sum + (size_t)(t0 + t) * (size_t)(x->n / 16) + b * 16, sums[t]);
    memset(sums + n_tok, 0, (size_t)(UNIT - n_tok) * sizeof *sums);
    const uint8_t *rows[UNIT];
    for (int t = 0; t < UNIT; t++)
        rows[t] = (const uint8_t *)sums[t];
    for (int j = 0; j < n_sums; j += 4) {
        __m512i v[4];
        transpose_rows(rows, (size_t)j * 4, 4, v);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(out + (j + i) * 64, v[i]);
    }
}

TILE_INLINE void pack_x(int n_sums, const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const uint8_t *q[UNIT], *d[UNIT];
    unit_rows(x->q, (size_t)x->n, t0, n_tok, q);
    unit_rows(x->d, (size_t)(x->n / 256) * 4, t0, n_tok, d);
    for (int b = 0; b < x->n / 256; b++, packed += super_unit(n_sums)) {
        for (int g = 0; g < 4; g++)
            unit_codes(q, (size_t)b * 256 + (size_t)g * 64, 64, n_tok, packed + g * AMX_TILE_BYTES);
        pack_sums(n_sums, x, t0, n_tok, b, packed + SUPER_SUMS);
        _mm512_store_si512(packed + super_unit_d(n_sums), unit_column(d, (size_t)b * 4, n_tok));
    }
}

static size_t pack_bytes_32(int n, int n_tok) { return (size_t)units_of(n_tok) * (size_t)(n / 256) * super_unit(4); }
static size_t pack_bytes_16(int n, int n_tok) { return (size_t)units_of(n_tok) * (size_t)(n / 256) * super_unit(8); }
static void pack_x_32(const pn_act *x, int t0, int n_tok, uint8_t *packed) { pack_x(4, x, t0, n_tok, packed); }
static void pack_x_16(const pn_act *x, int t0, int n_tok, uint8_t *packed) { pack_x(8, x, t0, n_tok, packed); }

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* A block of one unit and one or two panels whose sums wait for their float step. */
typedef struct pending {
    const uint8_t *w[2], *x;
    float *acc;                         /* (16 tokens, 2 panels, 16 rows) */
    uint8_t sums[4][AMX_TILE_BYTES] __attribute__((aligned(64))); /* high, low of either panel */
} pending;

/* acc = fma(d * d_x, isum, acc), then acc = fma(-(dmin * d_x), msum, acc), for panel i and SPREAD tokens */
TILE_INLINE void float_steps(int n_mins, int n_sums, const pending *p, int i, int first)
{
    const uint8_t *high = p->sums[2 * i], *low = p->sums[2 * i + 1], *w = p->w[i], *x = p->x;
    float *acc = p->acc + (2 * first + i) * PN_PANEL;
    const __m512 d = load_ps(w + planes_d(n_mins)), dmin = n_mins ? load_ps(w + planes_d(n_mins) + PANEL_SET) : d;
    __m512i min[8];
    #pragma GCC unroll 8
    for (int j = 0; j < n_mins; j++)
        min[j] = load_512(w + PLANES + j * PANEL_SET);
    #pragma GCC unroll 2
    for (int t = first; t < first + SPREAD; t++, acc += 2 * PN_PANEL) {
        const __m512 dx = broadcast_ps(x + super_unit_d(n_sums) + t * 4);
        const __m512i isum = _mm512_add_epi32(_mm512_slli_epi32(load_512(high + t * 64), 8), load_512(low + t * 64));
        __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(dx, d), _mm512_cvtepi32_ps(isum), load_ps(acc));
        if (n_mins) {
            __m512i msum = _mm512_setzero_si512();
            #pragma GCC unroll 8
            for (int j = 0; j < n_mins; j++)
                step_i16_512(&msum, min[j], x + SUPER_SUMS + j * 64 + t * 4);
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(dx, dmin), _mm512_cvtepi32_ps(msum), sum);
        }
        _mm512_store_ps(acc, sum);
    }
}

/* One K = 64 step of both planes, with a share of the float steps that wait between them. */
#define BLOCK_STEP(g) \
    do { \
        amx_load(4, x + (g) * AMX_TILE_BYTES, AMX_ROW_BYTES); \
        amx_load(5, w + (g) * AMX_TILE_BYTES, AMX_ROW_BYTES); \
        amx_dot(0, 4, 5); \
        FLOAT_STEPS(0, (g) * 2 * SPREAD); \
        amx_load(6, w + PLANE_BYTES + (g) * AMX_TILE_BYTES, AMX_ROW_BYTES); \
        amx_dot_u8(1, 4, 6); \
        FLOAT_STEPS(0, (g) * 2 * SPREAD + SPREAD); \
        if (two) { \
            amx_load(7, w2 + (g) * AMX_TILE_BYTES, AMX_ROW_BYTES); \
            amx_dot(2, 4, 7); \
            FLOAT_STEPS(1, (g) * 2 * SPREAD); \
            amx_load(5, w2 + PLANE_BYTES + (g) * AMX_TILE_BYTES, AMX_ROW_BYTES); \
            amx_dot_u8(3, 4, 5); \
            FLOAT_STEPS(1, (g) * 2 * SPREAD + SPREAD); \
        } \
    } while (0)
#define FLOAT_STEPS(i, first) \
    do { \
        if ((first) < waiting) \
            float_steps(n_mins, n_sums, p, i, first); \
    } while (0)

/* Sums of a block of one unit and one or two panels; those of p are turned into floats on the way, then p holds the new
 * ones. */
TILE_INLINE void block_sums(int two, int n_mins, int n_sums, int rows, const uint8_t *w, const uint8_t *w2,
                            const uint8_t *x, float *acc, pending *p)
{
    const int waiting = p->x ? rows : 0; /* tokens */
    amx_zero(0);
    amx_zero(1);
    if (two) {
        amx_zero(2);
        amx_zero(3);
    }
    BLOCK_STEP(0);
    BLOCK_STEP(1);
    BLOCK_STEP(2);
    BLOCK_STEP(3);
    amx_store(0, p->sums[0]);
    amx_store(1, p->sums[1]);
    if (two) {
        amx_store(2, p->sums[2]);
        amx_store(3, p->sums[3]);
    }
    p->w[0] = w;
    p->w[1] = w2;
    p->x = x;
    p->acc = acc;
}

/* Units of `rows` tokens each. n_mins: vectors of minimums; n_sums: of sums in the packed input. Columns [k0, k0 + n)
 * of n_all; see tile_part in kernels.h. */
TILE_INLINE void units(int two, int n_mins, int n_sums, const uint8_t *w, const uint8_t *x, int n_all, int k0, int n,
                       int n_units, int rows, float *y, size_t ldy)
{
    float acc[TOK * 2 * PN_PANEL] __attribute__((aligned(64)));
    const size_t unit_bytes = (size_t)(n_all / 256) * super_unit(n_sums);
    const size_t panel_bytes = (size_t)(n / 256) * (size_t)planes_block(n_mins);
    const size_t row_bytes = (size_t)(1 + two) * PN_PANEL * sizeof(float);
    pending p;
    p.x = NULL;
    memset(acc, 0, (size_t)n_units * UNIT * 2 * PN_PANEL * sizeof(float));
    if (k0 > 0)
        for (int t = 0; t < n_units * rows; t++)
            memcpy(acc + t * 2 * PN_PANEL, y + (size_t)t * ldy, row_bytes);
    else
        prefetch_rows(y, ldy, n_units * rows, 1 + two);
    x += (size_t)(k0 / 256) * super_unit(n_sums);
    for (int b = 0; b < n / 256; b++, w += planes_block(n_mins), x += super_unit(n_sums))
        for (int u = 0; u < n_units; u++)
            block_sums(two, n_mins, n_sums, rows, w, w + panel_bytes, x + (size_t)u * unit_bytes,
                       acc + u * UNIT * 2 * PN_PANEL, &p);
    for (int t = 0; t < rows; t += SPREAD)
        for (int i = 0; i <= two; i++)
            float_steps(n_mins, n_sums, &p, i, t);
    for (int t = 0; t < n_units * rows; t++)
        memcpy(y + (size_t)t * ldy, acc + t * 2 * PN_PANEL, row_bytes);
}

/* Units of `rows` tokens times some panels, two by two. */
TILE_INLINE void panels_units(int n_panels, int n_mins, int n_sums, const uint8_t *w, const uint8_t *x, int n_all,
                              int k0, int n, int n_units, int rows, float *y, size_t ldy)
{
    const size_t panel_bytes = (size_t)(n / 256) * (size_t)planes_block(n_mins);
    amx_begin(64, rows, 5);
    for (; n_panels >= 2; n_panels -= 2, w += 2 * panel_bytes, y += 2 * PN_PANEL)
        units(1, n_mins, n_sums, w, x, n_all, k0, n, n_units, rows, y, ldy);
    if (n_panels)
        units(0, n_mins, n_sums, w, x, n_all, k0, n, n_units, rows, y, ldy);
    amx_end();
}

/* Whole units, then one of the tokens that are left: a tile product of few rows takes less time. */
TILE_INLINE void strip(int n_panels, int n_mins, int n_sums, const uint8_t *w, const uint8_t *x, int n_all, int k0,
                       int n, int n_tok, float *y, size_t ldy)
{
    const int whole = n_tok / UNIT, left = n_tok % UNIT;
    if (whole)
        panels_units(n_panels, n_mins, n_sums, w, x, n_all, k0, n, whole, UNIT, y, ldy);
    if (left)
        panels_units(n_panels, n_mins, n_sums, w, x + (size_t)whole * (size_t)(n_all / 256) * super_unit(n_sums), n_all,
                     k0, n, 1, left, y + (size_t)whole * UNIT * ldy, ldy);
}

AMX_TILE(tile_plain, strip, 0, 4)
AMX_TILE(tile_min_32, strip, 4, 4)
AMX_TILE(tile_min_16, strip, 8, 8)

/* ---- panels: of common types straight from the file, of others from those of the level below, block by block ----- */

static void planes_q4_k(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    planes_unpack(PN_Q4_K, w, row_bytes, n_rows, n, panel);
}

static void planes_q5_k(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    planes_unpack(PN_Q5_K, w, row_bytes, n_rows, n, panel);
}

static void planes_q6_k(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    planes_unpack(PN_Q6_K, w, row_bytes, n_rows, n, panel);
}

typedef void (*unpack_fn)(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel);

/* A panel block as Q6_K has them: codes, and scales as int16 */
TILE_INLINE void planes_from_q6_k(const uint8_t *from, uint8_t *block)
{
    for (int i = 0; i < 2 * PANEL_SUBS; i++) { /* scales of a block, each of 4 steps */
        const uint8_t *sub = from + i / 2 * k_panel_sub(PN_Q6_K);
        const plane_scale scale = plane_scale_of(
            _mm512_and_si512(load_512(sub + K_SCALES + i % 2 * PANEL_SET), _mm512_set1_epi16(0xff)), 32);
        #pragma GCC unroll 4
        for (int g = i % 2 * 4; g < i % 2 * 4 + 4; g++)
            planes_scale(block, i / 2 * PANEL_STEPS + g, load_512(sub + g * PANEL_SET), 32, &scale);
    }
    memcpy(block + planes_d(0), from + PANEL_SUBS * k_panel_sub(PN_Q6_K), PANEL_SET);
}

/* A panel block of int16 products */
TILE_INLINE void planes_from_s16(int n_mins, const uint8_t *from, uint8_t *block)
{
    for (int g = 0; g < S16_STEPS / 2; g++) {
        const __m512i v0 = load_512(from + 2 * g * PANEL_SET), v1 = load_512(from + (2 * g + 1) * PANEL_SET);
        const __m512i even = _mm512_mask_mov_epi16(v0, 0xaaaaaaaa, _mm512_slli_epi32(v1, 16));
        const __m512i odd = _mm512_mask_mov_epi16(v1, 0x55555555, _mm512_srli_epi32(v0, 16));
        planes_store(block, g, even, odd);
    }
    if (n_mins)
        memcpy(block + PLANES, from + S16_MINS, (size_t)n_mins * PANEL_SET);
    memcpy(block + planes_d(n_mins), from + S16_D, PANEL_SET);
    if (n_mins)
        memcpy(block + planes_d(n_mins) + PANEL_SET, from + S16_DMIN, PANEL_SET);
}

TILE_INLINE void unpack_by(unpack_fn lower, int block_bytes, int n_mins, int s16, const uint8_t *w, size_t row_bytes,
                           int n_rows, int n, uint8_t *panel)
{
    uint8_t from[S16_DMIN + PANEL_SET] __attribute__((aligned(64))); /* the longest of them */
    for (int b = 0; b < n / 256; b++, w += block_bytes, panel += planes_block(n_mins)) {
        lower(w, row_bytes, n_rows, 256, from);
        if (s16)
            planes_from_s16(n_mins, from, panel);
        else
            planes_from_q6_k(from, panel);
    }
}

static size_t panel_bytes_0(int n) { return (size_t)(n / 256) * (size_t)planes_block(0); }
static size_t panel_bytes_4(int n) { return (size_t)(n / 256) * (size_t)planes_block(4); }
static size_t panel_bytes_8(int n) { return (size_t)(n / 256) * (size_t)planes_block(8); }

static void set(pn_type_ops *ops, int n_mins, unpack_fn unpack)
{
    tiles_set(ops, TOK, n_mins == 0 ? panel_bytes_0 : n_mins == 4 ? panel_bytes_4 : panel_bytes_8, unpack,
              n_mins == 8 ? pack_bytes_16 : pack_bytes_32, n_mins == 8 ? pack_x_16 : pack_x_32,
              n_mins == 0 ? tile_plain : n_mins == 4 ? tile_min_32 : tile_min_16);
    ops->tile_part = n_mins == 0 ? tile_plain_part : n_mins == 4 ? tile_min_32_part : tile_min_16_part;
    ops->pack_tok = UNIT;
}

/* s16: whether the level below has int16 panels for the type, else those of Q6_K. */
#define SUPER_TYPE(name, id, n_mins, s16) \
    static unpack_fn lower_##name; \
    static int bytes_##name; \
    static void planes_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack_by(lower_##name, bytes_##name, n_mins, s16, w, row_bytes, n_rows, n, panel); \
    } \
    static void set_##name(pn_kernels *k) \
    { \
        lower_##name = k->type[id].unpack; \
        bytes_##name = k->type[id].block_bytes; \
        set(&k->type[id], n_mins, planes_##name); \
    }

#define TYPES(X) \
    X(q2_k, PN_Q2_K, 8, 1) \
    X(q3_k, PN_Q3_K, 0, 0) \
    X(iq3_s, PN_IQ3_S, 0, 0) \
    X(iq1_s, PN_IQ1_S, 0, 0) \
    X(iq1_m, PN_IQ1_M, 0, 0) \
    X(tq1_0, PN_TQ1_0, 0, 0) \
    X(tq2_0, PN_TQ2_0, 0, 0) \
    X(iq4_xs, PN_IQ4_XS, 0, 1) \
    X(iq2_xxs, PN_IQ2_XXS, 0, 1) \
    X(iq2_xs, PN_IQ2_XS, 0, 1) \
    X(iq2_s, PN_IQ2_S, 0, 1) \
    X(iq3_xxs, PN_IQ3_XXS, 0, 1)
#define SET_TYPE(name, id, n_mins, s16) set_##name(k);

TYPES(SUPER_TYPE)

void pn_amx_tiles_super(pn_kernels *k)
{
    set(&k->type[PN_Q4_K], 4, planes_q4_k);
    set(&k->type[PN_Q5_K], 4, planes_q5_k);
    set(&k->type[PN_Q6_K], 0, planes_q6_k);
    TYPES(SET_TYPE)
}
