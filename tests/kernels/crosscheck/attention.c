/* KV caches: storing, and attention over all tiles of a few kinds of mask. */
#include <math.h>
#include <string.h>

#include "crosscheck.h"

enum { POSITIONS = 200, MAX_ROWS = 13 };

typedef struct mask {
    const char *name;
    int n_rows, first, first_step, last, last_step; /* row r sees first + r * first_step to last + r * last_step */
} mask;

static const mask MASKS[] = {
    {"one", 1, 0, 0, 0, 0}, {"short", 3, 0, 0, 4, -1}, {"one tile", 1, 0, 0, 63, 0}, {"causal", 13, 0, 0, 150, 1},
    {"window", 7, 60, 1, 190, 1}, {"disjoint", 6, 0, 33, 20, 33},
};

static void check_mask(pn_kv_kind kind, int head_dim, const mask *m, const uint8_t *k, const uint8_t *v)
{
    float *q = aligned((size_t)(m->n_rows * head_dim) * 4), *acc[2], top[2][MAX_ROWS], sum[2][MAX_ROWS];
    int first[MAX_ROWS], last[MAX_ROWS];
    for (int i = 0; i < m->n_rows * head_dim; i++)
        q[i] = random_float(2);
    for (int r = 0; r < m->n_rows; r++) {
        first[r] = m->first + r * m->first_step;
        last[r] = m->last + r * m->last_step;
        top[0][r] = top[1][r] = -INFINITY;
        sum[0][r] = sum[1][r] = 0;
    }
    for (int i = 0; i < 2; i++) {
        acc[i] = aligned((size_t)(m->n_rows * head_dim) * 4);
        const pn_attn_rows rows = {.n = m->n_rows, .head_dim = head_dim, .scale = 0.125f, .q = q,
                                   .ldq = (size_t)head_dim, .first = first, .last = last, .m = top[i], .s = sum[i],
                                   .acc = acc[i]};
        for (int tile = 0; tile * PN_ATTN_TILE < POSITIONS; tile++)
            (i ? ref : level)->kv[kind].attn_tile(&rows, k, v, tile);
    }
    const char *name = ref->kv[kind].name;
    same_floats(top[0], top[1], (size_t)m->n_rows, "%s maximum, D %d, %s", name, head_dim, m->name);
    same_floats(sum[0], sum[1], (size_t)m->n_rows, "%s sum, D %d, %s", name, head_dim, m->name);
    same_floats(acc[0], acc[1], (size_t)(m->n_rows * head_dim), "%s acc, D %d, %s", name, head_dim, m->name);
}

static void check_kind(pn_kv_kind kind, int head_dim)
{
    const pn_kv_ops *ops = &ref->kv[kind];
    const size_t k_bytes = ops->k_bytes(POSITIONS, head_dim), v_bytes = ops->v_bytes(POSITIONS, head_dim);
    uint8_t *k[2], *v[2];
    float x[2][256];
    for (int i = 0; i < 2; i++) {
        k[i] = aligned(k_bytes);
        v[i] = aligned(v_bytes);
    }
    for (int pos = 0; pos < POSITIONS; pos++) {
        for (int d = 0; d < head_dim; d++) {
            x[0][d] = random_float(1);
            x[1][d] = random_float(1);
        }
        for (int i = 0; i < 2; i++) {
            (i ? ref : level)->kv[kind].store_k(k[i], pos, head_dim, x[0]);
            (i ? ref : level)->kv[kind].store_v(v[i], pos, head_dim, x[1]);
        }
    }
    same_bytes(k[0], k[1], k_bytes, "%s stored K, D %d", ops->name, head_dim);
    same_bytes(v[0], v[1], v_bytes, "%s stored V, D %d", ops->name, head_dim);
    for (size_t m = 0; m < sizeof MASKS / sizeof *MASKS; m++)
        check_mask(kind, head_dim, &MASKS[m], k[1], v[1]);
    release();
}

void check_attention(void)
{
    static const int DIMS[] = {8, 24, 32, 64, 80, 96, 128, 256, 7};
    for (int kind = 0; kind < PN_KVK_COUNT; kind++)
        for (size_t i = 0; i < sizeof DIMS / sizeof *DIMS; i++)
            if (kind < PN_KVK_Q8_0 || DIMS[i] % 32 == 0)
                check_kind((pn_kv_kind)kind, DIMS[i]);
}
