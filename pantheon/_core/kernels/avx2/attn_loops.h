/* The two inner loops of attention, for 1 to 6 rows and for f16 and f32 areas: scores, and weighted sums of V. */
#ifndef PN_AVX2_ATTN_LOOPS_H
#define PN_AVX2_ATTN_LOOPS_H

#include "kv_expand.h"

enum {
    MAX_ROWS = 6,         /* rows that share a load: 6 x 2 accumulators fill the registers */
    ROW_BLOCK = 48,       /* rows per expansion of a piece */
    DIRECT_ROWS = 6,      /* up to this many rows, f16 is converted at each use */
    PIECE = 8192,         /* floats of an expanded K piece: 32 KiB */
    V_COLUMNS = 64,       /* dims of an expanded V piece */
    MAX_HEAD_DIM = PIECE / PN_KV_GROUP,
    N_GROUP = PN_ATTN_TILE / PN_KV_GROUP,
};

/* Rows of one block, and what of the tile each of them sees: positions lo[r] to hi[r] - 1, counted within the tile. */
typedef struct block {
    const pn_attn_rows *rows;
    int row[ROW_BLOCK];
    int n;
    int lo[ROW_BLOCK], hi[ROW_BLOCK];
    float a[ROW_BLOCK], b[ROW_BLOCK];        /* factors of the merge: old values, this tile's */
    _Alignas(64) float p[ROW_BLOCK][PN_ATTN_TILE]; /* scores, then exp(score - max) */
} block;

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
INLINE void score_groups(block *t, int r0, const int nr, const int wide, const uint8_t *k, int g, int g_end,
                         const int f16)
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

/* p[pos] * v[pos][0:8 * nv] of nr rows, added for positions lo to hi - 1 to sum[row][d:d + 8 * nv]; v is position 0's
 * byte of dim d, ldv bytes a position. */
INLINE void weigh(const float (*p)[PN_ATTN_TILE], const int nr, const uint8_t *v, size_t ldv, int lo, int hi,
                  const int nv, const int f16, int d, float (*sum)[V_COLUMNS])
{
    __m256 s[MAX_ROWS][V_COLUMNS / 8];
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            s[i][j] = _mm256_load_ps(sum[i] + d + 8 * j);
    v += (size_t)lo * ldv;
    for (int pos = lo; pos < hi; pos++, v += ldv) {
        __m256 x[V_COLUMNS / 8];
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            x[j] = load8(v + j * (f16 ? 16 : 32), f16);
#pragma GCC unroll 6
        for (int i = 0; i < nr; i++) {
            __m256 w = _mm256_broadcast_ss(p[i] + pos);
#pragma GCC unroll 8
            for (int j = 0; j < nv; j++)
                s[i][j] = _mm256_fmadd_ps(w, x[j], s[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            _mm256_store_ps(sum[i] + d + 8 * j, s[i][j]);
}

/* weigh over n dims (a multiple of 8, at most V_COLUMNS), wide registers at a time. */
INLINE void weigh_columns(const float (*p)[PN_ATTN_TILE], const int nr, const int wide, const uint8_t *v, size_t ldv,
                          int lo, int hi, int n, const int f16, float (*sum)[V_COLUMNS])
{
    const int size = f16 ? 2 : 4;
    int d = 0;
    for (; d + 8 * wide <= n; d += 8 * wide)
        weigh(p, nr, v + d * size, ldv, lo, hi, wide, f16, d, sum);
    if (wide > 4 && d + 32 <= n) {
        weigh(p, nr, v + d * size, ldv, lo, hi, 4, f16, d, sum);
        d += 32;
    }
    for (; d < n; d += 8)
        weigh(p, nr, v + d * size, ldv, lo, hi, 1, f16, d, sum);
}

/* One pair of functions for each number of rows; wide_k and wide_v keep at least 8 accumulators busy where they fit. */
#define NOINLINE static __attribute__((noinline))
#define ROWS(nr, wide_k, wide_v)                                                                                    \
    NOINLINE void score_f16_##nr(block *t, int r0, const uint8_t *k, int g, int g_end)                              \
    {                                                                                                               \
        score_groups(t, r0, nr, wide_k, k, g, g_end, 1);                                                            \
    }                                                                                                               \
    NOINLINE void score_f32_##nr(block *t, int r0, const uint8_t *k, int g, int g_end)                              \
    {                                                                                                               \
        score_groups(t, r0, nr, wide_k, k, g, g_end, 0);                                                            \
    }                                                                                                               \
    NOINLINE void weigh_f16_##nr(const float (*p)[PN_ATTN_TILE], const uint8_t *v, size_t ldv, int lo, int hi,      \
                                 int n, float (*sum)[V_COLUMNS])                                                    \
    {                                                                                                               \
        weigh_columns(p, nr, wide_v, v, ldv, lo, hi, n, 1, sum);                                                    \
    }                                                                                                               \
    NOINLINE void weigh_f32_##nr(const float (*p)[PN_ATTN_TILE], const uint8_t *v, size_t ldv, int lo, int hi,      \
                                 int n, float (*sum)[V_COLUMNS])                                                    \
    {                                                                                                               \
        weigh_columns(p, nr, wide_v, v, ldv, lo, hi, n, 0, sum);                                                    \
    }

ROWS(1, 8, 8)
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

#endif
