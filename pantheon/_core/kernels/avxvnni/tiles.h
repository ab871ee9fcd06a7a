/* What the matrix x matrix tiles of this level share: the tile shape of avx2 with int32 sums. */
#ifndef PN_AVXVNNI_TILES_H
#define PN_AVXVNNI_TILES_H

#include "x86/vnni.h"

/* s0 += w0 * x, s1 += w1 * x over 4 k. The prefix keeps the assembler from choosing the AVX-512 encoding. Without the
 * instruction the sources are compiled to be emulated (docs/levels.md). */
TILE_INLINE void step_dp(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, __m256i x)
{
#ifdef __AVXVNNI__
    __asm__ volatile("%{vex%} vpdpbusd %[x], %[w0], %[s0]\n\t"
                     "%{vex%} vpdpbusd %[x], %[w1], %[s1]"
                     : [s0] "+x"(*s0), [s1] "+x"(*s1)
                     : [w0] "x"(w0), [w1] "x"(w1), [x] "x"(x));
#else
    *s0 = _mm256_dpbusd_epi32(*s0, w0, x);
    *s1 = _mm256_dpbusd_epi32(*s1, w1, x);
#endif
}

#endif
