/* ref/floats.c in 16-wide registers: the same operations in the same order, so the same bits.
 *
 * A sum over 8 lanes takes the two halves of a register one after the other; everything else is elementwise, or a
 * maximum of numbers that are not negative, where order does not matter. What would gain nothing is left to avx2.
 */
#include <math.h>

#include "kernels.h"
#include "x86/exp.h"
#include "x86/lanes.h"

#define INLINE static inline __attribute__((always_inline))
#define AMAX_ZERO 0x1p-100f

enum { WIDE = 16 };

/* Runs body with i at every 16th element; load and store act on whole registers but for the last one. */
#define FOR_WIDE(n, body)                                              \
    do {                                                               \
        int i = 0;                                                     \
        for (; i + WIDE <= (n); i += WIDE) {                           \
            const int whole = 1;                                       \
            const __mmask16 mask = 0xffff;                             \
            body                                                       \
        }                                                              \
        if (i < (n)) {                                                 \
            const int whole = 0;                                       \
            const __mmask16 mask = (__mmask16)((1 << ((n) - i)) - 1);  \
            body                                                       \
        }                                                              \
    } while (0)
#define LOAD(p) (whole ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(mask, p))
#define STORE(p, v) (whole ? _mm512_storeu_ps(p, v) : _mm512_mask_storeu_ps(p, mask, v))

INLINE __m256 low_half(__m512 v)
{
    return _mm512_castps512_ps256(v);
}

INLINE __m256 high_half(__m512 v)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

INLINE __m512 absolute(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

/* ---- quantising -------------------------------------------------------------------------------------------------- */

/* 16 codes as int32, rounded to nearest even; NaN becomes 127. They cannot be below -127: |x| is at most amax, and
 * amax * (127 / amax) is less than 127.5. */
INLINE __m512i codes(__m512 x, __m512 id)
{
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_mul_ps(x, id), _mm512_set1_ps(127.0f)));
}

/* 4 x 16 codes as int8, in order where keep has their group of 4, else 0 */
INLINE __m512i pack_codes(__m512i a, __m512i b, __m512i c, __m512i d, __mmask16 keep)
{
    /* the packs work within 128-bit quarters: groups of 4 codes come out as 0 4 8 12 | 1 5 ... */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i v = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    return _mm512_maskz_permutexvar_epi32(keep, order, v);
}

/* The sums of every 4 codes */
INLINE __m512i sums_of_4(__m512i q)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
}

INLINE __m512 max_halves(__m512 a, __m512 b)
{
    return _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/* Blocks b to b + n - 1 of 32, n at most 4: one division serves all of them. */
INLINE void quantize_4_blocks(const float *f, int8_t *q, float *d, float *s, int32_t *bsum, const int n)
{
    __m512 x[8], m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __mmask16 real = i < n ? 0xffff : 0;
        x[2 * i] = n == 4 ? _mm512_loadu_ps(f + 32 * i) : _mm512_maskz_loadu_ps(real, f + 32 * i);
        x[2 * i + 1] = n == 4 ? _mm512_loadu_ps(f + 32 * i + 16) : _mm512_maskz_loadu_ps(real, f + 32 * i + 16);
        /* a NaN on the left gives way to the right, which has none the second time */
        m[i] = _mm512_max_ps(absolute(x[2 * i + 1]), _mm512_max_ps(absolute(x[2 * i]), _mm512_setzero_ps()));
    }
    /* each quarter to the maxima of blocks 0 2 1 3, then over the quarters */
    __m512 a = max_halves(m[0], m[1]), b = max_halves(m[2], m[3]);
    a = max_halves(a, b);
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    const __m128 amax = _mm512_castps512_ps128(_mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1)));
    const __m128 ordered = _mm_permute_ps(amax, 0xd8);
    const unsigned live = (unsigned)_mm_cmp_ps_mask(ordered, _mm_set1_ps(AMAX_ZERO), _CMP_GE_OQ);
    const __m512 id = _mm512_broadcast_f32x4(_mm_div_ps(_mm_set1_ps(127.0f), ordered));
    const __m128 scale = _mm_maskz_div_ps((__mmask8)live, ordered, _mm_set1_ps(127.0f));

    const __m512 id0 = _mm512_permute_ps(id, 0x00), id1 = _mm512_permute_ps(id, 0x55);
    const __m512 id2 = _mm512_permute_ps(id, 0xaa), id3 = _mm512_permute_ps(id, 0xff);
    const __mmask16 keep01 = (__mmask16)((live & 1) * 0x00ff + (live >> 1 & 1) * 0xff00);
    const __mmask16 keep23 = (__mmask16)((live >> 2 & 1) * 0x00ff + (live >> 3 & 1) * 0xff00);
    const __m512i q01 = pack_codes(codes(x[0], id0), codes(x[1], id0), codes(x[2], id1), codes(x[3], id1), keep01);
    const __m512i q23 = pack_codes(codes(x[4], id2), codes(x[5], id2), codes(x[6], id3), codes(x[7], id3), keep23);

    const __m512i s01 = sums_of_4(q01), s23 = sums_of_4(q23);
    /* quarters 0 1 | 2 3 hold blocks 0 2 | 1 3 */
    __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi64(s01, s23), _mm512_unpackhi_epi64(s01, s23));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, (_MM_PERM_ENUM)0xb1));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_i32x4(sum, sum, 0xb1));
    const __m128i total = _mm512_castsi512_si128(
        _mm512_permutexvar_epi32(_mm512_castsi128_si512(_mm_setr_epi32(0, 8, 2, 10)), sum));
    const __m128 scaled = _mm_mul_ps(scale, _mm_cvtepi32_ps(total));
    if (n == 4) {
        _mm512_storeu_si512(q, q01);
        _mm512_storeu_si512(q + 64, q23);
        _mm_storeu_ps(d, scale);
        _mm_storeu_ps(s, scaled);
        _mm_storeu_si128((__m128i *)bsum, total);
    } else {
        const __mmask8 real = (__mmask8)((1 << n) - 1);
        _mm512_mask_storeu_epi32(q, n > 1 ? 0xffff : 0x00ff, q01);
        _mm512_mask_storeu_epi32(q + 64, n > 2 ? 0x00ff : 0, q23);
        _mm_mask_storeu_ps(d, real, scale);
        _mm_mask_storeu_ps(s, real, scaled);
        _mm_mask_storeu_epi32(bsum, real, total);
    }
}

static void quantize_q32(pn_act *x, int t)
{
    const size_t n = (size_t)x->n, n_block = n / 32;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block, *s = x->s + t * n_block;
    int32_t *bsum = x->bsum + t * n_block;
    size_t b = 0;
    for (; b + 4 <= n_block; b += 4)
        quantize_4_blocks(f + b * 32, q + b * 32, d + b, s + b, bsum + b, 4);
    if (b < n_block)
        quantize_4_blocks(f + b * 32, q + b * 32, d + b, s + b, bsum + b, (int)(n_block - b));
}

static void quantize_q256(pn_act *x, int t)
{
    const size_t n = (size_t)x->n, n_block = n / 256;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block;
    int16_t *sum = x->sum + t * (n / 16);
    for (size_t b = 0; b < n_block; b++, f += 256, q += 256, sum += 16) {
        __m512 m[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            m[i] = _mm512_setzero_ps();
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            m[i % 4] = _mm512_max_ps(absolute(_mm512_loadu_ps(f + 16 * i)), m[i % 4]);
        const __m512 all = _mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3]));
        const float amax = pn_lanes_max_avx2(_mm256_max_ps(low_half(all), high_half(all)));
        const __mmask16 live = amax < AMAX_ZERO ? 0 : 0xffff;
        const __m512 id = _mm512_set1_ps(127.0f / amax);
        __m512i four[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const float *g = f + 64 * i;
            const __m512i v = pack_codes(codes(_mm512_loadu_ps(g), id), codes(_mm512_loadu_ps(g + 16), id),
                                         codes(_mm512_loadu_ps(g + 32), id), codes(_mm512_loadu_ps(g + 48), id), live);
            _mm512_storeu_si512(q + 64 * i, v);
            four[i] = sums_of_4(v);
        }
        /* four[i], quarter j: the sums of group 4 * i + j. Added up within quarters, then transposed. */
        const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(four[0], four[1]),
                                           _mm512_unpackhi_epi32(four[0], four[1]));
        const __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi32(four[2], four[3]),
                                           _mm512_unpackhi_epi32(four[2], four[3]));
        const __m512i total = _mm512_add_epi32(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c));
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm256_storeu_si256((__m256i *)sum, _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(order, total)));
        d[b] = live ? amax / 127.0f : 0.0f;
    }
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *w, float eps, int n, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    FOR_WIDE(n, {
        const __m512 v = LOAD(x + i);
        sum = _mm256_fmadd_ps(low_half(v), low_half(v), sum);
        sum = _mm256_fmadd_ps(high_half(v), high_half(v), sum);
    });
    const __m512 inv = _mm512_set1_ps(1.0f / sqrtf(pn_lanes_sum_avx2(sum) / (float)n + eps));
    FOR_WIDE(n, { STORE(y + i, _mm512_mul_ps(_mm512_mul_ps(LOAD(x + i), inv), LOAD(w + i))); });
}

static void add(float *x, const float *y, int n)
{
    FOR_WIDE(n, { STORE(x + i, _mm512_add_ps(LOAD(x + i), LOAD(y + i))); });
}

static void scale_add(float *x, const float *y, float a, int n)
{
    const __m512 va = _mm512_set1_ps(a);
    FOR_WIDE(n, { STORE(x + i, _mm512_fmadd_ps(va, LOAD(y + i), LOAD(x + i))); });
}

static void silu_mul(float *gate, const float *up, int n)
{
    FOR_WIDE(n, {
        const __m512 x = LOAD(gate + i);
        STORE(gate + i, _mm512_mul_ps(_mm512_mul_ps(x, pn_sigmoid_avx512(x)), LOAD(up + i)));
    });
}

static void gelu_tanh(float *x, int n)
{
    const __m512 c0 = _mm512_set1_ps(1.5957691216f), c1 = _mm512_set1_ps(0.044715f * 1.5957691216f);
    FOR_WIDE(n, {
        const __m512 v = LOAD(x + i);
        const __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(v, v), c1, c0);
        STORE(x + i, _mm512_mul_ps(v, pn_sigmoid_avx512(_mm512_mul_ps(v, inner))));
    });
}

static void softmax(float *x, int n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    /* where 0 and -0 meet the result does not show which came first */
    __m512 lanes = lowest;
    FOR_WIDE(n, { lanes = _mm512_max_ps(whole ? LOAD(x + i) : _mm512_mask_loadu_ps(lowest, mask, x + i), lanes); });
    const __m512 m = _mm512_set1_ps(pn_lanes_max_avx2(_mm256_max_ps(low_half(lanes), high_half(lanes))));
    __m256 sum = _mm256_setzero_ps();
    FOR_WIDE(n, {
        __m512 e = pn_exp_avx512(_mm512_sub_ps(LOAD(x + i), m));
        if (!whole)
            e = _mm512_maskz_mov_ps(mask, e);
        sum = _mm256_add_ps(_mm256_add_ps(sum, low_half(e)), high_half(e));
        STORE(x + i, e);
    });
    const __m512 total = _mm512_set1_ps(pn_lanes_sum_avx2(sum));
    FOR_WIDE(n, { STORE(x + i, _mm512_div_ps(LOAD(x + i), total)); });
}

static void rope_norm(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim)
        FOR_WIDE(2 * n_pair, {
            const __m512 v = LOAD(x + i);
            const __m512 t = LOAD(cs + i);
            const __m512 swapped = _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), _mm512_movehdup_ps(t));
            STORE(x + i, _mm512_fmaddsub_ps(v, _mm512_moveldup_ps(t), swapped));
        });
}

static void rope_neox(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    FOR_WIDE(n_pair, {
        const uint32_t pairs = whole ? 0xffffffffu : (1u << 2 * (n_pair - i)) - 1; /* i < 16: no shift by 32 */
        const __m512 t0 = _mm512_maskz_loadu_ps((__mmask16)pairs, cs + 2 * i);
        const __m512 t1 = _mm512_maskz_loadu_ps((__mmask16)(pairs >> 16), cs + 2 * i + 16);
        const __m512 c = _mm512_permutex2var_ps(t0, even, t1);
        const __m512 s = _mm512_permutex2var_ps(t0, odd, t1);
        for (int h = 0; h < n_head; h++) {
            float *a = x + (size_t)h * (size_t)head_dim + i;
            float *b = a + n_pair;
            const __m512 va = LOAD(a);
            const __m512 vb = LOAD(b);
            STORE(a, _mm512_fmsub_ps(va, c, _mm512_mul_ps(vb, s)));
            STORE(b, _mm512_fmadd_ps(vb, c, _mm512_mul_ps(va, s)));
        }
    });
}

static void attn_finish(float *acc, float s, int head_dim)
{
    const __m512 vs = _mm512_set1_ps(s);
    FOR_WIDE(head_dim, { STORE(acc + i, _mm512_div_ps(LOAD(acc + i), vs)); });
}

void pn_avx512_floats(pn_kernels *k)
{
    k->quantize[PN_ACT_Q32] = quantize_q32;
    k->quantize[PN_ACT_Q256] = quantize_q256;
    k->rms_norm = rms_norm;
    k->add = add;
    k->scale_add = scale_add;
    k->silu_mul = silu_mul;
    k->gelu_tanh = gelu_tanh;
    k->softmax = softmax;
    k->rope_norm = rope_norm;
    k->rope_neox = rope_neox;
    k->attn_finish = attn_finish;
}
