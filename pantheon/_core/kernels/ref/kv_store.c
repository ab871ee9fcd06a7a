/* Sizes of the cache areas, and writing one position of one head into them. */
#include <stdlib.h>

#include "kv_layout.h"
#include "lanes.h"

static size_t groups(int n_ctx)
{
    return ((size_t)n_ctx + PN_KV_GROUP - 1) / PN_KV_GROUP;
}

/* Sizes are for n_ctx rounded up to a multiple of 8. */
#define BYTES(name, k_group, v_row)                                                  \
    static size_t k_bytes_##name(int n_ctx, int head_dim)                            \
    {                                                                                \
        return groups(n_ctx) * (k_group);                                            \
    }                                                                                \
    static size_t v_bytes_##name(int n_ctx, int head_dim)                            \
    {                                                                                \
        return groups(n_ctx) * PN_KV_GROUP * (v_row);                                \
    }

BYTES(f16, (size_t)head_dim * PN_KV_GROUP * 2, (size_t)head_dim * 2)
BYTES(f32, (size_t)head_dim * PN_KV_GROUP * 4, (size_t)head_dim * 4)
BYTES(q8_0, (size_t)(head_dim / PN_KV_BLOCK) * PN_K_Q8_CHUNK, (size_t)(head_dim / PN_KV_BLOCK) * PN_V_Q8_BLOCK)
BYTES(q4_0, (size_t)(head_dim / PN_KV_BLOCK) * PN_K_Q4_CHUNK, (size_t)(head_dim / PN_KV_BLOCK) * PN_V_Q4_BLOCK)

static void store_k_f16(uint8_t *k, int pos, int head_dim, const float *x)
{
    for (int d = 0; d < head_dim; d++)
        pn_store_half(k + pn_k_at(pos, d, head_dim) * 2, x[d]);
}

static void store_v_f16(uint8_t *v, int pos, int head_dim, const float *x)
{
    v += (size_t)pos * (size_t)head_dim * 2;
    for (int d = 0; d < head_dim; d++)
        pn_store_half(v + 2 * (size_t)d, x[d]);
}

static void store_k_f32(uint8_t *k, int pos, int head_dim, const float *x)
{
    for (int d = 0; d < head_dim; d++)
        memcpy(k + pn_k_at(pos, d, head_dim) * 4, x + d, 4);
}

static void store_v_f32(uint8_t *v, int pos, int head_dim, const float *x)
{
    memcpy(v + (size_t)pos * (size_t)head_dim * 4, x, (size_t)head_dim * 4);
}

/* Codes of 32 values, in [-127, 127] whatever x is; returns the scale. */
static float quantize_q8_0(const float *x, int8_t *q)
{
    float amax = 0.0f;
    for (int i = 0; i < PN_KV_BLOCK; i++)
        amax = pn_max(fabsf(x[i]), amax);
    float d = amax / 127.0f, id = d > 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < PN_KV_BLOCK; i++) {
        float v = x[i] * id;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        int whole = (int)v; /* halves away from zero */
        float rest = v - (float)whole;
        q[i] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
    return d;
}

/* Codes of 32 values, in [0, 15] whatever x is; returns the scale, negative where the largest magnitude is positive. */
static float quantize_q4_0(const float *x, uint8_t *q)
{
    float m = 0.0f;
    for (int i = 0; i < PN_KV_BLOCK; i++)
        m = fabsf(x[i]) > fabsf(m) ? x[i] : m;
    float d = m / -8.0f, id = d != 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < PN_KV_BLOCK; i++) {
        float v = x[i] * id + 8.5f;
        v = v < 15.0f ? v : 15.0f;
        q[i] = (uint8_t)(v > 0.0f ? v : 0.0f);
    }
    return d;
}

static void store_k_q8_0(uint8_t *k, int pos, int head_dim, const float *x)
{
    int8_t q[PN_KV_BLOCK];
    int lane = pos % PN_KV_GROUP;
    for (int b = 0; b < head_dim / PN_KV_BLOCK; b++) {
        uint8_t *chunk = k + pn_k_chunk(pos, b, head_dim, PN_K_Q8_CHUNK);
        pn_store_half(chunk + 2 * lane, quantize_q8_0(x + b * PN_KV_BLOCK, q));
        for (int i = 0; i < PN_KV_BLOCK; i++)
            chunk[PN_K_SCALES + i * PN_KV_GROUP + lane] = (uint8_t)q[i];
    }
}

static void store_v_q8_0(uint8_t *v, int pos, int head_dim, const float *x)
{
    int8_t q[PN_KV_BLOCK];
    for (int b = 0; b < head_dim / PN_KV_BLOCK; b++) {
        uint8_t *block = v + pn_v_block(pos, b, head_dim, PN_V_Q8_BLOCK);
        pn_store_half(block, quantize_q8_0(x + b * PN_KV_BLOCK, q));
        memcpy(block + 2, q, PN_KV_BLOCK);
    }
}

static void store_k_q4_0(uint8_t *k, int pos, int head_dim, const float *x)
{
    uint8_t q[PN_KV_BLOCK];
    int lane = pos % PN_KV_GROUP;
    for (int b = 0; b < head_dim / PN_KV_BLOCK; b++) {
        uint8_t *chunk = k + pn_k_chunk(pos, b, head_dim, PN_K_Q4_CHUNK);
        pn_store_half(chunk + 2 * lane, quantize_q4_0(x + b * PN_KV_BLOCK, q));
        for (int i = 0; i < PN_KV_BLOCK / 2; i++)
            chunk[PN_K_SCALES + i * PN_KV_GROUP + lane] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

static void store_v_q4_0(uint8_t *v, int pos, int head_dim, const float *x)
{
    uint8_t q[PN_KV_BLOCK];
    for (int b = 0; b < head_dim / PN_KV_BLOCK; b++) {
        uint8_t *block = v + pn_v_block(pos, b, head_dim, PN_V_Q4_BLOCK);
        pn_store_half(block, quantize_q4_0(x + b * PN_KV_BLOCK, q));
        for (int i = 0; i < PN_KV_BLOCK / 2; i++)
            block[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

#define SET(ops, label) \
    do { \
        (ops).name = #label; \
        (ops).k_bytes = k_bytes_##label; \
        (ops).v_bytes = v_bytes_##label; \
        (ops).store_k = store_k_##label; \
        (ops).store_v = store_v_##label; \
    } while (0)

void pn_ref_kv_store(pn_kernels *k)
{
    SET(k->kv[PN_KVK_F16], f16);
    SET(k->kv[PN_KVK_F32], f32);
    SET(k->kv[PN_KVK_Q8_0], q8_0);
    SET(k->kv[PN_KVK_Q4_0], q4_0);
}
