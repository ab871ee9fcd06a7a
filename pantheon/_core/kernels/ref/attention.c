/* Attention of rows over one tile of one cache head: the definition.
 *
 * Per row, in this order: scores of the visible positions (one fma chain over d each); their maximum and the sum of
 * exp(score - maximum) over 8 lanes (position % 8, lanes.h); the weighted sum of V (one fma chain over positions for
 * each d); and the merge into the row's running values, which start as m = -infinity, s = 0, acc = 0. Every row is on
 * its own, so its bits do not depend on its neighbours, and hidden positions are not read.
 */
#include "exp.h"
#include "kv_layout.h"
#include "lanes.h"

static inline float k_f16(const uint8_t *k, int head_dim, int pos, int d)
{
    return pn_load_f16(k + pn_k_at(pos, d, head_dim) * 2);
}

static inline float v_f16(const uint8_t *v, int head_dim, int pos, int d)
{
    return pn_load_f16(v + ((size_t)pos * (size_t)head_dim + (size_t)d) * 2);
}

static inline float k_f32(const uint8_t *k, int head_dim, int pos, int d)
{
    return ((const float *)k)[pn_k_at(pos, d, head_dim)];
}

static inline float v_f32(const uint8_t *v, int head_dim, int pos, int d)
{
    return ((const float *)v)[(size_t)pos * (size_t)head_dim + (size_t)d];
}

/* Code times scale is exact in f32 for both quantised types. */
static inline float k_q8_0(const uint8_t *k, int head_dim, int pos, int d)
{
    const uint8_t *chunk = k + pn_k_chunk(pos, d / PN_KV_BLOCK, head_dim, PN_K_Q8_CHUNK);
    int lane = pos % PN_KV_GROUP, code = (int8_t)chunk[PN_K_SCALES + d % PN_KV_BLOCK * PN_KV_GROUP + lane];
    return (float)code * pn_load_f16(chunk + 2 * lane);
}

static inline float v_q8_0(const uint8_t *v, int head_dim, int pos, int d)
{
    const uint8_t *block = v + pn_v_block(pos, d / PN_KV_BLOCK, head_dim, PN_V_Q8_BLOCK);
    return (float)(int8_t)block[2 + d % PN_KV_BLOCK] * pn_load_f16(block);
}

static inline float k_q4_0(const uint8_t *k, int head_dim, int pos, int d)
{
    const uint8_t *chunk = k + pn_k_chunk(pos, d / PN_KV_BLOCK, head_dim, PN_K_Q4_CHUNK);
    int lane = pos % PN_KV_GROUP, code = chunk[PN_K_SCALES + d % 16 * PN_KV_GROUP + lane] >> (d % 32 / 16 * 4) & 15;
    return (float)(code - 8) * pn_load_f16(chunk + 2 * lane);
}

static inline float v_q4_0(const uint8_t *v, int head_dim, int pos, int d)
{
    const uint8_t *block = v + pn_v_block(pos, d / PN_KV_BLOCK, head_dim, PN_V_Q4_BLOCK);
    int code = block[2 + d % 16] >> (d % 32 / 16 * 4) & 15;
    return (float)(code - 8) * pn_load_f16(block);
}

typedef float (*read_fn)(const uint8_t *area, int head_dim, int pos, int d);

static inline __attribute__((always_inline)) void attn_tile(const pn_attn_rows *rows, const uint8_t *k,
                                                            const uint8_t *v, int tile, read_fn read_k,
                                                            read_fn read_v)
{
    int head_dim = rows->head_dim, start = tile * PN_ATTN_TILE;
    for (int r = 0; r < rows->n; r++) {
        int lo = rows->first[r] > start ? rows->first[r] : start;
        int hi = rows->last[r] < start + PN_ATTN_TILE - 1 ? rows->last[r] : start + PN_ATTN_TILE - 1;
        if (lo > hi)
            continue;
        const float *q = rows->q + (size_t)r * rows->ldq;
        float p[PN_ATTN_TILE], lane[PN_LANES];

        for (int j = 0; j < PN_LANES; j++)
            lane[j] = -INFINITY;
        for (int pos = lo; pos <= hi; pos++) {
            float dot = 0.0f;
            for (int d = 0; d < head_dim; d++)
                dot = fmaf(q[d], read_k(k, head_dim, pos, d), dot);
            p[pos - start] = rows->scale * dot;
            lane[pos % PN_LANES] = pn_max(p[pos - start], lane[pos % PN_LANES]);
        }
        float m_tile = pn_lanes_max(lane);

        memset(lane, 0, sizeof lane);
        for (int pos = lo; pos <= hi; pos++) {
            p[pos - start] = pn_exp(p[pos - start] - m_tile);
            lane[pos % PN_LANES] += p[pos - start];
        }

        float m = pn_max(m_tile, rows->m[r]), a = pn_exp(rows->m[r] - m), b = pn_exp(m_tile - m);
        rows->m[r] = m;
        rows->s[r] = fmaf(rows->s[r], a, pn_lanes_sum(lane) * b);
        float *acc = rows->acc + (size_t)r * (size_t)head_dim;
        for (int d = 0; d < head_dim; d++) {
            float sum = 0.0f;
            for (int pos = lo; pos <= hi; pos++)
                sum = fmaf(p[pos - start], read_v(v, head_dim, pos, d), sum);
            acc[d] = fmaf(acc[d], a, sum * b);
        }
    }
}

#define ATTN_TILE(name) \
    static void attn_tile_##name(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile) \
    { \
        attn_tile(rows, k, v, tile, k_##name, v_##name); \
    }

ATTN_TILE(f16)
ATTN_TILE(f32)
ATTN_TILE(q8_0)
ATTN_TILE(q4_0)

void pn_ref_attention(pn_kernels *k)
{
    k->kv[PN_KVK_F16].attn_tile = attn_tile_f16;
    k->kv[PN_KVK_F32].attn_tile = attn_tile_f32;
    k->kv[PN_KVK_Q8_0].attn_tile = attn_tile_q8_0;
    k->kv[PN_KVK_Q4_0].attn_tile = attn_tile_q4_0;
}
