/* Where things lie in a cache head, and how one K/V value is read and rounded: shared by all levels.
 *
 * A quantised K area is a row of chunks, one per 8 positions and 32 dims, dims innermost: 8 f16 scales, then the codes
 * [32][8] (q4_0: [16][8] bytes, dim d in the low nibble and d + 16 in the high one). Scales are computed in f32, the
 * codes use the inverse of the f32 scale, and the scale is stored as f16: what GGUF's own quantisers do.
 */
#ifndef PN_KV_LAYOUT_H
#define PN_KV_LAYOUT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "kernels.h"

enum {
    PN_KV_GROUP = 8,                 /* positions of a K group */
    PN_KV_BLOCK = 32,                /* dims of a quantised block */
    PN_K_SCALES = 2 * PN_KV_GROUP,   /* bytes of the scales of a K chunk */
    PN_K_Q8_CHUNK = PN_K_SCALES + 32 * PN_KV_GROUP,
    PN_K_Q4_CHUNK = PN_K_SCALES + 16 * PN_KV_GROUP,
    PN_V_Q8_BLOCK = 2 + 32,
    PN_V_Q4_BLOCK = 2 + 16,
};

/* Element of (pos, d) in an f16 or f32 K area. */
static inline size_t pn_k_at(int pos, int d, int head_dim)
{
    return ((size_t)(pos / PN_KV_GROUP) * (size_t)head_dim + (size_t)d) * PN_KV_GROUP + (size_t)(pos % PN_KV_GROUP);
}

/* Byte of the quantised K chunk that holds (pos, 32 * block ...). */
static inline size_t pn_k_chunk(int pos, int block, int head_dim, int chunk_bytes)
{
    size_t n_block = (size_t)(head_dim / PN_KV_BLOCK);
    return ((size_t)(pos / PN_KV_GROUP) * n_block + (size_t)block) * (size_t)chunk_bytes;
}

/* Byte of the quantised V block that holds (pos, 32 * block ...). */
static inline size_t pn_v_block(int pos, int block, int head_dim, int block_bytes)
{
    size_t n_block = (size_t)(head_dim / PN_KV_BLOCK);
    return ((size_t)pos * n_block + (size_t)block) * (size_t)block_bytes;
}

static inline void pn_store_half(uint8_t *p, float x)
{
    uint16_t h = pn_f32_to_f16(x);
    memcpy(p, &h, 2);
}

#endif
