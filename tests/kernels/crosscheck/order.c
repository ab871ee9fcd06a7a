/* The families of a level may enter the table in any order: here from the last to the first. */
#include <string.h>

#include "crosscheck.h"

#define FAMILY(level, file) void pn_##level##_##file(pn_kernels *k);
#include "levels.h"

static const struct {
    const char *level;
    void (*enter)(pn_kernels *k);
} FAMILIES[] = {
#define FAMILY(level, file) {#level, pn_##level##_##file},
#include "levels.h"
};

void check_order(void)
{
    static pn_kernels k;
    for (const pn_level *l = pn_kernels_levels(); strcmp(l->name, level->level); l++)
        if (l->supported)
            k = *pn_kernels_get(l->name);
    for (size_t i = sizeof FAMILIES / sizeof *FAMILIES; i-- > 0;)
        if (strcmp(FAMILIES[i].level, level->level) == 0)
            FAMILIES[i].enter(&k);
    k.level = level->level; /* from here on what levels.c adds */
    k.token_step = level->token_step;
    k.group8.level = level->group8.level;
    for (int i = 0; i < PN_TYPE_COUNT; i++)
        k.type[i].level = level->type[i].level;
    same_bytes(&k, level, sizeof k, "the table, its families entered from last to first");
}
