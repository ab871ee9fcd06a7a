/* ref/attention.c in 8-wide registers, several rows at a time.
 *
 * Rows go through in blocks of up to ROW_BLOCK. For a block, a piece of the K tile (some 8-position groups, all dims) is
 * scored against all rows, MAX_ROWS of them sharing each load; then the softmax of every row; then V in columns of 32 dims.
 * Quantised K and V, and f16 when many rows read it, are first expanded to f32 pieces that stay in the L1 cache and have
 * the layout of an f32 cache, so that there are only two inner loops of each kind: f16 and f32.
 *
 * Lanes never mix before the softmax, so hidden positions of a loaded K group do no harm: their scores are dropped. V
 * positions that only some of the rows in a group see are added row by row, before and after the common ones: each row
 * adds exactly its own positions, in increasing order, as the definition says.
 */
#include "exp.h"
#include "kv_layout.h"
#include "lanes.h"

enum {
    MAX_ROWS = 6,         /* rows that share a load: 6 x 2 accumulators fill the registers */
    ROW_BLOCK = 48,       /* rows per expansion of a piece */
    DIRECT_ROWS = 6,      /* up to this many rows, f16 is converted at each use */
    PIECE = 8192,         /* floats of an expanded K piece: 32 KiB */
    V_COLUMNS = 32,       /* dims of an expanded V piece */
    MAX_HEAD_DIM = PIECE / PN_KV_GROUP,
    N_GROUP = PN_ATTN_TILE / PN_KV_GROUP,
};

#define INLINE static inline __attribute__((always_inline))

/* Rows of one block, and what of the tile each of them sees: positions lo[r] to hi[r] - 1, counted within the tile. */
typedef struct block {
    const pn_attn_rows *rows;
    int row[ROW_BLOCK];
    int n;
    int lo[ROW_BLOCK], hi[ROW_BLOCK];
    float a[ROW_BLOCK], b[ROW_BLOCK];        /* factors of the merge: old values, this tile's */
    _Alignas(64) float p[ROW_BLOCK][PN_ATTN_TILE]; /* scores, then exp(score - max) */
} block;

INLINE __m256 load8(const uint8_t *p, int f16)
{
    return f16 ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)) : _mm256_loadu_ps((const float *)p);
}

/* Scores of nr rows (r0 on in the block) for nv groups from group g on; k is group g's first byte, f16 or f32. */
INLINE void score(block *t, int r0, const int nr, const uint8_t *k, int g, const int nv, const int f16)
{
    const pn_attn_rows *rows = t->rows;
    const int head_dim = rows->head_dim, step = f16 ? 16 : 32;
    const size_t group = (size_t)head_dim * (size_t)step;
    const float *q[MAX_ROWS];
    __m256 s[MAX_ROWS][N_GROUP];
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++) {
        q[i] = rows->q + (size_t)t->row[r0 + i] * rows->ldq;
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            s[i][j] = _mm256_setzero_ps();
    }
    for (int d = 0; d < head_dim; d++, k += step) {
        __m256 kv[N_GROUP];
        if (nr > 1)
#pragma GCC unroll 8
            for (int j = 0; j < nv; j++)
                kv[j] = load8(k + (size_t)j * group, f16);
#pragma GCC unroll 6
        for (int i = 0; i < nr; i++) {
            __m256 x = _mm256_broadcast_ss(q[i] + d);
#pragma GCC unroll 8
            for (int j = 0; j < nv; j++)
                s[i][j] = _mm256_fmadd_ps(x, nr > 1 ? kv[j] : load8(k + (size_t)j * group, f16), s[i][j]);
        }
    }
    __m256 scale = _mm256_set1_ps(rows->scale);
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            _mm256_store_ps(t->p[r0 + i] + (g + j) * PN_KV_GROUP, _mm256_mul_ps(scale, s[i][j]));
}

/* Scores of nr rows for groups g to g_end - 1, wide groups at a time. */
INLINE void score_groups(block *t, int r0, const int nr, const int wide, const uint8_t *k, int g, int g_end, const int f16)
{
    const size_t group = (size_t)t->rows->head_dim * (f16 ? 16 : 32);
    for (; g + wide <= g_end; g += wide, k += group * (size_t)wide)
        score(t, r0, nr, k, g, wide, f16);
    if (wide > 4 && g + 4 <= g_end) {
        score(t, r0, nr, k, g, 4, f16);
        g += 4;
        k += 4 * group;
    }
    if (wide > 2 && g + 2 <= g_end) {
        score(t, r0, nr, k, g, 2, f16);
        g += 2;
        k += 2 * group;
    }
    if (g < g_end)
        score(t, r0, nr, k, g, 1, f16);
}

/* p[pos] * v[pos][0:8 * nv] of nr rows, added for positions lo to hi - 1 to sum[row][0:8 * nv]; v is position 0's first
 * byte of the column, ldv bytes a position. */
INLINE void weigh(const float (*p)[PN_ATTN_TILE], const int nr, const uint8_t *v, size_t ldv, int lo, int hi, const int nv,
                  const int f16, float (*sum)[V_COLUMNS])
{
    __m256 s[MAX_ROWS][V_COLUMNS / 8];
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            s[i][j] = _mm256_load_ps(sum[i] + 8 * j);
    v += (size_t)lo * ldv;
    for (int pos = lo; pos < hi; pos++, v += ldv) {
        __m256 x[V_COLUMNS / 8];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            x[j] = load8(v + j * (f16 ? 16 : 32), f16);
#pragma GCC unroll 6
        for (int i = 0; i < nr; i++) {
            __m256 w = _mm256_broadcast_ss(p[i] + pos);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                s[i][j] = _mm256_fmadd_ps(w, x[j], s[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            _mm256_store_ps(sum[i] + 8 * j, s[i][j]);
}

/* weigh over n dims (a multiple of 8, at most 32), wide registers at a time. */
INLINE void weigh_columns(const float (*p)[PN_ATTN_TILE], const int nr, const int wide, const uint8_t *v, size_t ldv, int lo,
                          int hi, int n, const int f16, float (*sum)[V_COLUMNS])
{
    const int size = f16 ? 2 : 4;
    int d = 0;
    for (; d + 8 * wide <= n; d += 8 * wide)
        weigh(p, nr, v + d * size, ldv, lo, hi, wide, f16, (float (*)[V_COLUMNS])(sum[0] + d));
    for (; d < n; d += 8)
        weigh(p, nr, v + d * size, ldv, lo, hi, 1, f16, (float (*)[V_COLUMNS])(sum[0] + d));
}

/* One pair of functions for each number of rows; wide_k and wide_v keep at least 8 accumulators busy where they fit. */
#define ROWS(nr, wide_k, wide_v)                                                                                            \
    static __attribute__((noinline)) void score_f16_##nr(block *t, int r0, const uint8_t *k, int g, int g_end)             \
    {                                                                                                                       \
        score_groups(t, r0, nr, wide_k, k, g, g_end, 1);                                                                    \
    }                                                                                                                       \
    static __attribute__((noinline)) void score_f32_##nr(block *t, int r0, const uint8_t *k, int g, int g_end)             \
    {                                                                                                                       \
        score_groups(t, r0, nr, wide_k, k, g, g_end, 0);                                                                    \
    }                                                                                                                       \
    static __attribute__((noinline)) void weigh_f16_##nr(const float (*p)[PN_ATTN_TILE], const uint8_t *v, size_t ldv,     \
                                                         int lo, int hi, int n, float (*sum)[V_COLUMNS])                    \
    {                                                                                                                       \
        weigh_columns(p, nr, wide_v, v, ldv, lo, hi, n, 1, sum);                                                            \
    }                                                                                                                       \
    static __attribute__((noinline)) void weigh_f32_##nr(const float (*p)[PN_ATTN_TILE], const uint8_t *v, size_t ldv,     \
                                                         int lo, int hi, int n, float (*sum)[V_COLUMNS])                    \
    {                                                                                                                       \
        weigh_columns(p, nr, wide_v, v, ldv, lo, hi, n, 0, sum);                                                            \
    }

ROWS(1, 8, 4)
ROWS(2, 4, 4)
ROWS(3, 4, 4)
ROWS(4, 2, 2)
ROWS(5, 2, 2)
ROWS(6, 2, 2)

typedef void (*score_fn)(block *t, int r0, const uint8_t *k, int g, int g_end);
typedef void (*weigh_fn)(const float (*p)[PN_ATTN_TILE], const uint8_t *v, size_t ldv, int lo, int hi, int n,
                         float (*sum)[V_COLUMNS]);

static const score_fn score_rows[2][MAX_ROWS] = {
    {score_f32_1, score_f32_2, score_f32_3, score_f32_4, score_f32_5, score_f32_6},
    {score_f16_1, score_f16_2, score_f16_3, score_f16_4, score_f16_5, score_f16_6},
};
static const weigh_fn weigh_rows[2][MAX_ROWS] = {
    {weigh_f32_1, weigh_f32_2, weigh_f32_3, weigh_f32_4, weigh_f32_5, weigh_f32_6},
    {weigh_f16_1, weigh_f16_2, weigh_f16_3, weigh_f16_4, weigh_f16_5, weigh_f16_6},
};

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* 8 codes of 8 lanes times their scales */
INLINE __m256 scaled(__m128i codes, __m256 scale)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), scale);
}

/* One quantised K group (8 positions, all dims) to f32 [D][8]. */
static void expand_k(pn_kv_kind kind, const uint8_t *k, int head_dim, float *out)
{
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    for (int b = 0; b < head_dim; b += PN_KV_BLOCK, out += PN_KV_BLOCK * 8) {
        __m256 scale = load8(k, 1);
        k += PN_K_SCALES;
        if (kind == PN_KVK_Q8_0) {
            for (int i = 0; i < 32; i++, k += 8)
                _mm256_store_ps(out + 8 * i, scaled(_mm_loadl_epi64((const __m128i *)k), scale));
        } else {
            for (int i = 0; i < 16; i++, k += 8) {
                __m128i c = _mm_loadl_epi64((const __m128i *)k);
                __m128i c0 = _mm_sub_epi8(_mm_and_si128(c, low), eight);
                __m128i c1 = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), low), eight);
                _mm256_store_ps(out + 8 * i, scaled(c0, scale));
                _mm256_store_ps(out + 8 * (i + 16), scaled(c1, scale));
            }
        }
    }
}

/* The 32 values of one quantised V block to f32. */
static inline void expand_v(pn_kv_kind kind, const uint8_t *v, float *out)
{
    __m256 scale = _mm256_set1_ps(_mm256_cvtss_f32(_mm256_cvtph_ps(_mm_cvtsi32_si128(pn_load_u16(v)))));
    __m128i c0, c1;
    if (kind == PN_KVK_Q8_0) {
        c0 = _mm_loadu_si128((const __m128i *)(v + 2));
        c1 = _mm_loadu_si128((const __m128i *)(v + 18));
    } else {
        const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
        __m128i c = _mm_loadu_si128((const __m128i *)(v + 2));
        c0 = _mm_sub_epi8(_mm_and_si128(c, low), eight);
        c1 = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), low), eight);
    }
    _mm256_store_ps(out, scaled(c0, scale));
    _mm256_store_ps(out + 8, scaled(_mm_srli_si128(c0, 8), scale));
    _mm256_store_ps(out + 16, scaled(c1, scale));
    _mm256_store_ps(out + 24, scaled(_mm_srli_si128(c1, 8), scale));
}

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
            for (int pos = lo; pos < hi; pos++) {
                const uint8_t *row = v + (size_t)pos * row_bytes;
                if (kind == PN_KVK_F16)
                    for (int j = 0; j < n; j += 8)
                        _mm256_store_ps(piece[pos] + j, load8(row + ((size_t)d + (size_t)j) * 2, 1));
                else
                    expand_v(kind, row + (size_t)(d / PN_KV_BLOCK) * block_bytes, piece[pos]);
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

#define ATTN_TILE(name, kind, group_bytes, row_bytes)                                                              \
    static void attn_tile_##name(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile)           \
    {                                                                                                              \
        const size_t head_dim = (size_t)rows->head_dim;                                                            \
        if (head_dim % 8 || head_dim > MAX_HEAD_DIM)                                                               \
            pn_ref_attn_tile_##name(rows, k, v, tile);                                                             \
        else                                                                                                       \
            attn_tile(rows, k, v, tile, kind, group_bytes, row_bytes);                                             \
    }

ATTN_TILE(f16, PN_KVK_F16, head_dim * 16, head_dim * 2)
ATTN_TILE(f32, PN_KVK_F32, head_dim * 32, head_dim * 4)
ATTN_TILE(q8_0, PN_KVK_Q8_0, head_dim / 32 * PN_K_Q8_CHUNK, head_dim / 32 * PN_V_Q8_BLOCK)
ATTN_TILE(q4_0, PN_KVK_Q4_0, head_dim / 32 * PN_K_Q4_CHUNK, head_dim / 32 * PN_V_Q4_BLOCK)

/* One f16 register at a time; K goes to 8 places. */
static void store_k_f16(uint8_t *k, int pos, int head_dim, const float *x)
{
    k += pn_k_at(pos, 0, head_dim) * 2;
    for (int d = 0; d < head_dim; d += 8) {
        __m256 v = _mm256_maskload_ps(x + d, pn_lanes_mask(min_int(8, head_dim - d)));
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)h, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        for (int i = 0; i < min_int(8, head_dim - d); i++, k += 16)
            memcpy(k, h + i, 2);
    }
}

static void store_v_f16(uint8_t *v, int pos, int head_dim, const float *x)
{
    v += (size_t)pos * (size_t)head_dim * 2;
    for (int d = 0; d < head_dim; d += 8) {
        const int n = min_int(8, head_dim - d);
        __m128i h = _mm256_cvtps_ph(_mm256_maskload_ps(x + d, pn_lanes_mask(n)), _MM_FROUND_TO_NEAREST_INT);
        memcpy(v + 2 * (size_t)d, &h, 2 * (size_t)n);
    }
}

void pn_avx2_attention(pn_kernels *k)
{
    k->kv[PN_KVK_F16].store_k = store_k_f16;
    k->kv[PN_KVK_F16].store_v = store_v_f16;
    k->kv[PN_KVK_F16].attn_tile = attn_tile_f16;
    k->kv[PN_KVK_F32].attn_tile = attn_tile_f32;
    k->kv[PN_KVK_Q8_0].attn_tile = attn_tile_q8_0;
    k->kv[PN_KVK_Q4_0].attn_tile = attn_tile_q4_0;
}
