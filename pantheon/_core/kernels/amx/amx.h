/* Tile registers: 8 matrices of 16 rows of 64 bytes. C (16 x 16) int32 += A (16 x K) int8 times B (K / 4 x 16 x 4),
 * int8 or uint8, K up to 64: rows of A are tokens, columns of B and C weight rows.
 *
 * A tile function configures them on entry and releases them on exit, so that nothing of theirs is saved at context
 * switches between, and no other user in the process is disturbed. Compiled without the instructions, plain C stands in
 * for them (docs/levels.md).
 */
#ifndef PN_AMX_H
#define PN_AMX_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_TILE_BYTES = AMX_ROWS * AMX_ROW_BYTES, AMX_TILES = 8 };

#define AMX_INLINE static inline __attribute__((always_inline))

/* The operand of ldtilecfg. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

#ifdef __AMX_INT8__

/* Tiles 0 to 3 are C, from 4 on A, from b on B; products are of n_tok rows of k_bytes. */
AMX_INLINE void amx_begin(int k_bytes, int n_tok, int b)
{
    amx_config config = {.palette = 1};
    for (int i = 0; i < AMX_TILES; i++) {
        config.row_bytes[i] = (uint16_t)(i >= 4 && i < b ? k_bytes : AMX_ROW_BYTES);
        config.rows[i] = (uint8_t)(i >= b ? k_bytes / 4 : n_tok);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

AMX_INLINE void amx_end(void) { __asm__ volatile("tilerelease" ::: "memory"); }

#define amx_zero(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define amx_load(t, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((size_t)(stride)) : "memory")
#define amx_store(c, p) \
    __asm__ volatile("tilestored %%tmm" #c ", (%0,%1,1)" ::"r"(p), "r"((size_t)AMX_ROW_BYTES) : "memory")
#define amx_dot(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define amx_dot_u8(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::) /* B is uint8 */

#else

typedef struct amx_state {
    int k_bytes, n_tok, b;
    int8_t tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
} amx_state;

static __thread amx_state amx_now;

AMX_INLINE void amx_begin(int k_bytes, int n_tok, int b)
{
    amx_now.k_bytes = k_bytes;
    amx_now.n_tok = n_tok;
    amx_now.b = b;
}
AMX_INLINE void amx_end(void) {}
AMX_INLINE void amx_zero(int c) { memset(amx_now.tile[c], 0, AMX_TILE_BYTES); }

AMX_INLINE void amx_load(int t, const void *p, size_t stride)
{
    const int rows = t >= amx_now.b ? amx_now.k_bytes / 4 : amx_now.n_tok;
    const size_t bytes = t >= 4 && t < amx_now.b ? (size_t)amx_now.k_bytes : AMX_ROW_BYTES;
    for (int i = 0; i < rows; i++)
        memcpy(amx_now.tile[t][i], (const uint8_t *)p + (size_t)i * stride, bytes);
}

AMX_INLINE void amx_store(int c, void *p)
{
    memcpy(p, amx_now.tile[c], (size_t)amx_now.n_tok * AMX_ROW_BYTES);
}

static void amx_products(int c, int a, int b, int mask) /* mask 255: B is uint8; -1: int8 */
{
    for (int t = 0; t < amx_now.n_tok; t++)
        for (int r = 0; r < AMX_ROWS; r++) {
            int32_t sum;
            memcpy(&sum, &amx_now.tile[c][t][4 * r], 4);
            for (int k = 0; k < amx_now.k_bytes; k++)
                sum += amx_now.tile[a][t][k] * (amx_now.tile[b][k / 4][4 * r + k % 4] & mask);
            memcpy(&amx_now.tile[c][t][4 * r], &sum, 4);
        }
}

AMX_INLINE void amx_dot(int c, int a, int b) { amx_products(c, a, b, -1); }
AMX_INLINE void amx_dot_u8(int c, int a, int b) { amx_products(c, a, b, 255); }

#endif
#endif
