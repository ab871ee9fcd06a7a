/* The levels, lowest first, and the instruction set extensions that they need: the one list of both.
 *
 * cpu.h, cpu.c and levels.c include it, each with its own meaning of the rows; levels.py reads it for setup.py and
 * tools/crosscheck.py, and a test holds docs/levels.md to it.
 *
 * X86_FEATURE(NAME, "name", "flags", leaf, subleaf, register, bits, state, "use")
 * ARM_FEATURE(NAME, "name", "flags", bits, "use")
 *     An extension: the compiler's flags for it, where CPUID or the auxiliary vector reports it, the registers that the
 *     system must save for it, and a use of it on the memory at p, by which setup.py sees that compiler and assembler
 *     know it.
 * LEVEL(name, base, features, folder, "what it has of its own")
 *     Needs the features and all that its base needs; its sources are in the folder, which two levels may share.
 * FAMILY(level, file)
 *     pn_<level>_<file>() in <folder>/<file>.c enters a family of functions into the table. It writes only its own
 *     entries and may read what the level below left in them: the order of a level's families is of no account.
 */
#ifndef X86_FEATURE
#define X86_FEATURE(...)
#endif
#ifndef ARM_FEATURE
#define ARM_FEATURE(...)
#endif
#ifndef LEVEL
#define LEVEL(...)
#endif
#ifndef FAMILY
#define FAMILY(...)
#endif

X86_FEATURE(AVX2, "avx2", "-mavx2", 7, 0, EBX, 1u << 5, YMM,
            "_mm256_storeu_si256(p, _mm256_abs_epi8(_mm256_loadu_si256(p)));")
X86_FEATURE(FMA, "fma", "-mfma", 1, 0, ECX, 1u << 12, YMM,
            "_mm_storeu_ps(p, _mm_fmadd_ps(_mm_loadu_ps(p), _mm_loadu_ps(p), _mm_loadu_ps(p)));")
X86_FEATURE(F16C, "f16c", "-mf16c", 1, 0, ECX, 1u << 29, YMM,
            "_mm_storeu_ps(p, _mm_cvtph_ps(_mm_loadu_si128(p)));")
X86_FEATURE(AVX_VNNI, "avxvnni", "-mavxvnni", 7, 1, EAX, 1u << 4, YMM,
            "__m256i v = _mm256_loadu_si256(p); _mm256_storeu_si256(p, _mm256_dpbusd_avx_epi32(v, v, v));")
X86_FEATURE(AVX512F, "avx512f", "-mavx512f", 7, 0, EBX, 1u << 16, ZMM,
            "_mm512_storeu_si512(p, _mm512_abs_epi32(_mm512_loadu_si512(p)));")
X86_FEATURE(AVX512BW, "avx512bw", "-mavx512bw", 7, 0, EBX, 1u << 30, ZMM,
            "_mm512_storeu_si512(p, _mm512_abs_epi8(_mm512_loadu_si512(p)));")
X86_FEATURE(AVX512VL, "avx512vl", "-mavx512vl", 7, 0, EBX, 1u << 31, ZMM,
            "_mm256_storeu_si256(p, _mm256_abs_epi64(_mm256_loadu_si256(p)));")
X86_FEATURE(AVX512_VNNI, "avx512vnni", "-mavx512vnni", 7, 0, ECX, 1u << 11, ZMM,
            "__m512i v = _mm512_loadu_si512(p); _mm512_storeu_si512(p, _mm512_dpbusd_epi32(v, v, v));")
X86_FEATURE(AMX_INT8, "amxint8", "-mamx-tile -mamx-int8", 7, 0, EDX, 3u << 24, TILES, /* AMX-TILE and AMX-INT8 */
            "_tile_loadconfig(p); _tile_dpbssd(0, 1, 2); _tile_dpbsud(0, 1, 2); _tile_release();")
ARM_FEATURE(NEON, "neon", "", 1ul << 1, /* HWCAP_ASIMD */
            "vst1q_f32(p, vabsq_f32(vld1q_f32(p)));")
ARM_FEATURE(DOTPROD, "dotprod", "-march=armv8.2-a+dotprod", 1ul << 20, /* HWCAP_ASIMDDP */
            "vst1q_s32(p, vdotq_s32(vld1q_s32(p), vld1q_s8(p), vld1q_s8(p)));")

LEVEL(ref, none, 0, ref, "every weight type, all float functions, attention: plain C, the definition of all others")
FAMILY(ref, types_float) FAMILY(ref, types_q32) FAMILY(ref, types_k) FAMILY(ref, types_fp4) FAMILY(ref, types_iq)
FAMILY(ref, types_ternary) FAMILY(ref, types_group8) FAMILY(ref, ternary) FAMILY(ref, floats) FAMILY(ref, kv_store)
FAMILY(ref, attention) FAMILY(ref, deltanet) FAMILY(ref, rwkv)

#ifdef PN_HAVE_AVX2
LEVEL(avx2, ref, PN_CPU_AVX2 | PN_CPU_FMA | PN_CPU_F16C, avx2,
      "vector products and matrix tiles of every type, quantising, float functions, attention")
FAMILY(avx2, types_float) FAMILY(avx2, types_q4) FAMILY(avx2, types_q5) FAMILY(avx2, types_q8) FAMILY(avx2, types_q45_k)
FAMILY(avx2, types_q236_k) FAMILY(avx2, types_fp4) FAMILY(avx2, types_iq) FAMILY(avx2, types_ternary)
FAMILY(avx2, types_group8) FAMILY(avx2, ternary) FAMILY(avx2, dequant) FAMILY(avx2, tiles_f32) FAMILY(avx2, tiles_q32)
FAMILY(avx2, tiles_q8) FAMILY(avx2, tiles_k) FAMILY(avx2, tiles_s16) FAMILY(avx2, floats) FAMILY(avx2, kv_store)
FAMILY(avx2, attention) FAMILY(avx2, deltanet) FAMILY(avx2, rwkv)
#endif

#ifdef PN_HAVE_AVXVNNI
LEVEL(avxvnni, avx2, PN_CPU_AVX_VNNI, avxvnni, "matrix tiles of the common integer types")
FAMILY(avxvnni, tiles_q32) FAMILY(avxvnni, tiles_k)
#endif

#ifdef PN_HAVE_AVX512
LEVEL(avx512, avx2, PN_CPU_AVX512F | PN_CPU_AVX512BW | PN_CPU_AVX512VL | PN_CPU_AVX512_VNNI, avx512,
      "matrix tiles, float functions, attention, the delta rule")
FAMILY(avx512, tiles_f32) FAMILY(avx512, tiles_q32) FAMILY(avx512, tiles_k) FAMILY(avx512, tiles_s16)
FAMILY(avx512, floats) FAMILY(avx512, attention) FAMILY(avx512, deltanet)
#endif

#ifdef PN_HAVE_AMX
LEVEL(amx, avx512, PN_CPU_AMX_INT8, amx, "matrix tiles of the integer types, in tile registers")
FAMILY(amx, tiles_float) FAMILY(amx, tiles_q32) FAMILY(amx, tiles_super)
#endif

#ifdef PN_HAVE_NEON
LEVEL(neon, ref, PN_CPU_NEON, neon,
      "vector products and matrix tiles of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K; "
      "quantising, float functions, attention")
FAMILY(neon, types_float) FAMILY(neon, types_q32) FAMILY(neon, types_k) FAMILY(neon, tiles_float)
FAMILY(neon, tiles_q32) FAMILY(neon, tiles_k) FAMILY(neon, floats) FAMILY(neon, attention)
#endif

#ifdef PN_HAVE_DOTPROD
LEVEL(dotprod, neon, PN_CPU_DOTPROD, neon, "vector products and matrix tiles of the integer types, with `sdot`")
FAMILY(dotprod, types_q32) FAMILY(dotprod, types_k) FAMILY(dotprod, tiles_q32) FAMILY(dotprod, tiles_k)
#endif

#undef X86_FEATURE
#undef ARM_FEATURE
#undef LEVEL
#undef FAMILY
