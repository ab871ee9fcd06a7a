/* Cache values to f32 registers: code times scale, exact. */
#ifndef PN_AVX2_KV_EXPAND_H
#define PN_AVX2_KV_EXPAND_H

#include <immintrin.h>

#include "kv_layout.h"

#define INLINE static inline __attribute__((always_inline))

/* 8 f16 or f32 values */
INLINE __m256 load8(const uint8_t *p, int f16)
{
    return f16 ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)) : _mm256_loadu_ps((const float *)p);
}

/* 8 codes of 8 lanes times their scales */
INLINE __m256 scaled(__m128i codes, __m256 scale)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), scale);
}

/* One quantised K group (8 positions, all dims) to f32 [D][8]. */
static void expand_k(pn_kv_kind kind, const uint8_t *k, int head_dim, float *out)
{
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    for (int b = 0; b < head_dim; b += PN_KV_BLOCK, out += PN_KV_BLOCK * 8) {
        __m256 scale = load8(k, 1);
        k += PN_K_SCALES;
        if (kind == PN_KVK_Q8_0) {
            for (int i = 0; i < 32; i++, k += 8)
                _mm256_store_ps(out + 8 * i, scaled(_mm_loadl_epi64((const __m128i *)k), scale));
        } else {
            for (int i = 0; i < 16; i++, k += 8) {
                __m128i c = _mm_loadl_epi64((const __m128i *)k);
                __m128i c0 = _mm_sub_epi8(_mm_and_si128(c, low), eight);
                __m128i c1 = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), low), eight);
                _mm256_store_ps(out + 8 * i, scaled(c0, scale));
                _mm256_store_ps(out + 8 * (i + 16), scaled(c1, scale));
            }
        }
    }
}

/* The 32 values of one quantised V block to f32. */
static inline void expand_v(pn_kv_kind kind, const uint8_t *v, float *out)
{
    __m256 scale = _mm256_set1_ps(_mm256_cvtss_f32(_mm256_cvtph_ps(_mm_cvtsi32_si128(pn_load16(v)))));
    __m128i c0, c1;
    if (kind == PN_KVK_Q8_0) {
        c0 = _mm_loadu_si128((const __m128i *)(v + 2));
        c1 = _mm_loadu_si128((const __m128i *)(v + 18));
    } else {
        const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
        __m128i c = _mm_loadu_si128((const __m128i *)(v + 2));
        c0 = _mm_sub_epi8(_mm_and_si128(c, low), eight);
        c1 = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), low), eight);
    }
    _mm256_store_ps(out, scaled(c0, scale));
    _mm256_store_ps(out + 8, scaled(_mm_srli_si128(c0, 8), scale));
    _mm256_store_ps(out + 16, scaled(c1, scale));
    _mm256_store_ps(out + 24, scaled(_mm_srli_si128(c1, 8), scale));
}

#endif
