/* neon/types_k.c with the dot product instruction. */
#include "level.h"
#include "neon/types_k.c"
