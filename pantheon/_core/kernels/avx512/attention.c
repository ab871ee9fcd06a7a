/* avx2/attention.c in 16-wide registers, for the case of several rows.
 *
 * A register holds two groups of 8 positions of K, or 16 dims of V. To get them side by side, K and V of every type go
 * through f32 pieces in the L1 cache, which the rows of a block share: the scores of 6 rows with all 64 positions take
 * 24 accumulators, and so do 64 dims of 6 rows. Few rows of an f16 or f32 cache would not pay for that: they are left
 * to avx2. What hidden positions and rows need is as in avx2.
 *
 * The order of the sums is that of the definition: scores and weighted sums are one chain in each lane; the sum of the
 * exponentials takes the two groups of a register one after the other.
 */
#include "attn_loops.h"
#include "x86/exp.h"
#include "x86/lanes.h"

enum { FEW_ROWS = 6 };

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

INLINE __m256 low_half(__m512 v)
{
    return _mm512_castps512_ps256(v);
}

INLINE __m256 high_half(__m512 v)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

/* Scores of all rows of the block for groups g to g_end - 1 of the tile. k: group 0 of the tile. */
INLINE void score_tile(block *t, pn_kv_kind kind, const uint8_t *k, size_t group_bytes, int g, int g_end)
{
    _Alignas(64) float piece[PIECE];
    const int head_dim = t->rows->head_dim, pair_end = (g_end + 1) / 2;
    const int piece_pairs = min_int(PIECE / (head_dim * WIDE), N_PAIR);
    for (int pair = g / 2; pair < pair_end; pair += piece_pairs) {
        const int end = min_int(pair + piece_pairs, pair_end);
        for (int i = pair; i < end; i++) { /* the area may end with the first group of a pair */
            const uint8_t *a = k + (size_t)(2 * i) * group_bytes, *b = 2 * i + 1 < g_end ? a + group_bytes : a;
            expand_k(kind, a, b, head_dim, piece + (size_t)(i - pair) * (size_t)head_dim * WIDE);
        }
        for (int r = 0; r < t->n; r += MAX_ROWS)
            score_rows[min_int(t->n - r, MAX_ROWS) - 1](t, r, piece, pair, end);
    }
}

/* Scores begin to end - 1 of one row (whole registers) to exp(score - maximum); the row's maximum and sum. */
INLINE void softmax_span(block *t, int r, const int begin, const int end)
{
    float *p = t->p[r];
    __m256 lanes = _mm256_set1_ps(-INFINITY);
#pragma GCC unroll 8
    for (int i = begin; i < end; i += 8)
        lanes = _mm256_max_ps(_mm256_load_ps(p + i), lanes);
    t->m[r] = pn_lanes_max_avx2(lanes);
    const __m512 max = _mm512_set1_ps(t->m[r]);
    __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int i = begin; i < end; i += WIDE) {
        const __m512 e = pn_exp_avx512(_mm512_sub_ps(_mm512_load_ps(p + i), max));
        _mm512_store_ps(p + i, e);
        sum = _mm256_add_ps(_mm256_add_ps(sum, low_half(e)), high_half(e));
    }
    t->s[r] = pn_lanes_sum_avx2(sum);
}

INLINE void softmax_row(block *t, int r)
{
    const int lo = t->lo[r], hi = t->hi[r], begin = lo / WIDE * WIDE, end = (hi + WIDE - 1) / WIDE * WIDE;
    float *p = t->p[r];
    if (hi - lo == PN_ATTN_TILE) {
        softmax_span(t, r, 0, PN_ATTN_TILE);
        return;
    }
    for (int i = begin; i < lo; i++)
        p[i] = -INFINITY;
    for (int i = hi; i < end; i++)
        p[i] = -INFINITY;
    softmax_span(t, r, begin, end);
}

/* m, s and the merge factors of all rows. */
INLINE void merge_rows(block *t)
{
    const pn_attn_rows *rows = t->rows;
    for (int r = 0; r < t->n; r += WIDE) {
        const __mmask16 mask = (__mmask16)(t->n - r < WIDE ? (1 << (t->n - r)) - 1 : 0xffff);
        const __m512i row = _mm512_load_si512(t->row + r);
        const __m512 zero = _mm512_setzero_ps(), m_tile = _mm512_maskz_load_ps(mask, t->m + r);
        const __m512 m_old = _mm512_mask_i32gather_ps(zero, mask, row, rows->m, 4);
        const __m512 s_old = _mm512_mask_i32gather_ps(zero, mask, row, rows->s, 4);
        const __m512 m = _mm512_max_ps(m_tile, m_old);
        const __m512 a = pn_exp_avx512(_mm512_sub_ps(m_old, m)), b = pn_exp_avx512(_mm512_sub_ps(m_tile, m));
        const __m512 s = _mm512_fmadd_ps(s_old, a, _mm512_mul_ps(_mm512_maskz_load_ps(mask, t->s + r), b));
        _mm512_store_ps(t->a + r, a);
        _mm512_store_ps(t->b + r, b);
        _mm512_mask_i32scatter_ps(rows->m, mask, row, m, 4);
        _mm512_mask_i32scatter_ps(rows->s, mask, row, s, 4);
    }
}

/* Weighted V of one group of rows over n dims of a column, merged into the rows' acc at dim d. */
static void weigh_group(block *t, int r0, int nr, const float (*v)[V_COLUMNS], int d, int n)
{
    _Alignas(64) float sum[MAX_ROWS][V_COLUMNS];
    int lo = t->lo[r0], hi = t->hi[r0]; /* the positions that all rows of the group see */
    for (int i = 1; i < nr; i++) {
        lo = max_int(lo, t->lo[r0 + i]);
        hi = min_int(hi, t->hi[r0 + i]);
    }
    hi = max_int(hi, lo);
    for (int i = 0; i < nr; i++)
        for (int j = 0; j < V_COLUMNS; j += WIDE)
            _mm512_store_ps(sum[i] + j, _mm512_setzero_ps());
    for (int i = 0; i < nr; i++)
        if (t->lo[r0 + i] < lo)
            weigh_rows[0](t->p + r0 + i, v, t->lo[r0 + i], min_int(lo, t->hi[r0 + i]), n, sum + i);
    weigh_rows[nr - 1](t->p + r0, v, lo, hi, n, sum);
    for (int i = 0; i < nr; i++)
        if (t->hi[r0 + i] > hi)
            weigh_rows[0](t->p + r0 + i, v, hi, t->hi[r0 + i], n, sum + i);
    for (int i = 0; i < nr; i++) {
        float *acc = t->rows->acc + (size_t)t->row[r0 + i] * (size_t)t->rows->head_dim + d;
        const __m512 a = _mm512_set1_ps(t->a[r0 + i]), b = _mm512_set1_ps(t->b[r0 + i]);
        for (int j = 0; j < n; j += WIDE) {
            const __mmask16 mask = (__mmask16)(n - j < WIDE ? 0xff : 0xffff);
            const __m512 fresh = _mm512_mul_ps(_mm512_load_ps(sum[i] + j), b);
            _mm512_mask_storeu_ps(acc + j, mask, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, acc + j), a, fresh));
        }
    }
}

/* Weighted V of all rows of the block. v: position 0 of the tile; [lo, hi): positions that some row sees. */
INLINE void weigh_tile(block *t, pn_kv_kind kind, const uint8_t *v, size_t row_bytes, int lo, int hi)
{
    _Alignas(64) float piece[PN_ATTN_TILE][V_COLUMNS];
    const int head_dim = t->rows->head_dim;
    for (int d = 0; d < head_dim; d += V_COLUMNS) {
        const int n = min_int(V_COLUMNS, head_dim - d);
        for (int pos = lo; pos < hi; pos++) /* a row of V is head_dim equal shares */
            expand_v(kind, v + (size_t)pos * row_bytes + (size_t)d * row_bytes / (size_t)head_dim, n, piece[pos]);
        for (int r = 0; r < t->n; r += MAX_ROWS)
            weigh_group(t, r, min_int(t->n - r, MAX_ROWS), (const float (*)[V_COLUMNS])piece, d, n);
    }
}

INLINE void attn_tile(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile, pn_kv_kind kind,
                      size_t group_bytes, size_t row_bytes)
{
    const int start = tile * PN_ATTN_TILE;
    k += (size_t)tile * (PN_ATTN_TILE / PN_KV_GROUP) * group_bytes;
    v += (size_t)start * row_bytes;
    block t;
    t.rows = rows;
    for (int r = 0; r < rows->n;) {
        int lo = PN_ATTN_TILE, hi = 0;
        for (t.n = 0; r < rows->n && t.n < ROW_BLOCK; r++) {
            const int first = max_int(rows->first[r], start) - start;
            const int end = min_int(rows->last[r], start + PN_ATTN_TILE - 1) - start + 1;
            if (first >= end)
                continue;
            t.row[t.n] = r;
            t.lo[t.n] = first;
            t.hi[t.n] = end;
            t.n++;
            lo = min_int(lo, first);
            hi = max_int(hi, end);
        }
        if (!t.n)
            break;
        score_tile(&t, kind, k, group_bytes, lo / PN_KV_GROUP, (hi + PN_KV_GROUP - 1) / PN_KV_GROUP);
        for (int i = 0; i < t.n; i++)
            softmax_row(&t, i);
        merge_rows(&t);
        weigh_tile(&t, kind, v, row_bytes, lo, hi);
    }
}

/* The level below's, for shapes that this one leaves to it. */
static void (*lower[PN_KVK_COUNT])(const pn_attn_rows *, const uint8_t *, const uint8_t *, int);

#define ATTN_TILE(name, kind, few, group_bytes, row_bytes) \
    static void attn_tile_##name(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile) \
    { \
        const size_t head_dim = (size_t)rows->head_dim; \
        if (rows->n <= few || head_dim % 8 || head_dim > MAX_HEAD_DIM) \
            lower[kind](rows, k, v, tile); \
        else \
            attn_tile(rows, k, v, tile, kind, group_bytes, row_bytes); \
    }

ATTN_TILE(f16, PN_KVK_F16, FEW_ROWS, head_dim * 16, head_dim * 2)
ATTN_TILE(f32, PN_KVK_F32, FEW_ROWS, head_dim * 32, head_dim * 4)
ATTN_TILE(q8_0, PN_KVK_Q8_0, 0, head_dim / 32 * PN_K_Q8_CHUNK, head_dim / 32 * PN_V_Q8_BLOCK)
ATTN_TILE(q4_0, PN_KVK_Q4_0, 0, head_dim / 32 * PN_K_Q4_CHUNK, head_dim / 32 * PN_V_Q4_BLOCK)

void pn_avx512_attention(pn_kernels *k)
{
    for (int i = 0; i < PN_KVK_COUNT; i++)
        lower[i] = k->kv[i].attn_tile;
    k->kv[PN_KVK_F16].attn_tile = attn_tile_f16;
    k->kv[PN_KVK_F32].attn_tile = attn_tile_f32;
    k->kv[PN_KVK_Q8_0].attn_tile = attn_tile_q8_0;
    k->kv[PN_KVK_Q4_0].attn_tile = attn_tile_q4_0;
}
