/* neon/tiles_k.c with the dot product instruction. */
#include "level.h"
#include "neon/tiles_k.c"
