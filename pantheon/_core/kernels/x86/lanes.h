/* lanes.h in 8-wide registers: the same operations, so the same bits. */
#ifndef PN_X86_LANES_H
#define PN_X86_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include "../lanes.h"

/* All ones in the first n lanes, n in [0, 8]. */
static inline __m256i pn_lanes_mask(int n)
{
    static const int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(edge + 8 - n));
}

static inline float pn_lanes_sum_avx2(__m256 v)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float pn_lanes_max_avx2(__m256 v)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

#endif
