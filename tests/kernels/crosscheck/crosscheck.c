/* crosscheck LEVEL: compares every function of a level with ref; prints one line, exits 0 when all is equal. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crosscheck.h"

const pn_kernels *ref, *level;

static long n_compared, n_different;

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void differs(size_t i, const char *what, va_list args)
{
    if (n_different++ < 10) {
        printf("differs at %zu: ", i);
        vprintf(what, args);
        printf("\n");
    }
}

void same_floats(const float *got, const float *expected, size_t n, const char *what, ...)
{
    va_list args;
    n_compared += (long)n;
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, expected + i, 4) && (got[i] == got[i] || expected[i] == expected[i])) {
            va_start(args, what);
            differs(i, what, args);
            va_end(args);
            return;
        }
}

void same_bytes(const void *got, const void *expected, size_t n, const char *what, ...)
{
    va_list args;
    n_compared += (long)n;
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)got)[i] != ((const uint8_t *)expected)[i]) {
            va_start(args, what);
            differs(i, what, args);
            va_end(args);
            return;
        }
}

/* ---- random numbers: splitmix64 ---------------------------------------------------------------------------------- */

uint64_t random_bits(void)
{
    static uint64_t state = 1;
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float random_float(float scale) { return ((float)(random_bits() >> 40) * 0x1p-23f - 1.0f) * scale; }
int random_below(int n) { return (int)(random_bits() % (uint64_t)n); }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { MAX_AREAS = 64 };
static struct {
    uint8_t *at;
    size_t size;
} areas[MAX_AREAS];
static int n_areas;

uint8_t *guarded(size_t size, size_t slack)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), space = (size + slack + page - 1) / page * page;
    uint8_t *at = MAP_FAILED;
    if (n_areas < MAX_AREAS)
        at = mmap(NULL, space + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + space, page, PROT_NONE)) {
        fprintf(stderr, "crosscheck: no memory\n");
        exit(2);
    }
    areas[n_areas].at = at;
    areas[n_areas++].size = space + page;
    return at + space - slack - size;
}

void *aligned(size_t size) { return guarded((size + 63) / 64 * 64, 0); }

void release(void)
{
    while (n_areas)
        n_areas--, munmap(areas[n_areas].at, areas[n_areas].size);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    ref = pn_kernels_get("ref");
    level = argc == 2 ? pn_kernels_get(argv[1]) : NULL;
    if (!level) {
        printf("crosscheck LEVEL, one of:");
        for (const pn_level *l = pn_kernels_levels(); l->name; l++)
            if (l->supported)
                printf(" %s", l->name);
        printf("\n");
        return 2;
    }
    check_order();
    check_types();
    check_tiles();
    check_floats();
    check_attention();
    printf("%s: %ld values compared with ref, %ld checks differ; own products:", argv[1], n_compared, n_different);
    for (int type = 0; type < PN_TYPE_COUNT; type++)
        if (ref->type[type].name && has_own(type))
            printf(" %s", ref->type[type].name);
    printf("\n");
    return n_different ? 1 : 0;
}
