/* Comparing one level of the kernel table with ref, without Python: for levels that run in an emulator or as emulated
 * instructions. Every check counts its comparisons and names the first few that differ. */
#ifndef CROSSCHECK_H
#define CROSSCHECK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

extern const pn_kernels *ref, *level;

/* Compares n floats bit for bit, any NaN with any NaN; what and its numbers say where, printf-like. */
void same_floats(const float *got, const float *expected, size_t n, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
void same_bytes(const void *got, const void *expected, size_t n, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

uint64_t random_bits(void);
float random_float(float scale);  /* uniform in [-scale, scale) */
int random_below(int n);

/* size bytes that end slack bytes before memory that may not be touched; freed by release(). */
uint8_t *guarded(size_t size, size_t slack);
/* The same, 64-byte aligned at the start, as the engine's own arrays are. */
void *aligned(size_t size);
void release(void);               /* all of both */

void check_order(void);
void check_types(void);
void check_tiles(void);
void check_floats(void);
void check_attention(void);

/* ---- for types and tiles ---- */

/* The types that the level has functions of its own for; n_rows rows of n elements with finite scales at w. pattern -1:
 * random codes, else every code byte. */
int has_own(int type);
void fill_rows(int type, uint8_t *w, int n_rows, int n, int pattern);
size_t row_bytes(int type, int n);
/* n_tok inputs, prepared as the engine does. extreme 0: random codes; 1, 2, 3: all 127, all -127, alternating. */
pn_act random_input(int type, int n, int n_tok, int extreme);

#endif
