/* Matrix x matrix tiles of F32, F16 and BF16.
 *
 * The order of the sums is that of one product with a vector: element i belongs to running sum i % 32, so a row has
 * four chains of 8 lanes, chain c taking the groups of 8 elements c, c + 4, c + 8, ...; then one fixed tree; then the
 * last n % 8 elements in order. A tile walks one chain at a time, 4 rows x 3 tokens, whose 12 sums just fill the
 * registers.
 *
 * Panel:  rows as f32, (4 row groups, groups of 8 in chain order, 4 rows, 8 lanes), then the ends (16 rows, 8).
 * Packed input of T tokens:  (groups of 8 in chain order, T, 8 lanes) f32, then the ends (T, 8).
 */
#include "tiles.h"

enum { TOK = 6, SUB_TOK = 3, CHAINS = 4, QUAD = 4, QUADS = PN_PANEL / QUAD };

/* Groups of 8 elements of a row lie chain after chain: how many a chain has, and where its first one is. */
TILE_INLINE size_t chain_length(int n, int chain) { return (size_t)((n / LANES + CHAINS - 1 - chain) / CHAINS); }
TILE_INLINE size_t chain_start(int n, int chain)
{
    const int groups = n / LANES, more = groups % CHAINS;
    return (size_t)(chain * (groups / CHAINS) + (chain < more ? chain : more));
}
TILE_INLINE size_t whole(int n) { return (size_t)(n / LANES * LANES); }

static size_t panel_bytes(int n) { return (whole(n) + LANES) * PN_PANEL * sizeof(float); }
static size_t pack_bytes(int n, int n_tok) { return (whole(n) + LANES) * (size_t)n_tok * sizeof(float); }

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

TILE_INLINE int element_bytes(pn_type type) { return type == PN_F32 ? 4 : 2; }

TILE_INLINE __m256 load_8(pn_type type, const uint8_t *w)
{
    if (type == PN_F32)
        return _mm256_loadu_ps((const float *)w);
    if (type == PN_F16)
        return _mm256_cvtph_ps(loadu_i128(w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loadu_i128(w)), 16));
}

TILE_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    float *ends = (float *)panel + whole(n) * PN_PANEL;
    memset(ends, 0, PN_PANEL * LANES * sizeof(float));
    for (int r = 0; r < PN_PANEL; r++) {
        const uint8_t *row = w + (size_t)r * row_bytes;
        float *quad = (float *)panel + (size_t)(r / QUAD) * whole(n) * QUAD + r % QUAD * LANES;
        for (int c = 0; c < CHAINS; c++) {
            float *out = quad + chain_start(n, c) * QUAD * LANES;
            for (size_t i = 0; i < chain_length(n, c); i++, out += QUAD * LANES) {
                const size_t k = (i * CHAINS + (size_t)c) * LANES;
                _mm256_store_ps(out, r < n_rows ? load_8(type, row + k * element_bytes(type)) : _mm256_setzero_ps());
            }
        }
        if (r < n_rows && n % LANES) { /* the end, through a copy: nothing past the row may be read */
            uint8_t end[LANES * sizeof(float)] = {0};
            memcpy(end, row + whole(n) * element_bytes(type), (size_t)(n % LANES * element_bytes(type)));
            _mm256_store_ps(ends + r * LANES, load_8(type, end));
        }
    }
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n = x->n;
    for (int t = 0; t < n_tok; t++) {
        const float *f = x->f + (size_t)(t0 + t) * n;
        float *out = (float *)packed + t * LANES;
        for (int c = 0; c < CHAINS; c++)
            for (size_t i = 0; i < chain_length(n, c); i++, out += n_tok * LANES)
                memcpy(out, f + (i * CHAINS + (size_t)c) * LANES, LANES * sizeof(float));
        memset(out, 0, LANES * sizeof(float));
        memcpy(out, f + whole(n), (size_t)(n % LANES) * sizeof(float));
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* sums[(r * TOK + t) * LANES] = one chain of rows 0..3 with n_tok tokens from x on, of groups that hold ldx floats. */
TILE_INLINE void chain_sums(int n_tok, const float *w, const float *x, size_t ldx, size_t length, float *sums)
{
    __m256 s[QUAD * SUB_TOK];
    #pragma GCC unroll 12
    for (int i = 0; i < QUAD * n_tok; i++)
        s[i] = _mm256_setzero_ps();
    for (size_t i = 0; i < length; i++, w += QUAD * LANES, x += ldx) {
        __m256 v[SUB_TOK];
        #pragma GCC unroll 3
        for (int t = 0; t < n_tok; t++)
            v[t] = _mm256_loadu_ps(x + t * LANES);
        #pragma GCC unroll 4
        for (int r = 0; r < QUAD; r++) {
            const __m256 row = _mm256_load_ps(w + r * LANES);
            #pragma GCC unroll 3
            for (int t = 0; t < n_tok; t++)
                s[r * n_tok + t] = _mm256_fmadd_ps(row, v[t], s[r * n_tok + t]);
        }
    }
    #pragma GCC unroll 12
    for (int i = 0; i < QUAD * n_tok; i++)
        _mm256_store_ps(sums + (i / n_tok * TOK + i % n_tok) * LANES, s[i]);
}

TILE_BODY void chain_sums_1(const float *w, const float *x, size_t ldx, size_t length, float *sums)
{
    chain_sums(1, w, x, ldx, length, sums);
}
TILE_BODY void chain_sums_2(const float *w, const float *x, size_t ldx, size_t length, float *sums)
{
    chain_sums(2, w, x, ldx, length, sums);
}
TILE_BODY void chain_sums_3(const float *w, const float *x, size_t ldx, size_t length, float *sums)
{
    chain_sums(3, w, x, ldx, length, sums);
}

/* The tree over the four chains of one product, then the end of the row. chain c is at s + c * stride. */
TILE_INLINE float finish(const float *s, size_t stride, const float *row_end, const float *x_end, int n_end)
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(_mm256_load_ps(s), _mm256_load_ps(s + stride)),
                             _mm256_add_ps(_mm256_load_ps(s + 2 * stride), _mm256_load_ps(s + 3 * stride)));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    float sum = _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
    for (int i = 0; i < n_end; i++)
        sum = __builtin_fmaf(row_end[i], x_end[i], sum);
    return sum;
}

static void tile(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy)
{
    static void (*const body[])(const float *, const float *, size_t, size_t, float *) = {
        NULL, chain_sums_1, chain_sums_2, chain_sums_3};
    enum { CHAIN_SUMS = QUAD * TOK * LANES };
    float sums[CHAINS * CHAIN_SUMS] __attribute__((aligned(64)));
    const float *x = (const float *)packed, *x_ends = x + whole(n) * n_tok;
    const float *row_ends = (const float *)panel + whole(n) * PN_PANEL;
    const size_t ldx = (size_t)n_tok * LANES;
    /* 4 tokens are 2 + 2: two tokens still cover the latency of the multiply-adds, one does not */
    const int first = n_tok <= SUB_TOK ? n_tok : (n_tok + 1) / 2;

    for (int q = 0; q < QUADS; q++) {
        const float *w = (const float *)panel + (size_t)q * whole(n) * QUAD;
        for (int c = 0; c < CHAINS; c++) {
            const size_t start = chain_start(n, c), length = chain_length(n, c);
            for (int t = 0; t < n_tok; t += first) {
                const int tokens = n_tok - t < first ? n_tok - t : first;
                body[tokens](w + start * QUAD * LANES, x + start * ldx + t * LANES, ldx, length,
                             sums + c * CHAIN_SUMS + t * LANES);
            }
        }
        for (int t = 0; t < n_tok; t++)
            for (int r = 0; r < QUAD; r++)
                y[(size_t)t * ldy + q * QUAD + r] = finish(sums + (r * TOK + t) * LANES, CHAIN_SUMS,
                                                           row_ends + (q * QUAD + r) * LANES, x_ends + t * LANES,
                                                           n % LANES);
    }
}

/* ---- the three types --------------------------------------------------------------------------------------------- */

#define FLOAT_UNPACK(name, type) \
    static void unpack_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    }

FLOAT_UNPACK(f32, PN_F32)
FLOAT_UNPACK(f16, PN_F16)
FLOAT_UNPACK(bf16, PN_BF16)

void pn_avx2_tiles_f32(pn_kernels *k)
{
    tiles_set(&k->type[PN_F32], TOK, panel_bytes, unpack_f32, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_F16], TOK, panel_bytes, unpack_f16, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_BF16], TOK, panel_bytes, unpack_bf16, pack_bytes, pack_x, tile);
}
