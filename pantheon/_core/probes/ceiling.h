/* What the processor can multiply: the product instructions of each level on registers alone, in the ratio that the
 * kernels use them. Each loop returns the multiply-adds it did. Call one only on a processor that has the
 * instructions. */
#ifndef PN_PROBE_CEILING_H
#define PN_PROBE_CEILING_H

#include <stdint.h>
#include <string.h>

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

#define PN_FMA(i) "vfmadd231ps %%ymm0, %%ymm1, %%ymm" #i "\n\t"

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

/* tdpbssd: 4 sums of 16 x 16 x 64, 5 times a round */
static inline double pn_ceiling_amx(void)
{
    uint8_t config[64] = {1};
    uint64_t n = PN_CEILING_ROUNDS;
    for (int i = 0; i < 6; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    __asm__ volatile("ldtilecfg %1\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "tilezero %%tmm4\n\ttilezero %%tmm5\n\t"
                     ".p2align 6\n"
                     "1:\n\t"
                     ".rept 5\n\t"
                     "tdpbssd %%tmm5, %%tmm4, %%tmm0\n\ttdpbssd %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbssd %%tmm5, %%tmm4, %%tmm2\n\ttdpbssd %%tmm5, %%tmm4, %%tmm3\n\t"
                     ".endr\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "tilerelease"
                     : "+r"(n) : "m"(config) : "cc");
    return PN_CEILING_ROUNDS * 20.0 * 16 * 16 * 64;
}

/* vfmadd231ps on 256 bits, as every level has it for floats: 10 sums, twice a round */
static inline double pn_ceiling_fma(void)
{
    uint64_t n = PN_CEILING_ROUNDS;
    __asm__ volatile("vxorps %%xmm0, %%xmm0, %%xmm0\n\t"
                     "vxorps %%xmm1, %%xmm1, %%xmm1\n\t" /* zeros: no denormals, whatever the sums held */
                     ".p2align 6\n"
                     "1:\n\t"
                     ".rept 2\n\t"
                     PN_FMA(2) PN_FMA(3) PN_FMA(4) PN_FMA(5) PN_FMA(6) PN_FMA(7) PN_FMA(8) PN_FMA(9) PN_FMA(10)
                     PN_FMA(11)
                     ".endr\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(n)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11");
    return PN_CEILING_ROUNDS * 20.0 * 8;
}

#elif defined(__aarch64__)

#define PN_SDOT(i) "sdot v" #i ".4s, v0.16b, v1.16b\n\t"
#define PN_SMLAL(sum, pair) \
    "smull v" #pair ".8h, v0.8b, v1.8b\n\tsmlal2 v" #pair ".8h, v0.16b, v1.16b\n\t" \
    "sadalp v" #sum ".4s, v" #pair ".8h\n\t"
#define PN_FMLA(i) "fmla v" #i ".4s, v0.4s, v1.4s\n\t"

/* sdot: 20 sums a round */
static inline double pn_ceiling_sdot(void)
{
    uint64_t n = PN_CEILING_ROUNDS;
    __asm__ volatile(".arch_extension dotprod\n"
                     ".p2align 6\n"
                     "1:\n\t"
                     PN_SDOT(2) PN_SDOT(3) PN_SDOT(4) PN_SDOT(5) PN_SDOT(6) PN_SDOT(7) PN_SDOT(16) PN_SDOT(17)
                     PN_SDOT(18) PN_SDOT(19) PN_SDOT(20) PN_SDOT(21) PN_SDOT(22) PN_SDOT(23) PN_SDOT(24) PN_SDOT(25)
                     PN_SDOT(26) PN_SDOT(27) PN_SDOT(28) PN_SDOT(29)
                     "subs %0, %0, #1\n\t"
                     "b.ne 1b"
                     : "+r"(n)::"cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",
                       "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29");
    return PN_CEILING_ROUNDS * 20.0 * 16;
}

/* smull, smlal2 and sadalp: 8 triples of 16 multiply-adds a round */
static inline double pn_ceiling_smlal(void)
{
    uint64_t n = PN_CEILING_ROUNDS;
    __asm__ volatile(".p2align 6\n"
                     "1:\n\t"
                     PN_SMLAL(2, 16) PN_SMLAL(3, 17) PN_SMLAL(4, 18) PN_SMLAL(5, 19) PN_SMLAL(6, 20) PN_SMLAL(7, 21)
                     PN_SMLAL(24, 22) PN_SMLAL(25, 23)
                     "subs %0, %0, #1\n\t"
                     "b.ne 1b"
                     : "+r"(n)::"cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",
                       "v20", "v21", "v22", "v23", "v24", "v25");
    return PN_CEILING_ROUNDS * 8.0 * 16;
}

/* fmla: 20 sums a round */
static inline double pn_ceiling_fma(void)
{
    uint64_t n = PN_CEILING_ROUNDS;
    __asm__ volatile("movi v0.4s, #0\n\t"
                     "movi v1.4s, #0\n\t"
                     ".p2align 6\n"
                     "1:\n\t"
                     PN_FMLA(2) PN_FMLA(3) PN_FMLA(4) PN_FMLA(5) PN_FMLA(6) PN_FMLA(7) PN_FMLA(16) PN_FMLA(17)
                     PN_FMLA(18) PN_FMLA(19) PN_FMLA(20) PN_FMLA(21) PN_FMLA(22) PN_FMLA(23) PN_FMLA(24) PN_FMLA(25)
                     PN_FMLA(26) PN_FMLA(27) PN_FMLA(28) PN_FMLA(29)
                     "subs %0, %0, #1\n\t"
                     "b.ne 1b"
                     : "+r"(n)::"cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",
                       "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29");
    return PN_CEILING_ROUNDS * 20.0 * 4;
}

#endif

typedef double (*pn_ceiling_fn)(void);

/* The loop of a level's product instructions: on int8 codes, or on floats. NULL where there is none: ref is plain C. */
static inline pn_ceiling_fn pn_ceiling(const char *level, int floats)
{
#if defined(__x86_64__)
    if (!strcmp(level, "avx2"))
        return floats ? pn_ceiling_fma : pn_ceiling_avx2;
    if (!strcmp(level, "avxvnni"))
        return floats ? pn_ceiling_fma : pn_ceiling_avxvnni;
    if (!strcmp(level, "avx512"))
        return floats ? pn_ceiling_fma : pn_ceiling_avx512;
    if (!strcmp(level, "amx"))
        return floats ? pn_ceiling_fma : pn_ceiling_amx;
#elif defined(__aarch64__)
    if (!strcmp(level, "neon"))
        return floats ? pn_ceiling_fma : pn_ceiling_smlal;
    if (!strcmp(level, "dotprod"))
        return floats ? pn_ceiling_fma : pn_ceiling_sdot;
#endif
    return NULL;
}

#endif
