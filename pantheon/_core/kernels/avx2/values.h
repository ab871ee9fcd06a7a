/* Codes to floats, with the roundings of the reference: a product, then a sum where the type has a minimum. */
#ifndef PN_AVX2_VALUES_H
#define PN_AVX2_VALUES_H

#include "x86/rows8.h"

/* out[i] = scale * code, plus add where has_min, for 16 signed codes */
PN_INLINE void store_16_values(float *out, __m128i codes, int has_min, float scale, float add)
{
    __m256 v0 = _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
    __m256 v1 = _mm256_mul_ps(_mm256_set1_ps(scale),
                              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))));
    _mm256_storeu_ps(out, has_min ? _mm256_add_ps(v0, _mm256_set1_ps(add)) : v0);
    _mm256_storeu_ps(out + 8, has_min ? _mm256_add_ps(v1, _mm256_set1_ps(add)) : v1);
}

PN_INLINE void store_32_values(float *out, __m256i codes, int has_min, float scale, float add)
{
    store_16_values(out, _mm256_castsi256_si128(codes), has_min, scale, add);
    store_16_values(out + 16, _mm256_extracti128_si256(codes, 1), has_min, scale, add);
}

#endif
