/* Loops over floats 8 at a time, the last of them masked. */
#ifndef PN_AVX2_FOR_LANES_H
#define PN_AVX2_FOR_LANES_H

#include "x86/lanes.h"

/* Runs body with i at every 8th element; load and store act on whole registers but for the last one. */
#define FOR_LANES(n, body)                                                                     \
    do {                                                                                       \
        int i = 0;                                                                             \
        for (; i + PN_LANES <= (n); i += PN_LANES) {                                           \
            const int whole = 1;                                                               \
            const __m256i mask = _mm256_set1_epi32(-1);                                        \
            body                                                                               \
        }                                                                                      \
        if (i < (n)) {                                                                         \
            const int whole = 0;                                                               \
            const __m256i mask = pn_lanes_mask((n) - i);                                       \
            body                                                                               \
        }                                                                                      \
    } while (0)
#define LOAD(p) (whole ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, mask))
#define STORE(p, v) (whole ? _mm256_storeu_ps(p, v) : _mm256_maskstore_ps(p, mask, v))

#endif
