/* F32, F16, BF16: four accumulators of eight lanes a row and the tree of ref, so the bits are those of ref too. */
#include <math.h>

#include "x86/rows8.h"

PN_INLINE __m256 f32_load8(const uint8_t *p) { return _mm256_loadu_ps((const float *)p); }
PN_INLINE __m256 f16_load8(const uint8_t *p) { return _mm256_cvtph_ps(load128(p)); }
PN_INLINE __m256 bf16_load8(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

PN_INLINE float f32_load1(const uint8_t *p) { return pn_bits_to_f32(pn_load32(p)); }
PN_INLINE float f16_load1(const uint8_t *p) { return _cvtsh_ss(pn_load16(p)); }
PN_INLINE float bf16_load1(const uint8_t *p) { return pn_bf16_to_f32(pn_load16(p)); }

typedef __m256 (*load8)(const uint8_t *p);
typedef float (*load1)(const uint8_t *p);

/* Adds n elements (a multiple of 8, at most 32 if not of 32) to a row's accumulators. */
PN_INLINE void add_part(load8 at8, int bytes, const uint8_t *w, const float *x, int n, __m256 acc[4])
{
    __m256 a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_fmadd_ps(at8(w + i * bytes), _mm256_loadu_ps(x + i), a0);
        a1 = _mm256_fmadd_ps(at8(w + (i + 8) * bytes), _mm256_loadu_ps(x + i + 8), a1);
        a2 = _mm256_fmadd_ps(at8(w + (i + 16) * bytes), _mm256_loadu_ps(x + i + 16), a2);
        a3 = _mm256_fmadd_ps(at8(w + (i + 24) * bytes), _mm256_loadu_ps(x + i + 24), a3);
    }
    if (i + 8 <= n)
        a0 = _mm256_fmadd_ps(at8(w + i * bytes), _mm256_loadu_ps(x + i), a0);
    if (i + 16 <= n)
        a1 = _mm256_fmadd_ps(at8(w + (i + 8) * bytes), _mm256_loadu_ps(x + i + 8), a1);
    if (i + 24 <= n)
        a2 = _mm256_fmadd_ps(at8(w + (i + 16) * bytes), _mm256_loadu_ps(x + i + 16), a2);
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3;
}

/* The tree over the 32 sums, then the last n % 8 elements in order. */
PN_INLINE float finish(load1 at1, int bytes, const uint8_t *w, const float *x, int n, const __m256 acc[4])
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    float sum = _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
    for (int i = n / 8 * 8; i < n; i++)
        sum = fmaf(at1(w + (size_t)i * bytes), x[i], sum);
    return sum;
}

PN_INLINE void float_dot1(load8 at8, load1 at1, int bytes, const uint8_t *w, const pn_act *x, int t, float *out)
{
    const float *xf = x->f + (size_t)t * x->n;
    __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    add_part(at8, bytes, w, xf, x->n / 8 * 8, acc);
    *out = finish(at1, bytes, w, xf, x->n, acc);
}

/* The rows take turns every PART elements, so that eight streams are read at once and the input's part stays in
 * cache. */
enum { PART = 64 };

PN_INLINE void float_dot8(load8 at8, load1 at1, int bytes, const uint8_t *w, size_t stride, const pn_act *x, int t,
                          float *out, size_t os)
{
    const float *xf = x->f + (size_t)t * x->n;
    const int whole = x->n / 8 * 8;
    __m256 acc[8][4];
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 4; k++)
            acc[r][k] = _mm256_setzero_ps();
    for (int i = 0; i < whole; i += PART) {
        int n = whole - i < PART ? whole - i : PART;
#pragma GCC unroll 1
        for (int r = 0; r < 8; r++)
            add_part(at8, bytes, w + r * stride + (size_t)i * bytes, xf + i, n, acc[r]);
    }
    for (int r = 0; r < 8; r++)
        out[r * os] = finish(at1, bytes, w + r * stride, xf, x->n, acc[r]);
}

#define PN_AVX2_FLOAT(type, bytes) \
    static void type##_dot1(const uint8_t *w, const pn_act *x, int t, float *out) \
    { \
        float_dot1(type##_load8, type##_load1, bytes, w, x, t, out); \
    } \
    static void type##_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) \
    { \
        float_dot8(type##_load8, type##_load1, bytes, w, stride, x, t, out, os); \
    } \
    static void type##_dequant(const uint8_t *w, float *out, int64_t n) \
    { \
        int64_t i = 0; \
        for (; i + 8 <= n; i += 8) \
            _mm256_storeu_ps(out + i, type##_load8(w + i * (bytes))); \
        for (; i < n; i++) \
            out[i] = type##_load1(w + i * (bytes)); \
    }

PN_AVX2_FLOAT(f32, 4)
PN_AVX2_FLOAT(f16, 2)
PN_AVX2_FLOAT(bf16, 2)

void pn_avx2_types_float(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_F32, f32);
    PN_AVX2_SET(k, PN_F16, f16);
    PN_AVX2_SET(k, PN_BF16, bf16);
    k->type[PN_F32].dequant = f32_dequant;
    k->type[PN_F16].dequant = f16_dequant;
    k->type[PN_BF16].dequant = bf16_dequant;
}
