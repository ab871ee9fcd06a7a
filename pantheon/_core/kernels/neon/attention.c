/* ref/attention.c in 4-wide registers, up to ROWS rows at a time: a piece of K or V that is loaded, and expanded where
 * it is quantised, serves all of them.
 *
 * Lanes of a K group are positions and never mix before the softmax, so hidden positions of a loaded group do no harm:
 * their scores are dropped. Each row adds exactly the V positions that it sees, in increasing order.
 */
#include "exp.h"
#include "kv_layout.h"

enum { ROWS = 4 };

typedef struct row_view { /* what a row sees of the tile: positions lo to hi - 1, counted within it */
    int row, lo, hi;
    float a, b;           /* factors of the merge: old values, this tile's */
    float p[PN_ATTN_TILE]; /* scores, then exp(score - maximum) */
} row_view;

/* ---- reading the cache ------------------------------------------------------------------------------------------- */

NEON_INLINE f32x8 s8_to_f32x8(int8x8_t v)
{
    const int16x8_t wide = vmovl_s8(v);
    return (f32x8){vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)))};
}

NEON_INLINE f32x8 f16_to_f32x8(const uint8_t *p) { return (f32x8){f16x4(p), f16x4(p + 8)}; }

/* 8 codes of q4_0 from 8 bytes, high: from the upper nibbles. */
NEON_INLINE f32x8 q4_to_f32x8(const uint8_t *p, int high)
{
    const uint8x8_t v = vld1_u8(p), code = high ? vshr_n_u8(v, 4) : vand_u8(v, vdup_n_u8(15));
    return s8_to_f32x8(vsub_s8(vreinterpret_s8_u8(code), vdup_n_s8(8)));
}

NEON_INLINE size_t k_group_bytes(pn_kv_kind kind, int head_dim)
{
    const size_t n = (size_t)head_dim;
    return kind == PN_KVK_F16 ? n * 16 : kind == PN_KVK_F32 ? n * 32
         : n / PN_KV_BLOCK * (kind == PN_KVK_Q8_0 ? PN_K_Q8_CHUNK : PN_K_Q4_CHUNK);
}

NEON_INLINE size_t v_row_bytes(pn_kv_kind kind, int head_dim)
{
    const size_t n = (size_t)head_dim;
    return kind == PN_KVK_F16 ? n * 2 : kind == PN_KVK_F32 ? n * 4
         : n / PN_KV_BLOCK * (kind == PN_KVK_Q8_0 ? PN_V_Q8_BLOCK : PN_V_Q4_BLOCK);
}

/* Dim d of the 8 positions of a K group. */
NEON_INLINE f32x8 k_at(pn_kv_kind kind, const uint8_t *group, int d)
{
    if (kind == PN_KVK_F16)
        return f16_to_f32x8(group + 16 * d);
    if (kind == PN_KVK_F32)
        return f32x8_load((const float *)group + 8 * d);
    const uint8_t *chunk = group + (size_t)(d / 32) * (kind == PN_KVK_Q8_0 ? PN_K_Q8_CHUNK : PN_K_Q4_CHUNK);
    const f32x8 scale = f16_to_f32x8(chunk);
    const uint8_t *codes = chunk + PN_K_SCALES;
    if (kind == PN_KVK_Q8_0)
        return f32x8_mul(s8_to_f32x8(vld1_s8((const int8_t *)codes + d % 32 * 8)), scale);
    return f32x8_mul(q4_to_f32x8(codes + d % 16 * 8, d % 32 / 16), scale);
}

/* Dims d to d + 7 of one V row. */
NEON_INLINE f32x8 v_at(pn_kv_kind kind, const uint8_t *row, int d)
{
    if (kind == PN_KVK_F16)
        return f16_to_f32x8(row + 2 * d);
    if (kind == PN_KVK_F32)
        return f32x8_load((const float *)row + d);
    const uint8_t *block = row + (size_t)(d / 32) * (kind == PN_KVK_Q8_0 ? PN_V_Q8_BLOCK : PN_V_Q4_BLOCK);
    const f32x8 scale = f32x8_set(pn_load_f16(block));
    if (kind == PN_KVK_Q8_0)
        return f32x8_mul(s8_to_f32x8(vld1_s8((const int8_t *)block + 2 + d % 32)), scale);
    return f32x8_mul(q4_to_f32x8(block + 2 + d % 16, d % 32 / 16), scale);
}

/* ---- one tile ---------------------------------------------------------------------------------------------------- */

/* Scores of nr rows for the K groups that some of them see. */
NEON_INLINE void score(const pn_attn_rows *rows, row_view *view, int nr, pn_kv_kind kind, const uint8_t *k, int lo,
                       int hi)
{
    for (int g = lo / PN_KV_GROUP; g * PN_KV_GROUP < hi; g++) {
        const uint8_t *group = k + (size_t)g * k_group_bytes(kind, rows->head_dim);
        f32x8 dot[ROWS];
        for (int i = 0; i < nr; i++)
            dot[i] = f32x8_set(0);
        for (int d = 0; d < rows->head_dim; d++) {
            const f32x8 kv = k_at(kind, group, d);
            for (int i = 0; i < nr; i++)
                dot[i] = f32x8_fma(f32x8_set(rows->q[(size_t)view[i].row * rows->ldq + (size_t)d]), kv, dot[i]);
        }
        for (int i = 0; i < nr; i++)
            f32x8_store(view[i].p + g * PN_KV_GROUP, f32x8_mul(f32x8_set(rows->scale), dot[i]));
    }
}

static void softmax_row(const pn_attn_rows *rows, row_view *v)
{
    const int first = v->lo / PN_KV_GROUP * PN_KV_GROUP, end = (v->hi + PN_KV_GROUP - 1) / PN_KV_GROUP * PN_KV_GROUP;
    for (int i = first; i < v->lo; i++)
        v->p[i] = -INFINITY;
    for (int i = v->hi; i < end; i++)
        v->p[i] = -INFINITY;
    f32x8 top = f32x8_set(-INFINITY), sum = f32x8_set(0);
    for (int i = first; i < end; i += PN_KV_GROUP)
        top = f32x8_max(f32x8_load(v->p + i), top);
    const float m_tile = f32x8_lanes_max(top);
    for (int i = first; i < end; i += PN_KV_GROUP) {
        const f32x8 e = exp8(f32x8_sub(f32x8_load(v->p + i), f32x8_set(m_tile)));
        f32x8_store(v->p + i, e);
        sum = f32x8_add(sum, e);
    }
    const float m = pn_max(m_tile, rows->m[v->row]);
    v->a = pn_exp(rows->m[v->row] - m);
    v->b = pn_exp(m_tile - m);
    rows->m[v->row] = m;
    rows->s[v->row] = fmaf(rows->s[v->row], v->a, f32x8_lanes_sum(sum) * v->b);
}

/* Weighted V of nr rows, 8 dims at a time, merged into their acc. */
NEON_INLINE void weigh(const pn_attn_rows *rows, const row_view *view, int nr, pn_kv_kind kind, const uint8_t *v,
                       int lo, int hi)
{
    const size_t row_bytes = v_row_bytes(kind, rows->head_dim);
    for (int d = 0; d < rows->head_dim; d += 8) {
        f32x8 sum[ROWS];
        for (int i = 0; i < nr; i++)
            sum[i] = f32x8_set(0);
        for (int pos = lo; pos < hi; pos++) {
            const f32x8 x = v_at(kind, v + (size_t)pos * row_bytes, d);
            for (int i = 0; i < nr; i++)
                if (view[i].lo <= pos && pos < view[i].hi)
                    sum[i] = f32x8_fma(f32x8_set(view[i].p[pos]), x, sum[i]);
        }
        for (int i = 0; i < nr; i++) {
            float *acc = rows->acc + (size_t)view[i].row * (size_t)rows->head_dim + (size_t)d;
            const f32x8 fresh = f32x8_mul(sum[i], f32x8_set(view[i].b));
            f32x8_store(acc, f32x8_fma(f32x8_load(acc), f32x8_set(view[i].a), fresh));
        }
    }
}

NEON_INLINE void attn_tile(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile, pn_kv_kind kind)
{
    const int start = tile * PN_ATTN_TILE;
    k += (size_t)(start / PN_KV_GROUP) * k_group_bytes(kind, rows->head_dim);
    v += (size_t)start * v_row_bytes(kind, rows->head_dim);
    for (int r = 0; r < rows->n;) {
        row_view view[ROWS];
        int nr = 0, lo = PN_ATTN_TILE, hi = 0;
        for (; r < rows->n && nr < ROWS; r++) {
            row_view *one = &view[nr];
            one->row = r;
            one->lo = rows->first[r] > start ? rows->first[r] - start : 0;
            one->hi = rows->last[r] < start + PN_ATTN_TILE - 1 ? rows->last[r] - start + 1 : PN_ATTN_TILE;
            if (one->lo >= one->hi)
                continue;
            lo = one->lo < lo ? one->lo : lo;
            hi = one->hi > hi ? one->hi : hi;
            nr++;
        }
        if (nr == ROWS)
            score(rows, view, ROWS, kind, k, lo, hi);
        else
            for (int i = 0; i < nr; i++)
                score(rows, view + i, 1, kind, k, view[i].lo, view[i].hi);
        for (int i = 0; i < nr; i++)
            softmax_row(rows, &view[i]);
        if (nr == ROWS)
            weigh(rows, view, ROWS, kind, v, lo, hi);
        else
            for (int i = 0; i < nr; i++)
                weigh(rows, view + i, 1, kind, v, view[i].lo, view[i].hi);
    }
}

/* The level below's, for shapes that this one leaves to it. */
static void (*lower[PN_KVK_COUNT])(const pn_attn_rows *, const uint8_t *, const uint8_t *, int);

#define ATTN_TILE(name, kind) \
    static void attn_tile_##name(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile) \
    { \
        if (rows->head_dim % 8) \
            lower[kind](rows, k, v, tile); \
        else \
            attn_tile(rows, k, v, tile, kind); \
    }

ATTN_TILE(f16, PN_KVK_F16)
ATTN_TILE(f32, PN_KVK_F32)
ATTN_TILE(q8_0, PN_KVK_Q8_0)
ATTN_TILE(q4_0, PN_KVK_Q4_0)

void PN_NEON(attention)(pn_kernels *k)
{
    for (int i = 0; i < PN_KVK_COUNT; i++)
        lower[i] = k->kv[i].attn_tile;
    k->kv[PN_KVK_F16].attn_tile = attn_tile_f16;
    k->kv[PN_KVK_F32].attn_tile = attn_tile_f32;
    k->kv[PN_KVK_Q8_0].attn_tile = attn_tile_q8_0;
    k->kv[PN_KVK_Q4_0].attn_tile = attn_tile_q4_0;
}
