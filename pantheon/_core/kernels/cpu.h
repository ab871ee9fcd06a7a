/* What this processor and its operating system can run: the features of levels.h. */
#ifndef PN_CPU_H
#define PN_CPU_H

#include <stdint.h>

enum {
#define X86_FEATURE(name, ...) PN_CPU_BIT_##name,
#define ARM_FEATURE(name, ...) PN_CPU_BIT_##name,
#include "levels.h"
    PN_CPU_FEATURES
};

enum {
#define X86_FEATURE(name, ...) PN_CPU_##name = 1 << PN_CPU_BIT_##name,
#define ARM_FEATURE(name, ...) PN_CPU_##name = 1 << PN_CPU_BIT_##name,
#include "levels.h"
};

/* Set of the bits above. A vector extension counts only when the system saves its registers. */
uint32_t pn_cpu_features(void);

/* Name of feature i < PN_CPU_FEATURES, in bit order. */
const char *pn_cpu_feature_name(int i);

#endif
