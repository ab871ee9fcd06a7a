/* Matrix x matrix tiles of F32, F16 and BF16: see tiles_f32.h. 4 rows x 3 tokens of one chain are 12 sums, which just
 * fill the registers.
 */
#include "x86/tiles_f32.h"

enum { SUB_TOK = 3 };

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

/* sums[(r * F32_TOK + t) * LANES] = one chain of rows 0..3 with n_tok tokens from x on, of groups that hold ldx
 * floats. */
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
        _mm256_store_ps(sums + (i / n_tok * F32_TOK + i % n_tok) * LANES, s[i]);
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

static void tile(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy)
{
    static void (*const body[])(const float *, const float *, size_t, size_t, float *) = {
        NULL, chain_sums_1, chain_sums_2, chain_sums_3};
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
        finish_quad(sums, q, row_ends, x_ends, n, n_tok, y, ldy);
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
    tiles_set(&k->type[PN_F32], F32_TOK, panel_bytes, unpack_f32, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_F16], F32_TOK, panel_bytes, unpack_f16, pack_bytes, pack_x, tile);
    tiles_set(&k->type[PN_BF16], F32_TOK, panel_bytes, unpack_bf16, pack_bytes, pack_x, tile);
}
