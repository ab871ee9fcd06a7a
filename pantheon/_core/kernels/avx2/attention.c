/* ref/attention.c in 8-wide registers, several rows at a time.
 *
 * Rows go through in blocks of up to ROW_BLOCK. For a block, a piece of the K tile (some 8-position groups, all dims)
 * is scored against all rows, MAX_ROWS of them sharing each load; then the softmax of every row; then V in columns of
 * 64 dims. Quantised K and V, and f16 when many rows read it, are first expanded to f32 pieces that stay in the L1
 * cache and have the layout of an f32 cache, so that there are only two inner loops of each kind: f16 and f32.
 *
 * Lanes never mix before the softmax, so hidden positions of a loaded K group do no harm: their scores are dropped. V
 * positions that only some of the rows in a group see are added row by row, before and after the common ones: each row
 * adds exactly its own positions, in increasing order, as the definition says.
 */
#include "attn_loops.h"
#include "kv_expand.h"
#include "x86/exp.h"
#include "x86/lanes.h"

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Whether K and V of this kind are expanded to f32 pieces for n_rows rows. */
static int expands(pn_kv_kind kind, int n_rows)
{
    return kind >= PN_KVK_Q8_0 || (kind == PN_KVK_F16 && n_rows > DIRECT_ROWS);
}

/* Scores of all rows of the block for groups g to g_end - 1 of the tile. k: group 0 of the tile. */
static void score_tile(block *t, pn_kv_kind kind, const uint8_t *k, size_t group_bytes, int g, int g_end)
{
    _Alignas(64) float piece[PIECE];
    const int head_dim = t->rows->head_dim, expanded = expands(kind, t->n);
    const int piece_groups = expanded ? max_int(1, PIECE / (head_dim * PN_KV_GROUP)) : N_GROUP;
    for (; g < g_end; g += piece_groups) {
        const int end = min_int(g + piece_groups, g_end);
        const uint8_t *base = k + (size_t)g * group_bytes;
        if (expanded) {
            for (int i = 0; i < end - g; i++) {
                float *out = piece + (size_t)i * (size_t)head_dim * PN_KV_GROUP;
                if (kind == PN_KVK_F16)
                    for (int d = 0; d < head_dim; d++)
                        _mm256_store_ps(out + 8 * d, load8(base + (size_t)i * group_bytes + 16 * (size_t)d, 1));
                else
                    expand_k(kind, base + (size_t)i * group_bytes, head_dim, out);
            }
            base = (const uint8_t *)piece;
        }
        for (int r = 0; r < t->n; r += MAX_ROWS)
            score_rows[kind == PN_KVK_F16 && !expanded][min_int(t->n - r, MAX_ROWS) - 1](t, r, base, g, end);
    }
}

/* Scores of one row to exp(score - maximum), and the row's m, s and merge factors. */
static void softmax_row(block *t, int r)
{
    const pn_attn_rows *rows = t->rows;
    const int lo = t->lo[r], hi = t->hi[r], row = t->row[r], g0 = lo / 8, g1 = (hi + 7) / 8;
    float *p = t->p[r];
    for (int i = g0 * 8; i < lo; i++)
        p[i] = -INFINITY;
    for (int i = hi; i < g1 * 8; i++)
        p[i] = -INFINITY;
    __m256 max = _mm256_set1_ps(-INFINITY);
    for (int g = g0; g < g1; g++)
        max = _mm256_max_ps(_mm256_load_ps(p + 8 * g), max);
    float m_tile = pn_lanes_max_avx2(max);
    max = _mm256_set1_ps(m_tile);
    __m256 sum = _mm256_setzero_ps();
    for (int g = g0; g < g1; g++) {
        __m256 e = pn_exp_avx2(_mm256_sub_ps(_mm256_load_ps(p + 8 * g), max));
        _mm256_store_ps(p + 8 * g, e);
        sum = _mm256_add_ps(sum, e);
    }
    float m = pn_max(m_tile, rows->m[row]);
    t->a[r] = pn_exp(rows->m[row] - m);
    t->b[r] = pn_exp(m_tile - m);
    rows->m[row] = m;
    rows->s[row] = fmaf(rows->s[row], t->a[r], pn_lanes_sum_avx2(sum) * t->b[r]);
}

/* Weighted V of one group of rows over n dims of a column, merged into the rows' acc at dim d. */
static void weigh_group(block *t, int r0, int nr, const uint8_t *v, size_t ldv, int d, int n, int f16)
{
    _Alignas(64) float sum[MAX_ROWS][V_COLUMNS];
    int lo = t->lo[r0], hi = t->hi[r0]; /* the positions that all rows of the group see */
    for (int i = 1; i < nr; i++) {
        lo = max_int(lo, t->lo[r0 + i]);
        hi = min_int(hi, t->hi[r0 + i]);
    }
    hi = max_int(hi, lo);
    memset(sum, 0, (size_t)nr * sizeof *sum);
    for (int i = 0; i < nr; i++)
        if (t->lo[r0 + i] < lo)
            weigh_rows[f16][0](t->p + r0 + i, v, ldv, t->lo[r0 + i], min_int(lo, t->hi[r0 + i]), n, sum + i);
    weigh_rows[f16][nr - 1](t->p + r0, v, ldv, lo, hi, n, sum);
    for (int i = 0; i < nr; i++)
        if (t->hi[r0 + i] > hi)
            weigh_rows[f16][0](t->p + r0 + i, v, ldv, hi, t->hi[r0 + i], n, sum + i);
    for (int i = 0; i < nr; i++) {
        float *acc = t->rows->acc + (size_t)t->row[r0 + i] * (size_t)t->rows->head_dim + d;
        __m256 a = _mm256_set1_ps(t->a[r0 + i]), b = _mm256_set1_ps(t->b[r0 + i]);
        for (int j = 0; j < n; j += 8) {
            __m256 fresh = _mm256_mul_ps(_mm256_load_ps(sum[i] + j), b);
            _mm256_storeu_ps(acc + j, _mm256_fmadd_ps(_mm256_loadu_ps(acc + j), a, fresh));
        }
    }
}

/* Weighted V of all rows of the block. v: position 0 of the tile; [lo, hi): positions that some row sees. */
static void weigh_tile(block *t, pn_kv_kind kind, const uint8_t *v, size_t row_bytes, int lo, int hi)
{
    _Alignas(64) float piece[PN_ATTN_TILE][V_COLUMNS];
    const int head_dim = t->rows->head_dim, expanded = expands(kind, t->n);
    for (int d = 0; d < head_dim; d += V_COLUMNS) {
        const int n = min_int(V_COLUMNS, head_dim - d), f16 = kind == PN_KVK_F16 && !expanded;
        const uint8_t *base = v + (size_t)d * (kind == PN_KVK_F16 ? 2 : 4);
        size_t ldv = row_bytes;
        if (expanded) {
            const size_t block_bytes = kind == PN_KVK_Q8_0 ? PN_V_Q8_BLOCK : PN_V_Q4_BLOCK;
            const uint8_t *column = v + (kind == PN_KVK_F16 ? 2 * (size_t)d : (size_t)(d / PN_KV_BLOCK) * block_bytes);
            for (int pos = lo; pos < hi; pos++) {
                const uint8_t *row = column + (size_t)pos * row_bytes;
                if (kind == PN_KVK_F16)
                    for (int j = 0; j < n; j += 8)
                        _mm256_store_ps(piece[pos] + j, load8(row + 2 * (size_t)j, 1));
                else
                    for (int j = 0; j < n; j += PN_KV_BLOCK, row += block_bytes)
                        expand_v(kind, row, piece[pos] + j);
            }
            base = (const uint8_t *)piece;
            ldv = sizeof *piece;
        }
        for (int r = 0; r < t->n; r += MAX_ROWS)
            weigh_group(t, r, min_int(t->n - r, MAX_ROWS), base, ldv, d, n, f16);
    }
}

INLINE void attn_tile(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile, pn_kv_kind kind,
                      size_t group_bytes, size_t row_bytes)
{
    const int start = tile * PN_ATTN_TILE;
    k += (size_t)tile * N_GROUP * group_bytes;
    v += (size_t)start * row_bytes;
    block t;
    t.rows = rows;
    for (int r = 0; r < rows->n;) {
        int lo = PN_ATTN_TILE, hi = 0;
        for (t.n = 0; r < rows->n && t.n < ROW_BLOCK; r++) {
            int first = max_int(rows->first[r], start) - start;
            int end = min_int(rows->last[r], start + PN_ATTN_TILE - 1) - start + 1;
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
        score_tile(&t, kind, k, group_bytes, lo / 8, (hi + 7) / 8);
        for (int i = 0; i < t.n; i++)
            softmax_row(&t, i);
        weigh_tile(&t, kind, v, row_bytes, lo, hi);
    }
}

/* The level below's, for shapes that this one leaves to it. */
static void (*lower[PN_KVK_COUNT])(const pn_attn_rows *, const uint8_t *, const uint8_t *, int);

#define ATTN_TILE(name, kind, group_bytes, row_bytes) \
    static void attn_tile_##name(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile) \
    { \
        const size_t head_dim = (size_t)rows->head_dim; \
        if (head_dim % 8 || head_dim > MAX_HEAD_DIM) \
            lower[kind](rows, k, v, tile); \
        else \
            attn_tile(rows, k, v, tile, kind, group_bytes, row_bytes); \
    }

ATTN_TILE(f16, PN_KVK_F16, head_dim * 16, head_dim * 2)
ATTN_TILE(f32, PN_KVK_F32, head_dim * 32, head_dim * 4)
ATTN_TILE(q8_0, PN_KVK_Q8_0, head_dim / 32 * PN_K_Q8_CHUNK, head_dim / 32 * PN_V_Q8_BLOCK)
ATTN_TILE(q4_0, PN_KVK_Q4_0, head_dim / 32 * PN_K_Q4_CHUNK, head_dim / 32 * PN_V_Q4_BLOCK)

void pn_avx2_attention(pn_kernels *k)
{
    for (int i = 0; i < PN_KVK_COUNT; i++)
        lower[i] = k->kv[i].attn_tile;
    k->kv[PN_KVK_F16].attn_tile = attn_tile_f16;
    k->kv[PN_KVK_F32].attn_tile = attn_tile_f32;
    k->kv[PN_KVK_Q8_0].attn_tile = attn_tile_q8_0;
    k->kv[PN_KVK_Q4_0].attn_tile = attn_tile_q4_0;
}
