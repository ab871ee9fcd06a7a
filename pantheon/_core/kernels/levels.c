/* The levels of this build and their tables. A new level is one row of LEVELS; a new family of functions is one name
 * in a level's list. PN_HAVE_<LEVEL> says which kernel folders were compiled. */
#include <pthread.h>
#include <string.h>

#include "cpu.h"
#include "kernels.h"

#define FAMILY(name) void name(pn_kernels *k)

FAMILY(pn_ref_types_float);
FAMILY(pn_ref_types_q32);
FAMILY(pn_ref_types_k);
FAMILY(pn_ref_types_fp4);
FAMILY(pn_ref_types_ternary);
FAMILY(pn_ref_types_iq);
FAMILY(pn_ref_ternary);
FAMILY(pn_ref_floats);
FAMILY(pn_ref_kv_store);
FAMILY(pn_ref_attention);
FAMILY(pn_ref_deltanet);
FAMILY(pn_ref_rwkv);
FAMILY(pn_ref_types_group8);
static const pn_level_init REF[] = {
    pn_ref_types_float, pn_ref_types_q32, pn_ref_types_k, pn_ref_types_fp4, pn_ref_types_ternary, pn_ref_types_iq,
    pn_ref_ternary, pn_ref_floats, pn_ref_kv_store, pn_ref_attention, pn_ref_deltanet, pn_ref_rwkv,
    pn_ref_types_group8,
};

#ifdef PN_HAVE_AVX2
FAMILY(pn_avx2_types_float);
FAMILY(pn_avx2_types_q4);
FAMILY(pn_avx2_types_q5);
FAMILY(pn_avx2_types_q8);
FAMILY(pn_avx2_types_q45_k);
FAMILY(pn_avx2_types_q236_k);
FAMILY(pn_avx2_types_fp4);
FAMILY(pn_avx2_types_iq);
FAMILY(pn_avx2_types_ternary);
FAMILY(pn_avx2_ternary);
FAMILY(pn_avx2_dequant);
FAMILY(pn_avx2_floats);
FAMILY(pn_avx2_kv_store);
FAMILY(pn_avx2_attention);
FAMILY(pn_avx2_tiles_q32);
FAMILY(pn_avx2_tiles_k);
FAMILY(pn_avx2_tiles_s16);
FAMILY(pn_avx2_tiles_q8);
FAMILY(pn_avx2_tiles_f32);
FAMILY(pn_avx2_deltanet);
FAMILY(pn_avx2_rwkv);
FAMILY(pn_avx2_types_group8);
static const pn_level_init AVX2[] = {
    pn_avx2_types_float, pn_avx2_types_q4, pn_avx2_types_q5, pn_avx2_types_q8, pn_avx2_types_q45_k, pn_avx2_dequant,
    pn_avx2_floats, pn_avx2_kv_store, pn_avx2_attention, pn_avx2_tiles_q32, pn_avx2_tiles_k, pn_avx2_tiles_s16,
    pn_avx2_tiles_q8, pn_avx2_tiles_f32, pn_avx2_deltanet, pn_avx2_rwkv, pn_avx2_types_group8, pn_avx2_types_q236_k,
    pn_avx2_types_fp4, pn_avx2_types_iq, pn_avx2_types_ternary, pn_avx2_ternary,
};
#endif

#ifdef PN_HAVE_AVXVNNI
FAMILY(pn_avxvnni_tiles_q32);
FAMILY(pn_avxvnni_tiles_k);
static const pn_level_init AVXVNNI[] = {pn_avxvnni_tiles_q32, pn_avxvnni_tiles_k};
#endif

#ifdef PN_HAVE_AVX512
FAMILY(pn_avx512_floats);
FAMILY(pn_avx512_attention);
FAMILY(pn_avx512_tiles_q32);
FAMILY(pn_avx512_tiles_k);
FAMILY(pn_avx512_tiles_s16);
FAMILY(pn_avx512_tiles_f32);
FAMILY(pn_avx512_deltanet);
static const pn_level_init AVX512[] = {
    pn_avx512_floats, pn_avx512_attention, pn_avx512_tiles_q32, pn_avx512_tiles_k, pn_avx512_tiles_s16,
    pn_avx512_tiles_f32, pn_avx512_deltanet,
};
#endif

#ifdef PN_HAVE_AMX
FAMILY(pn_amx_tiles_q32);
FAMILY(pn_amx_tiles_super);
FAMILY(pn_amx_tiles_float);
static const pn_level_init AMX[] = {pn_amx_tiles_q32, pn_amx_tiles_super, pn_amx_tiles_float};
#endif

#ifdef PN_HAVE_NEON
FAMILY(pn_neon_types_float);
FAMILY(pn_neon_types_q32);
FAMILY(pn_neon_types_k);
FAMILY(pn_neon_floats);
FAMILY(pn_neon_attention);
FAMILY(pn_neon_tiles_float);
FAMILY(pn_neon_tiles_q32);
FAMILY(pn_neon_tiles_k);
static const pn_level_init NEON[] = {
    pn_neon_types_float, pn_neon_types_q32, pn_neon_types_k, pn_neon_floats, pn_neon_attention, pn_neon_tiles_float,
    pn_neon_tiles_q32, pn_neon_tiles_k,
};
#endif

#ifdef PN_HAVE_DOTPROD
FAMILY(pn_dotprod_types_q32);
FAMILY(pn_dotprod_types_k);
FAMILY(pn_dotprod_tiles_q32);
FAMILY(pn_dotprod_tiles_k);
static const pn_level_init DOTPROD[] = {
    pn_dotprod_types_q32, pn_dotprod_types_k, pn_dotprod_tiles_q32, pn_dotprod_tiles_k,
};
#endif

typedef struct level_row {
    const char *name;
    uint32_t needs; /* features of cpu.h */
    const pn_level_init *families;
    int n_families;
} level_row;

#define ROW(name, needs, families) {name, needs, families, sizeof families / sizeof *families}

static const level_row LEVELS[] = {
    ROW("ref", 0, REF),
#ifdef PN_HAVE_AVX2
    ROW("avx2", PN_CPU_AVX2 | PN_CPU_FMA | PN_CPU_F16C, AVX2),
#endif
#ifdef PN_HAVE_AVXVNNI
    ROW("avxvnni", PN_CPU_AVX2 | PN_CPU_FMA | PN_CPU_F16C | PN_CPU_AVX_VNNI, AVXVNNI),
#endif
#ifdef PN_HAVE_AVX512
    ROW("avx512", PN_CPU_AVX2 | PN_CPU_FMA | PN_CPU_F16C | PN_CPU_AVX512F | PN_CPU_AVX512BW | PN_CPU_AVX512VL |
                  PN_CPU_AVX512_VNNI, AVX512),
#endif
#ifdef PN_HAVE_AMX
    ROW("amx", PN_CPU_AVX2 | PN_CPU_FMA | PN_CPU_F16C | PN_CPU_AVX512F | PN_CPU_AVX512BW | PN_CPU_AVX512VL |
               PN_CPU_AVX512_VNNI | PN_CPU_AMX_INT8, AMX),
#endif
#ifdef PN_HAVE_NEON
    ROW("neon", PN_CPU_NEON, NEON),
#endif
#ifdef PN_HAVE_DOTPROD
    ROW("dotprod", PN_CPU_NEON | PN_CPU_DOTPROD, DOTPROD),
#endif
};

enum { N_LEVELS = sizeof LEVELS / sizeof *LEVELS };

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

static void build(void)
{
    uint32_t features = pn_cpu_features();
    for (int i = 0; i < N_LEVELS; i++) {
        const level_row *row = &LEVELS[i];
        listed[i] = (pn_level){row->name, (features & row->needs) == row->needs};
        if (!listed[i].supported)
            continue;
        tables[i] = tables[best]; /* the next lower level that runs here; zeros for the first */
        for (int f = 0; f < row->n_families; f++)
            row->families[f](&tables[i]);
        tables[i].level = row->name;
        tables[i].token_step = token_step(&tables[i]);
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
