/* Matrix x matrix tile of super-blocks of 256 weights whose codes were multiplied by their integer scales when the
 * panel was unpacked: int16 on both sides, 2 k a step, and the sums of a whole block stay in registers.
 *
 * Panels and packed input: see panels.h.
 */
#include "x86/panels.h"
#include "x86/tiles.h"

enum { TOK = 4 };

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 256) * S16_PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 256;
    for (int b = 0; b < n_blocks; b++, packed += S16_PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 256;
            const int16_t *sum = x->sum + (size_t)(t0 + t) * (x->n / 16) + b * 16;
            uint8_t *out = packed + t * 4;
            for (int j = 0; j < 16; j++, q += 16) {
                int32_t pair[8];
                _mm256_storeu_si256((__m256i *)pair, _mm256_cvtepi8_epi16(loadu_i128(q)));
                for (int g = 0; g < 8; g++, out += 4 * n_tok)
                    memcpy(out, pair + g, 4);
            }
            for (int j = 0; j < S16_MIN_STEPS; j++, out += 4 * n_tok)
                memcpy(out, sum + 2 * j, 4);
            memcpy(out, x->d + (size_t)(t0 + t) * n_blocks + b, 4);
        }
    }
}

/* s[2t], s[2t + 1]: the block's integer sums of token t with rows 0..7 and 8..15. */
TILE_INLINE void block_sums(int n_tok, const uint8_t *w, const uint8_t *x, __m256i *s)
{
    #pragma GCC unroll 8
    for (int i = 0; i < n_tok * ROW_VECS; i++)
        s[i] = _mm256_setzero_si256();
    for (int g = 0; g < S16_STEPS; g += 8, w += 8 * PANEL_SET, x += 8 * 4 * n_tok) {
        #pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            const __m256i w0 = load_i(w + u * PANEL_SET), w1 = load_i(w + u * PANEL_SET + 32);
            #pragma GCC unroll 4
            for (int t = 0; t < n_tok; t++)
                step_i16(&s[2 * t], &s[2 * t + 1], w0, w1, broadcast_4(x + (u * n_tok + t) * 4));
        }
    }
}

/* msum of token t and one vector of rows: min * sum of 16 codes, over the block. */
TILE_INLINE __m256i min_sum(int n_tok, const uint8_t *mins, const uint8_t *sums, int t, int v)
{
    __m256i m = _mm256_setzero_si256();
    #pragma GCC unroll 8
    for (int j = 0; j < S16_MIN_STEPS; j++)
        m = _mm256_add_epi32(m, _mm256_madd_epi16(broadcast_4(sums + (j * n_tok + t) * 4),
                                                  load_i(mins + j * PANEL_SET + v * 32)));
    return m;
}

/* acc = fma(d * d_x, isum, acc), then acc = fma(-(dmin * d_x), msum, acc) for a type with minimums. */
TILE_INLINE void tile(int has_min, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += s16_panel_block(has_min), x += S16_PACK_BLOCK * n_tok) {
        const float *d = (const float *)(w + S16_D), *dmin = (const float *)(w + S16_DMIN);
        const float *dx = (const float *)(x + S16_PACK_D * n_tok);
        __m256i s[TOK * ROW_VECS];
        block_sums(n_tok, w, x, s);
        #pragma GCC unroll 8
        for (int i = 0; i < n_tok * ROW_VECS; i++) {
            const int t = i / ROW_VECS, v = i % ROW_VECS;
            const __m256 dt = _mm256_broadcast_ss(dx + t);
            __m256 sum = _mm256_fmadd_ps(_mm256_mul_ps(dt, _mm256_load_ps(d + v * LANES)), _mm256_cvtepi32_ps(s[i]),
                                         _mm256_load_ps(acc + i * LANES));
            if (has_min) {
                __m256i m = min_sum(n_tok, w + S16_MINS, x + S16_PACK_SUMS * n_tok, t, v);
                sum = _mm256_fnmadd_ps(_mm256_mul_ps(dt, _mm256_load_ps(dmin + v * LANES)), _mm256_cvtepi32_ps(m), sum);
            }
            KEEP(sum);
            _mm256_store_ps(acc + i * LANES, sum);
        }
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_4(tile_plain, 0, tile)
TILE_UP_TO_4(tile_min, 1, tile)

static size_t panel_bytes_plain(int n) { return (size_t)(n / 256) * (size_t)s16_panel_block(0); }
static size_t panel_bytes_min(int n) { return (size_t)(n / 256) * (size_t)s16_panel_block(1); }

/* The types' own files unpack them. */
static void set(pn_type_ops *ops, int has_min)
{
    tiles_set(ops, TOK, has_min ? panel_bytes_min : panel_bytes_plain, ops->unpack, pack_bytes, pack_x,
              has_min ? tile_min : tile_plain);
}

void pn_avx2_tiles_s16(pn_kernels *k)
{
    for (size_t i = 0; i < sizeof S16_PANELS / sizeof *S16_PANELS; i++)
        set(&k->type[S16_PANELS[i]], 0);
    for (size_t i = 0; i < sizeof S16_PANELS_WITH_MIN / sizeof *S16_PANELS_WITH_MIN; i++)
        set(&k->type[S16_PANELS_WITH_MIN[i]], 1);
}
