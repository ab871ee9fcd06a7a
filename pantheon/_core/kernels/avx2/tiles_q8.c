/* Matrix x matrix tiles of Q8_0, IQ4_NL and NVFP4: codes are signed bytes of any size.
 *
 * vpmaddubsw cannot take these codes (255 * 127 * 2 saturates int16), so both sides are widened to int16 and a step
 * covers 2 k.
 *
 * Panel, per block of 32:  codes (16 steps, 16 rows, 2) int16 | d (parts, 16) f32; a part is what has one scale: the
 * block, or 16 codes (NVFP4).
 * Packed input, per block of T tokens:  codes (16 steps, T, 2) int16 | d (T,) f32. All three types share it.
 *
 * Range: a 32-bit lane sums 32 products, at most 32 * 128 * 127 < 2^19.
 */
#include "x86/codes4.h"
#include "x86/tiles_q32.h"

enum { TOK = 4, STEPS = 16, PREFETCH_BLOCKS = 8 };
enum { PANEL_D = STEPS * PANEL_SET };
enum { PACK_D = 64, PACK_BLOCK = 68 }; /* each times n_tok */

TILE_INLINE int n_parts(pn_type type) { return type == PN_NVFP4 ? 2 : 1; }
TILE_INLINE int panel_block(pn_type type) { return PANEL_D + n_parts(type) * PANEL_SET; }
TILE_INLINE int block_bytes(pn_type type) { return type == PN_Q8_0 ? 34 : type == PN_IQ4_NL ? 18 : 36; }

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

/* 32 codes of a block; half: which ones of the 64 of NVFP4. */
TILE_INLINE __m256i block_codes(pn_type type, const uint8_t *block, int half)
{
    if (type == PN_Q8_0)
        return loadu_i(block + 2);
    if (type == PN_IQ4_NL)
        return lookup_32(unequal_values(), block + 2);
    __m256i even, odd;
    nvfp4_codes(block, &even, &odd);
    return half ? _mm256_permute2x128_si256(even, odd, 0x31) : _mm256_permute2x128_si256(even, odd, 0x20);
}

/* The scales of 8 rows. */
TILE_INLINE __m256 block_scales(pn_type type, const uint8_t *const *block, int at)
{
    if (type == PN_NVFP4)
        return nv_scales(_mm256_setr_epi32(block[0][at], block[1][at], block[2][at], block[3][at], block[4][at],
                                           block[5][at], block[6][at], block[7][at]));
    return _mm256_setr_ps(load_f16(block[0]), load_f16(block[1]), load_f16(block[2]), load_f16(block[3]),
                          load_f16(block[4]), load_f16(block[5]), load_f16(block[6]), load_f16(block[7]));
}

TILE_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = (size_t)block_bytes(type);
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 32; b++, panel += panel_block(type)) {
        const int half = n_parts(type) == 2 ? b & 1 : 0; /* of a block with 64 codes */
        for (int v = 0; v < ROW_VECS; v++) {
            const uint8_t *const *block = rows.at + v * LANES;
            __m256i lo[8], hi[8];
            rows_prefetch(&rows, v * LANES, PREFETCH_BLOCKS * bytes, 1);
            #pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) {
                __m256i c = block_codes(type, block[i], half);
                lo[i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(c));
                hi[i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(c, 1));
            }
            transpose_8x8(lo);
            transpose_8x8(hi);
            store_steps(panel, v, lo, STEPS / 2);
            store_steps(panel + PANEL_D / 2, v, hi, STEPS / 2);
            for (int p = 0; p < n_parts(type); p++)
                _mm256_store_ps((float *)(panel + PANEL_D + p * PANEL_SET) + v * LANES,
                                block_scales(type, block, 2 * half + p));
        }
        if (n_parts(type) == 1 || half)
            rows_next(&rows);
    }
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 32) * PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 32;
    for (int b = 0; b < n_blocks; b++, packed += PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 32;
            uint8_t *out = packed + t * 4;
            int32_t pair[STEPS];
            _mm256_storeu_si256((__m256i *)pair, _mm256_cvtepi8_epi16(loadu_i128(q)));
            _mm256_storeu_si256((__m256i *)(pair + 8), _mm256_cvtepi8_epi16(loadu_i128(q + 16)));
            for (int g = 0; g < STEPS; g++)
                memcpy(out + g * n_tok * 4, pair + g, 4);
            memcpy(out + PACK_D * n_tok, x->d + (size_t)(t0 + t) * n_blocks + b, 4);
        }
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* s[2t], s[2t + 1]: int32 sums of n_steps steps of token t with rows 0..7 and 8..15. */
TILE_INLINE void part_sums(int n_steps, int n_tok, const uint8_t *w, const uint8_t *x, __m256i *s)
{
    #pragma GCC unroll 16
    for (int g = 0; g < n_steps; g++) {
        const __m256i w0 = load_i(w + g * 64), w1 = load_i(w + g * 64 + 32);
        #pragma GCC unroll 4
        for (int t = 0; t < n_tok; t++) {
            __m256i xb = broadcast_4(x + (g * n_tok + t) * 4);
            if (g == 0)
                first_step_i16(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
            else
                step_i16(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
        }
    }
}

TILE_INLINE void tile(int parts, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    const int steps = STEPS / parts;
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 32; b++, w += PANEL_D + parts * PANEL_SET, x += PACK_BLOCK * n_tok) {
        #pragma GCC unroll 2
        for (int p = 0; p < parts; p++) {
            __m256i s[TOK * ROW_VECS];
            part_sums(steps, n_tok, w + p * steps * PANEL_SET, x + p * steps * 4 * n_tok, s);
            q32_block_epilogue(PN_Q8_0, n_tok, (const float *)(w + PANEL_D + p * PANEL_SET), NULL,
                               (const float *)(x + PACK_D * n_tok), NULL, s, acc);
        }
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

TILE_UP_TO_4(tile_block, 1, tile)
TILE_UP_TO_4(tile_halves, 2, tile)

/* ---- the three types --------------------------------------------------------------------------------------------- */

#define Q8_TYPE(name, type) \
    static size_t panel_bytes_##name(int n) { return (size_t)(n / 32) * (size_t)panel_block(type); } \
    static void unpack_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    }

Q8_TYPE(q8_0, PN_Q8_0)
Q8_TYPE(iq4_nl, PN_IQ4_NL)
Q8_TYPE(nvfp4, PN_NVFP4)

void pn_avx2_tiles_q8(pn_kernels *k)
{
    tiles_set(&k->type[PN_Q8_0], TOK, panel_bytes_q8_0, unpack_q8_0, pack_bytes, pack_x, tile_block);
    tiles_set(&k->type[PN_IQ4_NL], TOK, panel_bytes_iq4_nl, unpack_iq4_nl, pack_bytes, pack_x, tile_block);
    tiles_set(&k->type[PN_NVFP4], TOK, panel_bytes_nvfp4, unpack_nvfp4, pack_bytes, pack_x, tile_halves);
}
