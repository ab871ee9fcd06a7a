/* Matrix x matrix tiles of Q4_K, Q5_K and Q6_K: super-blocks of 256 weights, exact in int32, one float step each.
 *
 * Both sides go through a super-block in 8 sub-blocks of 32.
 * Panels: see panels.h.
 * Packed input of T tokens, per sub-block:  codes (8 steps, T, 4) int8 | start32 (2 halves, T, 2) int16;
 *   then per block:      sums of 32 codes (4, T, 2) int16 | d (T,) f32.
 * The three types share the packing; each reads what it needs of it.
 *
 * Range. A part is what a 16-bit lane sums before the scale: 16 products of 4-bit codes, at most 16 * 15 * 127 =
 * 30480; or 8 of 5-bit ones, 8 * 31 * 127 = 31496; or 8 of Q6_K, offset by 32, at most 8 * 32 * 127 = 32512 in size
 * once the offset is taken off: they begin at -32 * (sum of the lane's inputs), at most 32512, and wrap on the way.
 * One vpmaddubsw sums two products, at most 2 * 63 * 127 = 16002: it cannot saturate. int32: 256 * 63 * 31 * 127 <
 * 2^26 (Q5_K), 256 * 128 * 32 * 127 < 2^28 (Q6_K).
 */
#include "x86/codes45.h"
#include "x86/tiles_k.h"

enum { TOK = 4, SUBS = PANEL_SUBS, STEPS = PANEL_STEPS, PREFETCH_BLOCKS = 2 };

TILE_INLINE int n_parts(pn_type type) { return type == PN_Q4_K ? 1 : 2; } /* int16 sums of a sub-block */
TILE_INLINE int block_bytes(pn_type type) { return type == PN_Q4_K ? 144 : type == PN_Q5_K ? 176 : 210; }

/* Byte offsets inside packed input, each times n_tok. */
enum { PACK_START = 32, PACK_SUB = 40, PACK_SUMS = SUBS * PACK_SUB, PACK_D = PACK_SUMS + 16, PACK_BLOCK = PACK_D + 4 };

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

/* 32 codes of sub-block j of Q6_K: four sub-blocks share 64 bytes of low nibbles and 32 bytes of bit pairs. */
TILE_INLINE __m256i expand_6(const uint8_t *block, int j)
{
    const int half = j / 4, quarter = j % 4;
    __m256i v = loadu_i(block + half * 64 + (quarter & 1) * 32);
    __m256i h = loadu_i(block + 128 + half * 32);
    v = _mm256_and_si256(quarter >= 2 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
    h = _mm256_and_si256(_mm256_srli_epi16(h, 2 * quarter), _mm256_set1_epi8(3));
    return _mm256_or_si256(v, _mm256_slli_epi16(h, 4));
}

TILE_INLINE void unpack_codes(pn_type type, const uint8_t *const *block, int v, uint8_t *panel)
{
    #pragma GCC unroll 8
    for (int j = 0; j < SUBS; j++) {
        __m256i c[8];
        #pragma GCC unroll 8
        for (int i = 0; i < LANES; i++)
            c[i] = type == PN_Q6_K ? expand_6(block[i], j) : k45_codes(type, block[i], j);
        transpose_8x8(c);
        store_steps(panel + j * k_panel_sub(type), v, c, STEPS);
    }
}

/* Q4_K and Q5_K: d, dmin, then 8 scales and 8 mins of 6 bits in 12 bytes, four bytes at a time. */
TILE_INLINE void unpack_scales_45(pn_type type, const uint8_t *const *block, int v, uint8_t *panel)
{
    float *d = (float *)(panel + k_panel_d(type)) + v * LANES, *dmin = d + PN_PANEL;
    __m256i scale[8], min[8];
    #pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) {
        uint32_t u[3];
        memcpy(u, block[i] + 4, 12);
        uint32_t s0 = u[0] & 0x3f3f3f3f, s1 = (u[2] & 0x0f0f0f0f) | ((u[0] >> 2) & 0x30303030);
        uint32_t m0 = u[1] & 0x3f3f3f3f, m1 = ((u[2] >> 4) & 0x0f0f0f0f) | ((u[1] >> 2) & 0x30303030);
        __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)(s0 | (uint64_t)s1 << 32)));
        scale[i] = _mm256_or_si256(wide, _mm256_slli_epi32(wide, 16));
        min[i] = _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)(m0 | (uint64_t)m1 << 32))));
        d[i] = load_f16(block[i]);
        dmin[i] = load_f16(block[i] + 2);
    }
    transpose_8x8(scale);
    transpose_8x8(min);
    for (int j = 0; j < SUBS; j++)
        store_i(panel + j * k_panel_sub(type) + K_SCALES + v * 32, scale[j]);
    for (int j = 0; j < SUBS / 2; j++)
        store_i(panel + k_panel_mins(type) + j * PANEL_SET + v * 32, min[j]);
}

/* Q6_K: 16 int8 scales of 16 weights each, then d. */
TILE_INLINE void unpack_scales_6(const uint8_t *const *block, int v, uint8_t *panel)
{
    float *d = (float *)(panel + k_panel_d(PN_Q6_K)) + v * LANES;
    const __m256i pair = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13,
                                          0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    __m256i scale[2][8];
    #pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) {
        __m128i s = loadu_i128(block[i] + 192);
        scale[0][i] = _mm256_shuffle_epi8(_mm256_cvtepi8_epi32(s), pair);
        scale[1][i] = _mm256_shuffle_epi8(_mm256_cvtepi8_epi32(_mm_srli_si128(s, 8)), pair);
        d[i] = load_f16(block[i] + 208);
    }
    transpose_8x8(scale[0]);
    transpose_8x8(scale[1]);
    for (int j = 0; j < 2 * SUBS; j++)
        store_i(panel + (j / 2) * k_panel_sub(PN_Q6_K) + K_SCALES + (j % 2) * PANEL_SET + v * 32, scale[j / 8][j % 8]);
}

TILE_INLINE void unpack(pn_type type, const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel)
{
    const size_t bytes = (size_t)block_bytes(type);
    panel_rows rows;
    rows_begin(&rows, w, row_bytes, n_rows, bytes);
    for (int b = 0; b < n / 256; b++, panel += k_panel_block(type), rows_next(&rows)) {
        for (int v = 0; v < ROW_VECS; v++) {
            rows_prefetch(&rows, v * LANES, PREFETCH_BLOCKS * bytes, bytes);
            unpack_codes(type, rows.at + v * LANES, v, panel);
            if (type == PN_Q6_K)
                unpack_scales_6(rows.at + v * LANES, v, panel);
            else
                unpack_scales_45(type, rows.at + v * LANES, v, panel);
        }
    }
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static size_t pack_bytes(int n, int n_tok) { return (size_t)(n / 256) * PACK_BLOCK * (size_t)n_tok; }

static void pack_x(const pn_act *x, int t0, int n_tok, uint8_t *packed)
{
    const int n_blocks = x->n / 256;
    for (int b = 0; b < n_blocks; b++, packed += PACK_BLOCK * n_tok) {
        for (int t = 0; t < n_tok; t++) {
            const int8_t *q = x->q + (size_t)(t0 + t) * x->n + b * 256;
            const int16_t *sum = x->sum + (size_t)(t0 + t) * (x->n / 16) + b * 16;
            uint8_t *out = packed + t * 4;
            for (int j = 0; j < SUBS; j++, q += 32, out += PACK_SUB * n_tok) {
                for (int g = 0; g < STEPS; g++)
                    memcpy(out + g * n_tok * 4, q + g * 4, 4);
                for (int h = 0; h < 2; h++)
                    store_offset_start(out + (PACK_START + h * 4) * n_tok, pair_sums_16(q + h * 16), 5);
            }
            for (int j = 0; j < SUBS / 2; j++, out += 4 * n_tok) {
                int16_t pair[2] = {(int16_t)(sum[4 * j] + sum[4 * j + 1]), (int16_t)(sum[4 * j + 2] + sum[4 * j + 3])};
                memcpy(out, pair, 4);
            }
            memcpy(out, x->d + (size_t)(t0 + t) * n_blocks + b, 4);
        }
    }
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* isum[2t], isum[2t + 1] += scale * sum of the codes' products, for one sub-block. isum lives in memory: a register for
 * each of its vectors would leave none for the int16 sums. */
TILE_INLINE void sub_block(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, __m256i *isum)
{
    const int steps = STEPS / n_parts(type);
    __m256i s[TOK * ROW_VECS];
    #pragma GCC unroll 8
    for (int g = 0; g < STEPS; g++) {
        const __m256i w0 = load_i(w + g * 64), w1 = load_i(w + g * 64 + 32);
        const int part = g / steps, first = g % steps == 0, last = g % steps == steps - 1;
        #pragma GCC unroll 4
        for (int t = 0; t < n_tok; t++) {
            __m256i xb = broadcast_4(x + (g * n_tok + t) * 4);
            if (first && !k_is_offset(type)) {
                first_step_u8(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
                continue;
            }
            if (first)
                s[2 * t] = s[2 * t + 1] = broadcast_4(x + ((PACK_START + part * 4) * n_tok + t * 4));
            step_u8(&s[2 * t], &s[2 * t + 1], w0, w1, xb);
        }
        if (last) {
            const uint8_t *scale = w + K_SCALES + (k_n_scales(type) == 2 ? part * PANEL_SET : 0);
            #pragma GCC unroll 8
            for (int i = 0; i < n_tok * ROW_VECS; i++) {
                __m256i v = _mm256_madd_epi16(s[i], load_i(scale + 32 * (i & 1)));
                v = _mm256_add_epi32(v, load_i(isum + i));
                KEEP(v);
                store_i(isum + i, v);
            }
            BLOCK_END();
        }
    }
}

TILE_INLINE void tile(pn_type type, int n_tok, const uint8_t *w, const uint8_t *x, int n, float *y, size_t ldy)
{
    float acc[TOK * PN_PANEL] __attribute__((aligned(64)));
    __m256i isum[TOK * ROW_VECS];
    acc_clear(acc, n_tok);
    for (int b = 0; b < n / 256; b++, w += k_panel_block(type), x += PACK_BLOCK * n_tok) {
        #pragma GCC unroll 8
        for (int i = 0; i < n_tok * ROW_VECS; i++)
            store_i(isum + i, _mm256_setzero_si256());
        for (int j = 0; j < SUBS; j++)
            sub_block(type, n_tok, w + j * k_panel_sub(type), x + j * PACK_SUB * n_tok, isum);
        k_block_epilogue(type, n_tok, w, x + PACK_SUMS * n_tok, (const float *)(x + PACK_D * n_tok), isum, acc);
        BLOCK_END();
    }
    acc_store(acc, n_tok, y, ldy);
}

/* ---- the three types --------------------------------------------------------------------------------------------- */

#define K_TYPE(name, type) \
    static size_t panel_bytes_##name(int n) { return (size_t)(n / 256) * (size_t)k_panel_block(type); } \
    static void unpack_##name(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) \
    { \
        unpack(type, w, row_bytes, n_rows, n, panel); \
    } \
    TILE_UP_TO_4(tile_##name, type, tile)

K_TYPE(q4_k, PN_Q4_K)
K_TYPE(q5_k, PN_Q5_K)
K_TYPE(q6_k, PN_Q6_K)

void pn_avx2_tiles_k(pn_kernels *k)
{
    tiles_set(&k->type[PN_Q4_K], TOK, panel_bytes_q4_k, unpack_q4_k, pack_bytes, pack_x, tile_q4_k);
    tiles_set(&k->type[PN_Q5_K], TOK, panel_bytes_q5_k, unpack_q5_k, pack_bytes, pack_x, tile_q5_k);
    tiles_set(&k->type[PN_Q6_K], TOK, panel_bytes_q6_k, unpack_q6_k, pack_bytes, pack_x, tile_q6_k);
    for (size_t i = 0; i < sizeof PANELS_OF_Q6_K / sizeof *PANELS_OF_Q6_K; i++) { /* their own files unpack them */
        pn_type_ops *ops = &k->type[PANELS_OF_Q6_K[i]];
        tiles_like(ops, &k->type[PN_Q6_K], ops->unpack);
    }
}
