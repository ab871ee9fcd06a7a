#include <stddef.h>

#include "cpu.h"

static const char *const NAMES[] = {
#define X86_FEATURE(name, text, ...) text,
#define ARM_FEATURE(name, text, ...) text,
#include "levels.h"
};

const char *pn_cpu_feature_name(int i) { return NAMES[i]; }

#if defined(__x86_64__)

#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX };
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* Register states in XCR0: XMM and YMM; and the mask and ZMM registers; and the tile registers. */
enum { YMM = 0x6, ZMM = 0xE6, TILES = 0x60006 };

typedef struct x86_feature {
    uint32_t set;            /* the bit of pn_cpu_features */
    uint32_t leaf, subleaf;  /* of CPUID */
    int reg;                 /* that holds the bits */
    uint32_t bits;           /* all of them are needed */
    uint64_t state;          /* likewise in XCR0 */
} x86_feature;

static const x86_feature FEATURES[] = {
#define X86_FEATURE(name, text, flags, leaf, subleaf, reg, bits, state, use) \
    {PN_CPU_##name, leaf, subleaf, reg, bits, state},
#include "levels.h"
};

static int reported(const x86_feature *f)
{
    uint32_t r[4];
    if (!__get_cpuid_count(f->leaf, 0, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
        return 0;
    if (f->subleaf) { /* EAX of leaf 7 is its last subleaf */
        if (r[EAX] < f->subleaf)
            return 0;
        __get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
    }
    return (r[f->reg] & f->bits) == f->bits;
}

/* The system saves tile registers only of processes that asked for it once; it may refuse (an old kernel, a signal
 * stack that is too small). */
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
    const uint64_t saved = xcr0();
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {
        const x86_feature *f = &FEATURES[i];
        if ((saved & f->state) == f->state && reported(f) && (f->state != TILES || tiles_permitted()))
            found |= f->set;
    }
    return found;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

uint32_t pn_cpu_features(void)
{
    const unsigned long capabilities = getauxval(AT_HWCAP);
    uint32_t found = 0;
#define ARM_FEATURE(name, text, flags, bits, use) \
    if (capabilities & (bits)) \
        found |= PN_CPU_##name;
#include "levels.h"
    return found;
}

#else

uint32_t pn_cpu_features(void) { return 0; }

#endif
