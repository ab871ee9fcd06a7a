/* What matrix x matrix tiles in 256-bit registers share.
 *
 * A panel is 16 weight rows unpacked once and read by every token tile: two vectors of 8 lanes, lane = row. Integer
 * tiles advance 4 consecutive k per lane and step (int8 codes) or 2 (int16): a step loads the two row vectors and
 * broadcasts the same k of one token after the other, so nothing is ever reduced across lanes. Sums of a block stay
 * in registers; the float accumulators of the tile live in an array that the first-level cache holds, and are touched
 * once a block.
 */
#ifndef PN_X86_TILES_H
#define PN_X86_TILES_H

#include <immintrin.h>
#include <string.h>

#include "kernels.h"

#define TILE_INLINE static inline __attribute__((always_inline))
#define TILE_BODY static __attribute__((noinline))

enum { LANES = 8, ROW_VECS = PN_PANEL / LANES };

/* Pins a value here. gcc 12 otherwise sinks sums below later loads and spills every product. */
#define KEEP(v) __asm__ volatile("" : "+x"(v))
/* Ends a block: keeps gcc from moving the next block's loads across it. */
#define BLOCK_END() __asm__ volatile("" ::: "memory")

TILE_INLINE __m256i load_i(const void *p) { return _mm256_load_si256((const __m256i *)p); }
TILE_INLINE __m256i loadu_i(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
TILE_INLINE __m128i loadu_i128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
TILE_INLINE void store_i(void *p, __m256i v) { _mm256_store_si256((__m256i *)p, v); }

/* Broadcasts 4 bytes of packed input: 4 int8 codes, 2 int16 numbers. */
TILE_INLINE __m256i broadcast_4(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

TILE_INLINE float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

/* ---- register steps ---------------------------------------------------------------------------------------------- */

/* s0 += w0 * x, s1 += w1 * x over 4 k: uint8 weights, int8 input, pairs summed to int16 (wraps, never saturates as
 * long as 2 * max(w) * 127 < 2^15). Both products before both sums is the order that measured best. */
TILE_INLINE void step_u8(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, __m256i x)
{
    __m256i p;
    __asm__ volatile("vpmaddubsw %[x], %[w0], %[p]\n\t"
                     "vpmaddubsw %[x], %[w1], %[x]\n\t"
                     "vpaddw %[p], %[s0], %[s0]\n\t"
                     "vpaddw %[x], %[s1], %[s1]"
                     : [s0] "+x"(*s0), [s1] "+x"(*s1), [x] "+x"(x), [p] "=&x"(p)
                     : [w0] "x"(w0), [w1] "x"(w1));
}

TILE_INLINE void first_step_u8(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, __m256i x)
{
    *s0 = _mm256_maddubs_epi16(w0, x);
    KEEP(*s0);
    *s1 = _mm256_maddubs_epi16(w1, x);
    KEEP(*s1);
}

/* The same over 2 k: int16 weights and input, int32 sums. */
TILE_INLINE void step_i16(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, __m256i x)
{
    __m256i p;
    __asm__ volatile("vpmaddwd %[x], %[w0], %[p]\n\t"
                     "vpmaddwd %[x], %[w1], %[x]\n\t"
                     "vpaddd %[p], %[s0], %[s0]\n\t"
                     "vpaddd %[x], %[s1], %[s1]"
                     : [s0] "+x"(*s0), [s1] "+x"(*s1), [x] "+x"(x), [p] "=&x"(p)
                     : [w0] "x"(w0), [w1] "x"(w1));
}

TILE_INLINE void first_step_i16(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, __m256i x)
{
    *s0 = _mm256_madd_epi16(w0, x);
    KEEP(*s0);
    *s1 = _mm256_madd_epi16(w1, x);
    KEEP(*s1);
}

/* ---- tile accumulators: (n_tok, 16) f32 -------------------------------------------------------------------------- */

TILE_INLINE void acc_clear(float *acc, int n_tok) { memset(acc, 0, (size_t)n_tok * PN_PANEL * sizeof(float)); }

TILE_INLINE void acc_store(const float *acc, int n_tok, float *y, size_t ldy)
{
    for (int t = 0; t < n_tok; t++)
        memcpy(y + (size_t)t * ldy, acc + t * PN_PANEL, PN_PANEL * sizeof(float));
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

/* The 16 rows of a panel while it is unpacked, each at its current block. Rows that the matrix does not have stand on a
 * block of zeros and never advance: zero codes with zero scales give zero products. */
typedef struct panel_rows {
    const uint8_t *at[PN_PANEL];
    size_t step[PN_PANEL];
} panel_rows;

static const uint8_t TILE_ZERO_BLOCK[256];

TILE_INLINE void rows_begin(panel_rows *rows, const uint8_t *w, size_t row_bytes, int n_rows, size_t block_bytes)
{
    for (int r = 0; r < PN_PANEL; r++) {
        rows->at[r] = r < n_rows ? w + (size_t)r * row_bytes : TILE_ZERO_BLOCK;
        rows->step[r] = r < n_rows ? block_bytes : 0;
    }
}

TILE_INLINE void rows_next(panel_rows *rows)
{
    for (int r = 0; r < PN_PANEL; r++)
        rows->at[r] += rows->step[r];
}

/* Asks for the lines of 8 rows that lie ahead bytes further on. 16 strided streams are too many for the hardware's own
 * prefetch. A prefetch past the rows' end is not a read. */
TILE_INLINE void rows_prefetch(const panel_rows *rows, int first, size_t ahead, size_t bytes)
{
    for (int i = first; i < first + LANES; i++)
        for (size_t o = 0; o < bytes; o += 64)
            _mm_prefetch((const char *)((uintptr_t)rows->at[i] + ahead + o), _MM_HINT_T0);
}

/* 8 rows of 8 dwords -> 8 vectors that hold one dword of every row. */
TILE_INLINE void transpose_8x8(__m256i *r)
{
    __m256i a0 = _mm256_unpacklo_epi32(r[0], r[1]), a1 = _mm256_unpackhi_epi32(r[0], r[1]);
    __m256i a2 = _mm256_unpacklo_epi32(r[2], r[3]), a3 = _mm256_unpackhi_epi32(r[2], r[3]);
    __m256i a4 = _mm256_unpacklo_epi32(r[4], r[5]), a5 = _mm256_unpackhi_epi32(r[4], r[5]);
    __m256i a6 = _mm256_unpacklo_epi32(r[6], r[7]), a7 = _mm256_unpackhi_epi32(r[6], r[7]);
    __m256i b0 = _mm256_unpacklo_epi64(a0, a2), b1 = _mm256_unpackhi_epi64(a0, a2);
    __m256i b2 = _mm256_unpacklo_epi64(a1, a3), b3 = _mm256_unpackhi_epi64(a1, a3);
    __m256i b4 = _mm256_unpacklo_epi64(a4, a6), b5 = _mm256_unpackhi_epi64(a4, a6);
    __m256i b6 = _mm256_unpacklo_epi64(a5, a7), b7 = _mm256_unpackhi_epi64(a5, a7);
    r[0] = _mm256_permute2x128_si256(b0, b4, 0x20);
    r[1] = _mm256_permute2x128_si256(b1, b5, 0x20);
    r[2] = _mm256_permute2x128_si256(b2, b6, 0x20);
    r[3] = _mm256_permute2x128_si256(b3, b7, 0x20);
    r[4] = _mm256_permute2x128_si256(b0, b4, 0x31);
    r[5] = _mm256_permute2x128_si256(b1, b5, 0x31);
    r[6] = _mm256_permute2x128_si256(b2, b6, 0x31);
    r[7] = _mm256_permute2x128_si256(b3, b7, 0x31);
}

/* 4 codes a row and step: vector g of c goes to out[g][row_vec] of a (steps, 2, 8 rows, 4 bytes) array. */
TILE_INLINE void store_steps(uint8_t *out, int row_vec, const __m256i *c, int n_steps)
{
    for (int g = 0; g < n_steps; g++)
        store_i(out + (g * ROW_VECS + row_vec) * 32, c[g]);
}

/* ---- packing input ----------------------------------------------------------------------------------------------- */

/* Sums of the codes at k = 0, 1 mod 4 (low half) and k = 2, 3 mod 4 (high half), as two int16: what the 16-bit lanes
 * of a step sum up when every weight is one. */
TILE_INLINE __m128i pair_sums_16(const int8_t *q)
{
    __m128i v = _mm_maddubs_epi16(_mm_set1_epi8(1), loadu_i128(q));
    v = _mm_add_epi16(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_add_epi16(v, _mm_shuffle_epi32(v, 0xb1));
}

/* Stores -(pair sums << shift): the start of a sum over codes that are offset by 1 << shift. */
TILE_INLINE void store_offset_start(uint8_t *out, __m128i pair_sums, int shift)
{
    int32_t v = _mm_cvtsi128_si32(_mm_slli_epi16(_mm_sub_epi16(_mm_setzero_si128(), pair_sums), shift));
    memcpy(out, &v, 4);
}

/* ---- the table entry -------------------------------------------------------------------------------------------- */

TILE_INLINE void tiles_set(pn_type_ops *ops, int tile_tok, size_t (*panel_bytes)(int),
                           void (*unpack)(const uint8_t *, size_t, int, int, uint8_t *), size_t (*pack_bytes)(int, int),
                           void (*pack_x)(const pn_act *, int, int, uint8_t *),
                           void (*tile)(const uint8_t *, const uint8_t *, int, int, float *, size_t))
{
    ops->panel_bytes = panel_bytes;
    ops->unpack = unpack;
    ops->pack_bytes = pack_bytes;
    ops->pack_x = pack_x;
    ops->tile = tile;
    ops->tile_tok = ops->pack_tok = tile_tok;
}

/* The entry of a type whose unpack makes the panels of another type. */
TILE_INLINE void tiles_like(pn_type_ops *ops, const pn_type_ops *other,
                            void (*unpack)(const uint8_t *, size_t, int, int, uint8_t *))
{
    tiles_set(ops, other->tile_tok, other->panel_bytes, unpack, other->pack_bytes, other->pack_x, other->tile);
    ops->pack_tok = other->pack_tok;
}

/* ---- one compiled body per token count --------------------------------------------------------------------------- */

#define TILE_ARGS const uint8_t *panel, const uint8_t *packed, int n, float *y, size_t ldy

#define TILE_FIXED(name, type, kernel, T) \
    TILE_BODY void name##_##T(TILE_ARGS) { kernel(type, T, panel, packed, n, y, ldy); }

#define TILE_UP_TO_4(name, type, kernel) \
    TILE_FIXED(name, type, kernel, 1) TILE_FIXED(name, type, kernel, 2) TILE_FIXED(name, type, kernel, 3) \
    TILE_FIXED(name, type, kernel, 4) \
    static void name(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy) \
    { \
        static void (*const body[])(TILE_ARGS) = {name##_1, name##_2, name##_3, name##_4}; \
        body[n_tok - 1](panel, packed, n, y, ldy); \
    }

#define TILE_UP_TO_6(name, type, kernel) \
    TILE_FIXED(name, type, kernel, 1) TILE_FIXED(name, type, kernel, 2) TILE_FIXED(name, type, kernel, 3) \
    TILE_FIXED(name, type, kernel, 4) TILE_FIXED(name, type, kernel, 5) TILE_FIXED(name, type, kernel, 6) \
    static void name(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy) \
    { \
        static void (*const body[])(TILE_ARGS) = {name##_1, name##_2, name##_3, name##_4, name##_5, name##_6}; \
        body[n_tok - 1](panel, packed, n, y, ldy); \
    }

#endif
