/* In place of cpu.c where instructions are emulated in the program itself: every level of the build can run. */
#include "cpu.h"

uint32_t pn_cpu_features(void) { return ~0u; }
const char *pn_cpu_feature_name(int i)
{
    (void)i;
    return "emulated";
}
