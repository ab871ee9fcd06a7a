/* In place of the compiler's header: AVX-512 and AVX-VNNI as SIMDe emulates them on AVX2, for processors that have
 * neither. AVX2, FMA and F16C stay the processor's own, because SIMDe's multiply-add is not fused without them. */
#ifndef CROSSCHECK_IMMINTRIN_H
#define CROSSCHECK_IMMINTRIN_H

#include_next <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* ---- what SIMDe 0.7.4 lacks, lane by lane; masked loads and stores touch only their lanes --------------------- */

typedef union lanes {
    __m512 ps;
    __m512i epi;
    __m256 half[2];
    __m256i half_epi[2];
    float f[16];
    int32_t i[16];
} lanes;

#define EACH for (int k = 0; k < 16; k++)
#define LANES_PS(name, args, expr) \
    static inline __m512 emu_##name args { lanes o; EACH o.f[k] = (expr); return o.ps; }
#define LANES_EPI(name, args, expr) \
    static inline __m512i emu_##name args { lanes o; EACH o.i[k] = (expr); return o.epi; }
#define F(v) (((lanes){.ps = (v)}).f[k])
#define I(v) (((lanes){.epi = (v)}).i[k])

LANES_PS(cvtepi32_ps, (__m512i a), (float)I(a))
LANES_PS(fmaddsub_ps, (__m512 a, __m512 b, __m512 c), fmaf(F(a), F(b), k % 2 ? F(c) : -F(c)))
LANES_PS(moveldup_ps, (__m512 a), ((lanes){.ps = a}).f[k & ~1])
LANES_PS(movehdup_ps, (__m512 a), ((lanes){.ps = a}).f[k | 1])
LANES_PS(permute_ps, (__m512 a, int by), ((lanes){.ps = a}).f[(k & ~3) + (by >> 2 * (k & 3) & 3)])
LANES_PS(shuffle_f32x4, (__m512 a, __m512 b, int by),
         ((lanes){.ps = k < 8 ? a : b}).f[4 * (by >> 2 * (k / 4) & 3) + k % 4])
LANES_PS(mask_loadu_ps, (__m512 a, __mmask16 m, const void *p), m >> k & 1 ? ((const float *)p)[k] : F(a))
LANES_PS(maskz_loadu_ps, (__mmask16 m, const void *p), m >> k & 1 ? ((const float *)p)[k] : 0.0f)
LANES_PS(mask_i32gather_ps, (__m512 a, __mmask16 m, __m512i at, const void *p, int scale),
         m >> k & 1 ? *(const float *)((const char *)p + (ptrdiff_t)I(at) * scale) : F(a))
LANES_EPI(srai_epi32, (__m512i a, int by), I(a) >> by)
LANES_EPI(shuffle_epi32, (__m512i a, int by), ((lanes){.epi = a}).i[(k & ~3) + (by >> 2 * (k & 3) & 3)])
LANES_EPI(cvtps_epi32, (__m512 a), _mm_cvtss_si32(_mm_set_ss(F(a))))
LANES_EPI(cvtepi8_epi32, (__m128i a), ((const int8_t *)&a)[k])

static inline __m512 emu_cvtph_ps(__m256i a)
{
    lanes o;
    o.half[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    o.half[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    return o.ps;
}

static inline __m256i emu_cvtepi32_epi16(__m512i a)
{
    int16_t out[16];
    EACH out[k] = (int16_t)I(a);
    return _mm256_loadu_si256((const __m256i *)out);
}

static inline void emu_mask_storeu_ps(void *p, __mmask16 m, __m512 a)
{
    EACH if (m >> k & 1) ((float *)p)[k] = F(a);
}

static inline void emu_mask_storeu_epi32(void *p, __mmask16 m, __m512i a)
{
    EACH if (m >> k & 1) ((int32_t *)p)[k] = I(a);
}

static inline void emu_mask_i32scatter_ps(void *p, __mmask16 m, __m512i at, __m512 a, int scale)
{
    EACH if (m >> k & 1) *(float *)((char *)p + (ptrdiff_t)I(at) * scale) = F(a);
}

static inline void emu_128_mask_storeu(void *p, __mmask8 m, __m128i a)
{
    for (int k = 0; k < 4; k++)
        if (m >> k & 1)
            memcpy((char *)p + 4 * k, (const char *)&a + 4 * k, 4);
}

static inline __m128 emu_128_maskz_div_ps(__mmask8 m, __m128 a, __m128 b)
{
    float out[4];
    for (int k = 0; k < 4; k++)
        out[k] = m >> k & 1 ? a[k] / b[k] : 0.0f;
    return _mm_loadu_ps(out);
}

#undef _mm512_srai_epi32 /* the compiler has some of them as macros when it does not optimise */
#undef _mm512_permute_ps
#undef _mm512_madd_epi16 /* SIMDe's has the parameters of another one */
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#undef _mm512_shuffle_f32x4
#undef _mm512_shuffle_epi32
#undef _mm512_mask_i32gather_ps
#undef _mm512_mask_i32scatter_ps
#define _mm512_srai_epi32(a, by) emu_srai_epi32(a, by)
#define _mm512_cvtepi32_ps(a) emu_cvtepi32_ps(a)
#define _mm512_fmaddsub_ps(a, b, c) emu_fmaddsub_ps(a, b, c)
#define _mm512_moveldup_ps(a) emu_moveldup_ps(a)
#define _mm512_movehdup_ps(a) emu_movehdup_ps(a)
#define _mm512_permute_ps(a, by) emu_permute_ps(a, by)
#define _mm512_shuffle_f32x4(a, b, by) emu_shuffle_f32x4(a, b, by)
#define _mm512_mask_loadu_ps(a, m, p) emu_mask_loadu_ps(a, m, p)
#define _mm512_maskz_loadu_ps(m, p) emu_maskz_loadu_ps(m, p)
#define _mm512_maskz_load_ps(m, p) emu_maskz_loadu_ps(m, p)
#define _mm512_mask_i32gather_ps(a, m, at, p, scale) emu_mask_i32gather_ps(a, m, at, p, scale)
#define _mm512_mask_i32scatter_ps(p, m, at, a, scale) emu_mask_i32scatter_ps(p, m, at, a, scale)
#define _mm512_shuffle_epi32(a, by) emu_shuffle_epi32(a, by)
#define _mm512_cvtps_epi32(a) emu_cvtps_epi32(a)
#define _mm512_cvtepi8_epi32(a) emu_cvtepi8_epi32(a)
#define _mm512_cvtph_ps(a) emu_cvtph_ps(a)
#define _mm512_cvtepi32_epi16(a) emu_cvtepi32_epi16(a)
#define _mm512_mask_storeu_ps(p, m, a) emu_mask_storeu_ps(p, m, a)
#define _mm512_mask_storeu_epi32(p, m, a) emu_mask_storeu_epi32(p, m, a)
#define _mm_mask_storeu_ps(p, m, a) emu_128_mask_storeu(p, m, _mm_castps_si128(a))
#define _mm_mask_storeu_epi32(p, m, a) emu_128_mask_storeu(p, m, a)
#define _mm_maskz_div_ps(m, a, b) emu_128_maskz_div_ps(m, a, b)

#undef EACH
#undef LANES_PS
#undef LANES_EPI
#undef F
#undef I

#define __AVX512F__ 1 /* for our own headers; SIMDe has made its choices */

#endif
