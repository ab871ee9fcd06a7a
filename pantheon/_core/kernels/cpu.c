#include "cpu.h"

static const char *const NAMES[PN_CPU_FEATURES] = {
    "avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "neon", "dotprod",
    "amxint8",
};

const char *pn_cpu_feature_name(int i) { return NAMES[i]; }

#if defined(__x86_64__)

#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* The system saves tile registers only of processes that asked for it once; it may refuse (an old kernel, a signal stack
 * that is too small). */
static int tiles_permitted(void)
{
#ifdef __linux__
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

/* XCR0: which register states the system saves at a context switch. Only valid when CPUID reports OSXSAVE. */
static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

uint32_t pn_cpu_features(void)
{
    uint32_t a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    uint64_t saved = xcr0();
    if ((saved & 0x6) != 0x6) /* XMM and YMM */
        return 0;
    if (c & bit_FMA)
        found |= PN_CPU_FMA;
    if (c & bit_F16C)
        found |= PN_CPU_F16C;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    if (b & 1u << 5)
        found |= PN_CPU_AVX2;
    if ((saved & 0xE6) == 0xE6) { /* and the mask and ZMM registers */
        if (b & 1u << 16)
            found |= PN_CPU_AVX512F;
        if (b & 1u << 30)
            found |= PN_CPU_AVX512BW;
        if (b & 1u << 31)
            found |= PN_CPU_AVX512VL;
        if (c & 1u << 11)
            found |= PN_CPU_AVX512_VNNI;
    }
    if ((saved & 0x60000) == 0x60000 && d & 1u << 24 && d & 1u << 25 && tiles_permitted()) /* AMX-TILE, AMX-INT8 */
        found |= PN_CPU_AMX_INT8;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4))
        found |= PN_CPU_AVX_VNNI;
    return found;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

uint32_t pn_cpu_features(void)
{
    unsigned long cap = getauxval(AT_HWCAP);
    return (cap & 1ul << 1 ? PN_CPU_NEON : 0) | (cap & 1ul << 20 ? PN_CPU_DOTPROD : 0); /* HWCAP_ASIMD, HWCAP_ASIMDDP */
}

#else

uint32_t pn_cpu_features(void) { return 0; }

#endif
