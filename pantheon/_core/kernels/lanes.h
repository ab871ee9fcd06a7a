/* Every sum and maximum over a vector runs in 8 lanes (element i in lane i % 8), which meet in one fixed tree. A level
 * with 8-wide registers gives the same bits as the scalar loop. */
#ifndef PN_LANES_H
#define PN_LANES_H

enum { PN_LANES = 8 };

/* b unless a is greater, so a NaN in a never wins: the rule of maxps. */
static inline float pn_max(float a, float b)
{
    return a > b ? a : b;
}

static inline float pn_lanes_sum(const float lane[PN_LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline float pn_lanes_max(const float lane[PN_LANES])
{
    return pn_max(pn_max(pn_max(lane[0], lane[4]), pn_max(lane[2], lane[6])),
                  pn_max(pn_max(lane[1], lane[5]), pn_max(lane[3], lane[7])));
}

#ifdef __AVX2__
#include <immintrin.h>
#include <stdint.h>

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

#endif
