/* Calibration loops of the tile benchmark: integer multiply-adds on registers alone, in the ratio the tiles use them.
 * Each returns the multiply-adds it did. Call one only on a processor that has the instructions. */
#ifndef PN_PROBE_CEILING_H
#define PN_PROBE_CEILING_H

#include <stdint.h>

enum { PN_CEILING_ROUNDS = 2000 };

#if defined(__x86_64__)

/* vpmaddubsw + vpaddw: 16 pairs of 32 multiply-adds a round */
static inline double pn_ceiling_avx2(void)
{
    uint64_t n = PN_CEILING_ROUNDS;
    __asm__ volatile(".p2align 6\n"
                     "1:\n\t"
                     ".rept 4\n\t"
                     "vpmaddubsw %%ymm0, %%ymm1, %%ymm10\n\tvpmaddubsw %%ymm0, %%ymm1, %%ymm11\n\t"
                     "vpmaddubsw %%ymm0, %%ymm1, %%ymm12\n\tvpmaddubsw %%ymm0, %%ymm1, %%ymm13\n\t"
                     "vpaddw %%ymm10, %%ymm2, %%ymm2\n\tvpaddw %%ymm11, %%ymm3, %%ymm3\n\t"
                     "vpaddw %%ymm12, %%ymm4, %%ymm4\n\tvpaddw %%ymm13, %%ymm5, %%ymm5\n\t"
                     ".endr\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(n)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm10", "xmm11", "xmm12",
                       "xmm13");
    return PN_CEILING_ROUNDS * 16.0 * 32;
}

/* vpdpbusd: 10 sums, twice a round */
#define PN_CEILING_DP(name, prefix, reg, lanes_bytes) \
    static inline double name(void) \
    { \
        uint64_t n = PN_CEILING_ROUNDS; \
        __asm__ volatile(".p2align 6\n" \
                         "1:\n\t" \
                         ".rept 2\n\t" \
                         PN_DP(prefix, reg, 2) PN_DP(prefix, reg, 3) PN_DP(prefix, reg, 4) PN_DP(prefix, reg, 5) \
                         PN_DP(prefix, reg, 6) PN_DP(prefix, reg, 7) PN_DP(prefix, reg, 8) PN_DP(prefix, reg, 9) \
                         PN_DP(prefix, reg, 10) PN_DP(prefix, reg, 11) \
                         ".endr\n\t" \
                         "dec %0\n\t" \
                         "jnz 1b\n\t" \
                         "vzeroupper" \
                         : "+r"(n)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                           "xmm9", "xmm10", "xmm11"); \
        return PN_CEILING_ROUNDS * 20.0 * lanes_bytes; \
    }
#define PN_DP(prefix, reg, i) prefix "vpdpbusd %%" reg "0, %%" reg "1, %%" reg #i "\n\t"

PN_CEILING_DP(pn_ceiling_avxvnni, "%{vex%} ", "ymm", 32)
PN_CEILING_DP(pn_ceiling_avx512, "", "zmm", 64)

#else

static inline double pn_ceiling_avx2(void) { return 0; }
static inline double pn_ceiling_avxvnni(void) { return 0; }
static inline double pn_ceiling_avx512(void) { return 0; }

#endif
#endif
