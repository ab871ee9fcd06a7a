/* What this processor and its operating system can run. */
#ifndef PN_CPU_H
#define PN_CPU_H

#include <stdint.h>

enum {
    PN_CPU_AVX2 = 1 << 0,
    PN_CPU_FMA = 1 << 1,
    PN_CPU_F16C = 1 << 2,
    PN_CPU_AVX_VNNI = 1 << 3,
    PN_CPU_AVX512F = 1 << 4,
    PN_CPU_AVX512BW = 1 << 5,
    PN_CPU_AVX512VL = 1 << 6,
    PN_CPU_AVX512_VNNI = 1 << 7,
    PN_CPU_NEON = 1 << 8,
    PN_CPU_DOTPROD = 1 << 9,
    PN_CPU_AMX_INT8 = 1 << 10,
    PN_CPU_FEATURES = 11,
};

/* Set of the bits above. A vector extension counts only when the system saves its registers. */
uint32_t pn_cpu_features(void);

/* Name of feature i < PN_CPU_FEATURES, in bit order. */
const char *pn_cpu_feature_name(int i);

#endif
