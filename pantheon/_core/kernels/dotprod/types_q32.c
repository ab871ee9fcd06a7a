/* neon/types_q32.c with the dot product instruction. */
#include "level.h"
#include "neon/types_q32.c"
