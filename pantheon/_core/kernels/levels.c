/* The levels of this build and their tables, from the rows of levels.h. PN_HAVE_<LEVEL> says which are compiled. */
#include <pthread.h>
#include <string.h>

#include "cpu.h"
#include "kernels.h"

enum {
#define LEVEL(name, ...) LEVEL_##name,
#include "levels.h"
    N_LEVELS
};

/* Features of cpu.h that a level needs, those of its base among them. */
enum {
    NEEDS_none = 0,
#define LEVEL(name, base, features, ...) NEEDS_##name = NEEDS_##base | (features),
#include "levels.h"
};

typedef struct level_row {
    const char *name;
    uint32_t needs;
} level_row;

static const level_row LEVELS[N_LEVELS] = {
#define LEVEL(name, ...) {#name, NEEDS_##name},
#include "levels.h"
};

#define FAMILY(level, file) void pn_##level##_##file(pn_kernels *k);
#include "levels.h"

typedef struct family_row {
    int level;
    void (*enter)(pn_kernels *k);
} family_row;

static const family_row FAMILIES[] = {
#define FAMILY(level, file) {LEVEL_##level, pn_##level##_##file},
#include "levels.h"
};

enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

static pn_kernels tables[N_LEVELS];
static pn_level listed[N_LEVELS + 1];
static int best;
static pthread_once_t built = PTHREAD_ONCE_INIT;

static int common_multiple(int a, int b)
{
    int m = a;
    while (m % b)
        m += a;
    return m;
}

static int token_step(const pn_kernels *k)
{
    int step = k->group8.pack_tok > 0 ? k->group8.pack_tok : 1;
    for (int i = 0; i < PN_TYPE_COUNT; i++)
        if (k->type[i].tile)
            step = common_multiple(step, k->type[i].pack_tok);
    return step;
}

/* Names the level in the types whose product with a vector is no longer the lower level's. */
static void name_products(pn_kernels *k, const pn_kernels *lower, const char *level)
{
    for (int i = 0; i < PN_TYPE_COUNT; i++)
        if (k->type[i].dot1 != lower->type[i].dot1)
            k->type[i].level = level;
    if (k->group8.dot1 != lower->group8.dot1)
        k->group8.level = level;
}

/* lower: the next lower level that runs here; zeros for the first. */
static void fill(pn_kernels *k, int level, const pn_kernels *lower)
{
    *k = *lower;
    for (int f = 0; f < N_FAMILIES; f++)
        if (FAMILIES[f].level == level)
            FAMILIES[f].enter(k);
    k->level = LEVELS[level].name;
    k->token_step = token_step(k);
    name_products(k, lower, k->level);
}

static void build(void)
{
    static const pn_kernels EMPTY;
    const uint32_t features = pn_cpu_features();
    const pn_kernels *lower = &EMPTY;
    for (int i = 0; i < N_LEVELS; i++) {
        listed[i] = (pn_level){LEVELS[i].name, (features & LEVELS[i].needs) == LEVELS[i].needs};
        if (!listed[i].supported)
            continue;
        fill(&tables[i], i, lower);
        lower = &tables[i];
        best = i;
    }
}

const pn_level *pn_kernels_levels(void)
{
    pthread_once(&built, build);
    return listed;
}

const pn_kernels *pn_kernels_best(void)
{
    pthread_once(&built, build);
    return &tables[best];
}

const pn_kernels *pn_kernels_get(const char *level)
{
    pthread_once(&built, build);
    for (int i = 0; i < N_LEVELS; i++)
        if (listed[i].supported && strcmp(level, listed[i].name) == 0)
            return &tables[i];
    return NULL;
}
