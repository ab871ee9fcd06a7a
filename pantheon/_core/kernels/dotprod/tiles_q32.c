/* neon/tiles_q32.c with the dot product instruction. */
#include "level.h"
#include "neon/tiles_q32.c"
