/* Cache values to f32 pieces of 16 lanes: code times scale, exact. */
#ifndef PN_AVX512_KV_EXPAND_H
#define PN_AVX512_KV_EXPAND_H

#include <immintrin.h>

#include "kv_layout.h"

#define INLINE static inline __attribute__((always_inline))

/* 8 bytes at a and 8 at b */
INLINE __m128i join_64(const uint8_t *a, const uint8_t *b)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)a), _mm_loadl_epi64((const __m128i *)b));
}

/* 8 f16 or f32 values at a and 8 at b */
INLINE __m512 join_values(const uint8_t *a, const uint8_t *b, int f16)
{
    if (f16)
        return _mm512_cvtph_ps(_mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)), _mm_loadu_si128((const __m128i *)b), 1));
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd((const double *)a)),
                                               _mm256_loadu_pd((const double *)b), 1));
}

/* 16 codes times their scales */
INLINE __m512 scaled(__m128i codes, __m512 scale)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scale);
}

INLINE __m128i low_nibbles(__m128i v)
{
    return _mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

INLINE __m128i high_nibbles(__m128i v)
{
    return low_nibbles(_mm_srli_epi16(v, 4));
}

/* Two K groups a and b (8 positions each, all dims) to f32 [D][16]. */
INLINE void expand_k(pn_kv_kind kind, const uint8_t *a, const uint8_t *b, int head_dim, float *out)
{
    if (kind == PN_KVK_F16 || kind == PN_KVK_F32) {
        const size_t step = kind == PN_KVK_F16 ? 16 : 32;
        for (int d = 0; d < head_dim; d++, a += step, b += step)
            _mm512_store_ps(out + 16 * d, join_values(a, b, kind == PN_KVK_F16));
        return;
    }
    for (int block = 0; block < head_dim; block += PN_KV_BLOCK, out += PN_KV_BLOCK * 16) {
        const __m512 scale = join_values(a, b, 1);
        a += PN_K_SCALES;
        b += PN_K_SCALES;
        if (kind == PN_KVK_Q8_0) {
            for (int i = 0; i < 32; i++, a += 8, b += 8)
                _mm512_store_ps(out + 16 * i, scaled(join_64(a, b), scale));
        } else {
            for (int i = 0; i < 16; i++, a += 8, b += 8) {
                const __m128i c = join_64(a, b);
                _mm512_store_ps(out + 16 * i, scaled(low_nibbles(c), scale));
                _mm512_store_ps(out + 16 * (i + 16), scaled(high_nibbles(c), scale));
            }
        }
    }
}

/* n dims (a multiple of 8; of 32 for the quantised types) of one position of V, from v on, to f32. Fills whole groups
 * of 16. */
INLINE void expand_v(pn_kv_kind kind, const uint8_t *v, int n, float *out)
{
    if (kind == PN_KVK_F16 || kind == PN_KVK_F32) {
        const int size = kind == PN_KVK_F16 ? 2 : 4;
        for (int j = 0; j < n; j += 16) /* half a group is read twice */
            _mm512_store_ps(out + j, join_values(v + j * size, v + (j + 8 < n ? j + 8 : j) * size, size == 2));
        return;
    }
    for (int j = 0; j < n; j += PN_KV_BLOCK, out += PN_KV_BLOCK) {
        const __m512 scale = _mm512_set1_ps(_cvtsh_ss(pn_load16(v)));
        __m128i low = _mm_loadu_si128((const __m128i *)(v + 2)), high;
        if (kind == PN_KVK_Q8_0) {
            high = _mm_loadu_si128((const __m128i *)(v + 18));
            v += PN_V_Q8_BLOCK;
        } else {
            high = high_nibbles(low);
            low = low_nibbles(low);
            v += PN_V_Q4_BLOCK;
        }
        _mm512_store_ps(out, scaled(low, scale));
        _mm512_store_ps(out + 16, scaled(high, scale));
    }
}

#endif
