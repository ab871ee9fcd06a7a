/* The inner loops of attention over expanded pieces, for 1 to 6 rows: scores, and weighted sums of V. */
#ifndef PN_AVX512_ATTN_LOOPS_H
#define PN_AVX512_ATTN_LOOPS_H

#include "kv_expand.h"

enum {
    WIDE = 16,                                     /* lanes */
    MAX_ROWS = 6,                                  /* rows that share a load: 6 x 4 accumulators fill the registers */
    MAX_VECS = 4,
    ROW_BLOCK = 60,                                /* rows per expansion of a piece */
    ROW_ROOM = (ROW_BLOCK + WIDE - 1) / WIDE * WIDE,
    PIECE = 8192,                                  /* floats of an expanded K piece: 32 KiB */
    V_COLUMNS = WIDE * MAX_VECS,                   /* dims of an expanded V piece */
    MAX_HEAD_DIM = PIECE / WIDE,
    N_PAIR = PN_ATTN_TILE / WIDE,                  /* pairs of K groups in a tile */
};

/* Rows of one block, and what of the tile each of them sees: positions lo[r] to hi[r] - 1, counted within the tile.
 * Numbers of all rows have room for whole registers. */
typedef struct block {
    const pn_attn_rows *rows;
    int n;
    _Alignas(64) int row[ROW_ROOM];
    int lo[ROW_BLOCK], hi[ROW_BLOCK];
    _Alignas(64) float m[ROW_ROOM], s[ROW_ROOM];   /* maximum and sum of the tile */
    _Alignas(64) float a[ROW_ROOM], b[ROW_ROOM];   /* factors of the merge: old values, this tile's */
    _Alignas(64) float p[ROW_BLOCK][PN_ATTN_TILE]; /* scores, then exp(score - max) */
} block;

/* Scores of nr rows (r0 on in the block) for nv pairs of groups from pair g on; k is the piece from pair g on, f32
 * [pair][D][16]. */
INLINE void score(block *t, int r0, const int nr, const float *k, int g, const int nv)
{
    const pn_attn_rows *rows = t->rows;
    const int head_dim = rows->head_dim;
    const float *q[MAX_ROWS];
    __m512 s[MAX_ROWS][MAX_VECS];
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++) {
        q[i] = rows->q + (size_t)t->row[r0 + i] * rows->ldq;
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            s[i][j] = _mm512_setzero_ps();
    }
    for (int d = 0; d < head_dim; d++, k += WIDE) {
        __m512 kv[MAX_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            kv[j] = _mm512_load_ps(k + j * head_dim * WIDE);
#pragma GCC unroll 6
        for (int i = 0; i < nr; i++) {
            const __m512 x = _mm512_set1_ps(q[i][d]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                s[i][j] = _mm512_fmadd_ps(x, kv[j], s[i][j]);
        }
    }
    const __m512 scale = _mm512_set1_ps(rows->scale);
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            _mm512_store_ps(t->p[r0 + i] + (g + j) * WIDE, _mm512_mul_ps(scale, s[i][j]));
}

/* Scores of nr rows for pairs g to g_end - 1. */
INLINE void score_pairs(block *t, int r0, const int nr, const float *k, int g, int g_end)
{
    const size_t pair = (size_t)t->rows->head_dim * WIDE;
    if (g + 4 <= g_end) {
        score(t, r0, nr, k, g, 4);
        return;
    }
    if (g + 2 <= g_end) {
        score(t, r0, nr, k, g, 2);
        g += 2;
        k += 2 * pair;
    }
    if (g < g_end)
        score(t, r0, nr, k, g, 1);
}

/* sum[row][d:d + 16 * nv] += p[pos] * v[pos][d:d + 16 * nv] of nr rows for positions lo to hi - 1, in order. */
INLINE void weigh(const float (*p)[PN_ATTN_TILE], const int nr, const float (*v)[V_COLUMNS], int lo, int hi, int d,
                  const int nv, float (*sum)[V_COLUMNS])
{
    __m512 s[MAX_ROWS][MAX_VECS];
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            s[i][j] = _mm512_load_ps(sum[i] + d + j * WIDE);
    for (int pos = lo; pos < hi; pos++) {
        __m512 x[MAX_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            x[j] = _mm512_load_ps(v[pos] + d + j * WIDE);
#pragma GCC unroll 6
        for (int i = 0; i < nr; i++) {
            const __m512 w = _mm512_set1_ps(p[i][pos]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                s[i][j] = _mm512_fmadd_ps(w, x[j], s[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            _mm512_store_ps(sum[i] + d + j * WIDE, s[i][j]);
}

/* weigh over the first n of the piece's columns, rounded up to 16. */
INLINE void weigh_columns(const float (*p)[PN_ATTN_TILE], const int nr, const float (*v)[V_COLUMNS], int lo, int hi,
                          int n, float (*sum)[V_COLUMNS])
{
    int d = 0;
    if (n > 3 * WIDE) {
        weigh(p, nr, v, lo, hi, 0, 4, sum);
        return;
    }
    if (n > WIDE) {
        weigh(p, nr, v, lo, hi, 0, 2, sum);
        d = 2 * WIDE;
    }
    if (d < n)
        weigh(p, nr, v, lo, hi, d, 1, sum);
}

/* One pair of functions for each number of rows. */
#define NOINLINE static __attribute__((noinline))
#define ROWS(nr)                                                                                                    \
    NOINLINE void score_##nr(block *t, int r0, const float *k, int g, int g_end)                                    \
    {                                                                                                               \
        score_pairs(t, r0, nr, k, g, g_end);                                                                        \
    }                                                                                                               \
    NOINLINE void weigh_##nr(const float (*p)[PN_ATTN_TILE], const float (*v)[V_COLUMNS], int lo, int hi, int n,    \
                             float (*sum)[V_COLUMNS])                                                               \
    {                                                                                                               \
        weigh_columns(p, nr, v, lo, hi, n, sum);                                                                    \
    }

ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)

typedef void (*score_fn)(block *t, int r0, const float *k, int g, int g_end);
typedef void (*weigh_fn)(const float (*p)[PN_ATTN_TILE], const float (*v)[V_COLUMNS], int lo, int hi, int n,
                         float (*sum)[V_COLUMNS]);

static const score_fn score_rows[MAX_ROWS] = {score_1, score_2, score_3, score_4, score_5, score_6};
static const weigh_fn weigh_rows[MAX_ROWS] = {weigh_1, weigh_2, weigh_3, weigh_4, weigh_5, weigh_6};

#endif
