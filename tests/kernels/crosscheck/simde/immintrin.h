/* In place of the compiler's header: AVX-512 and AVX-VNNI as SIMDe emulates them on AVX2, for processors that have
 * neither. AVX2, FMA and F16C stay the processor's own, because SIMDe's multiply-add is not fused without them. */
#ifndef CROSSCHECK_IMMINTRIN_H
#define CROSSCHECK_IMMINTRIN_H

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* Not in SIMDe 0.7.4. */
static inline simde__m512 crosscheck_cvtepi32_ps(simde__m512i v)
{
    const simde__m512i_private in = simde__m512i_to_private(v);
    simde__m512_private out;
    for (int i = 0; i < 2; i++)
        out.m256[i] = _mm256_cvtepi32_ps(in.m256i[i]);
    return simde__m512_from_private(out);
}
#define _mm512_cvtepi32_ps(v) crosscheck_cvtepi32_ps(v)

static inline simde__m512i crosscheck_srai_epi32(simde__m512i v, unsigned int by)
{
    simde__m512i_private p = simde__m512i_to_private(v);
    for (int i = 0; i < 2; i++)
        p.m256i[i] = _mm256_srai_epi32(p.m256i[i], (int)by);
    return simde__m512i_from_private(p);
}
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(v, by) crosscheck_srai_epi32(v, by)

#endif
