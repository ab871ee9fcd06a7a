/* ref/floats.c in 8-wide registers: the same operations in the same order, so the same bits.
 *
 * Lengths need not be multiples of 8: the last, partial register is loaded and stored under a mask, with 0 (or minus
 * infinity for a maximum) in the lanes past the end.
 */
#include <math.h>
#include <string.h>

#include "for_lanes.h"
#include "kernels.h"
#include "x86/exp.h"

#define AMAX_ZERO 0x1p-100f

static inline __m256 absolute(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* 8 codes as int32, rounded to nearest even */
static inline __m256i codes(const float *x, __m256 id)
{
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), id);
    v = _mm256_min_ps(v, _mm256_set1_ps(127.0f));
    return _mm256_cvtps_epi32(_mm256_max_ps(v, _mm256_set1_ps(-127.0f)));
}

/* 32 codes as int8, stored to q */
static inline __m256i quantize_32(const float *x, __m256 id, int8_t *q)
{
    __m256i a = _mm256_packs_epi32(codes(x, id), codes(x + 8, id));
    __m256i b = _mm256_packs_epi32(codes(x + 16, id), codes(x + 24, id));
    /* the packs worked within 128-bit halves: 0 4 8 12 | ... in units of 4 codes */
    __m256i r = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, r);
    return r;
}

/* The sums of every 4 codes, as 8 int32 */
static inline __m256i sums_of_4(__m256i q)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

static inline float amax_of(const float *x, int n)
{
    __m256 m = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8)
        m = _mm256_max_ps(absolute(_mm256_loadu_ps(x + i)), m);
    return pn_lanes_max_avx2(m);
}

static void quantize_q32(pn_act *x, int t)
{
    size_t n = (size_t)x->n, n_block = n / 32;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block, *s = x->s + t * n_block;
    int32_t *bsum = x->bsum + t * n_block;
    for (size_t b = 0; b < n_block; b++) {
        float amax = amax_of(f + b * 32, 32);
        if (amax < AMAX_ZERO) {
            memset(q + b * 32, 0, 32);
            d[b] = s[b] = 0.0f;
            bsum[b] = 0;
            continue;
        }
        __m256i four = sums_of_4(quantize_32(f + b * 32, _mm256_set1_ps(127.0f / amax), q + b * 32));
        __m128i h = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
        h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
        bsum[b] = _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
        d[b] = amax / 127.0f;
        s[b] = d[b] * (float)bsum[b];
    }
}

static void quantize_q256(pn_act *x, int t)
{
    size_t n = (size_t)x->n, n_block = n / 256;
    const float *f = x->f + t * n;
    int8_t *q = x->q + t * n;
    float *d = x->d + t * n_block;
    int16_t *sum = x->sum + t * (n / 16);
    for (size_t b = 0; b < n_block; b++, f += 256, q += 256, sum += 16) {
        float amax = amax_of(f, 256);
        if (amax < AMAX_ZERO) {
            memset(q, 0, 256);
            memset(sum, 0, 16 * sizeof *sum);
            d[b] = 0.0f;
            continue;
        }
        __m256 id = _mm256_set1_ps(127.0f / amax);
        for (int j = 0; j < 256; j += 32) {
            __m256i four = sums_of_4(quantize_32(f + j, id, q + j));
            four = _mm256_hadd_epi32(four, four);
            four = _mm256_hadd_epi32(four, four);
            sum[j / 16] = (int16_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(four));
            sum[j / 16 + 1] = (int16_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(four, 1));
        }
        d[b] = amax / 127.0f;
    }
}

static void rms_norm(const float *x, const float *w, float eps, int n, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    FOR_LANES(n, {
        __m256 v = LOAD(x + i);
        sum = _mm256_fmadd_ps(v, v, sum);
    });
    __m256 inv = _mm256_set1_ps(1.0f / sqrtf(pn_lanes_sum_avx2(sum) / (float)n + eps));
    FOR_LANES(n, { STORE(y + i, _mm256_mul_ps(_mm256_mul_ps(LOAD(x + i), inv), LOAD(w + i))); });
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, int n, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    FOR_LANES(n, { sum = _mm256_add_ps(sum, LOAD(x + i)); });
    __m256 mean = _mm256_set1_ps(pn_lanes_sum_avx2(sum) / (float)n);
    sum = _mm256_setzero_ps();
    FOR_LANES(n, {
        __m256 c = _mm256_sub_ps(LOAD(x + i), mean);
        if (!whole) /* the lanes past the end hold minus the mean */
            c = _mm256_and_ps(c, _mm256_castsi256_ps(mask));
        sum = _mm256_fmadd_ps(c, c, sum);
    });
    __m256 inv = _mm256_set1_ps(1.0f / sqrtf(pn_lanes_sum_avx2(sum) / (float)n + eps));
    FOR_LANES(n, {
        __m256 c = _mm256_mul_ps(_mm256_sub_ps(LOAD(x + i), mean), inv);
        STORE(y + i, _mm256_fmadd_ps(c, LOAD(w + i), LOAD(b + i)));
    });
}

static void add(float *x, const float *y, int n)
{
    FOR_LANES(n, { STORE(x + i, _mm256_add_ps(LOAD(x + i), LOAD(y + i))); });
}

static void scale_add(float *x, const float *y, float a, int n)
{
    const __m256 va = _mm256_set1_ps(a);
    FOR_LANES(n, { STORE(x + i, _mm256_fmadd_ps(va, LOAD(y + i), LOAD(x + i))); });
}

static void silu_mul(float *gate, const float *up, int n)
{
    FOR_LANES(n, {
        __m256 x = LOAD(gate + i);
        STORE(gate + i, _mm256_mul_ps(_mm256_mul_ps(x, pn_sigmoid_avx2(x)), LOAD(up + i)));
    });
}

static void gelu_tanh(float *x, int n)
{
    const __m256 c0 = _mm256_set1_ps(1.5957691216f), c1 = _mm256_set1_ps(0.044715f * 1.5957691216f);
    FOR_LANES(n, {
        __m256 v = LOAD(x + i);
        __m256 inner = _mm256_fmadd_ps(_mm256_mul_ps(v, v), c1, c0);
        STORE(x + i, _mm256_mul_ps(v, pn_sigmoid_avx2(_mm256_mul_ps(v, inner))));
    });
}

static void softmax(float *x, int n)
{
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 m = lowest;
    FOR_LANES(n, {
        __m256 v = LOAD(x + i);
        if (!whole)
            v = _mm256_blendv_ps(lowest, v, _mm256_castsi256_ps(mask));
        m = _mm256_max_ps(v, m);
    });
    m = _mm256_set1_ps(pn_lanes_max_avx2(m));
    __m256 sum = _mm256_setzero_ps();
    FOR_LANES(n, {
        __m256 e = pn_exp_avx2(_mm256_sub_ps(LOAD(x + i), m));
        if (!whole)
            e = _mm256_and_ps(e, _mm256_castsi256_ps(mask));
        sum = _mm256_add_ps(sum, e);
        STORE(x + i, e);
    });
    sum = _mm256_set1_ps(pn_lanes_sum_avx2(sum));
    FOR_LANES(n, { STORE(x + i, _mm256_div_ps(LOAD(x + i), sum)); });
}

static void rope_norm(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    for (int h = 0; h < n_head; h++, x += head_dim)
        FOR_LANES(2 * n_pair, {
            __m256 v = LOAD(x + i);
            __m256 t = LOAD(cs + i);
            __m256 swapped = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), _mm256_movehdup_ps(t));
            STORE(x + i, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(t), swapped));
        });
}

/* 8 (cos, sin) pairs, the first n of them real, to 8 cosines and 8 sines */
static inline void split_pairs(const float *cs, int n, __m256 *c, __m256 *s)
{
    __m256 a = _mm256_maskload_ps(cs, pn_lanes_mask(n < 4 ? 2 * n : 8));
    __m256 b = n > 4 ? _mm256_maskload_ps(cs + 8, pn_lanes_mask(2 * n - 8)) : _mm256_setzero_ps();
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    /* low holds pairs 0 1 | 4 5 and high 2 3 | 6 7, so that the shuffles within halves come out in order */
    *c = _mm256_shuffle_ps(low, high, 0x88);
    *s = _mm256_shuffle_ps(low, high, 0xdd);
}

static void rope_neox(float *x, int n_head, int head_dim, const float *cs, int n_pair)
{
    FOR_LANES(n_pair, {
        __m256 c;
        __m256 s;
        split_pairs(cs + 2 * i, whole ? 8 : n_pair - i, &c, &s);
        for (int h = 0; h < n_head; h++) {
            float *a = x + (size_t)h * (size_t)head_dim + i;
            float *b = a + n_pair;
            __m256 va = LOAD(a);
            __m256 vb = LOAD(b);
            STORE(a, _mm256_fmsub_ps(va, c, _mm256_mul_ps(vb, s)));
            STORE(b, _mm256_fmadd_ps(vb, c, _mm256_mul_ps(va, s)));
        }
    });
}

static void attn_finish(float *acc, float s, int head_dim)
{
    const __m256 vs = _mm256_set1_ps(s);
    FOR_LANES(head_dim, { STORE(acc + i, _mm256_div_ps(LOAD(acc + i), vs)); });
}

/* The maximum first, then the first element equal to it; nothing equals it where all elements are NaN. */
static int argmax(const float *x, int n)
{
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 m = lowest;
    FOR_LANES(n, {
        __m256 v = LOAD(x + i);
        if (!whole)
            v = _mm256_blendv_ps(lowest, v, _mm256_castsi256_ps(mask));
        m = _mm256_max_ps(v, m);
    });
    m = _mm256_set1_ps(pn_lanes_max_avx2(m));
    FOR_LANES(n, {
        __m256 equal = _mm256_and_ps(_mm256_cmp_ps(LOAD(x + i), m, _CMP_EQ_OQ), _mm256_castsi256_ps(mask));
        int bits = _mm256_movemask_ps(equal);
        if (bits)
            return i + __builtin_ctz((unsigned)bits);
    });
    return 0;
}

static void lerp(const float *a, const float *b, const float *t, int n, float *y)
{
    FOR_LANES(n, {
        __m256 v = LOAD(a + i);
        STORE(y + i, _mm256_fmadd_ps(_mm256_sub_ps(LOAD(b + i), v), LOAD(t + i), v));
    });
}

static void vector_tanh(const float *x, int n, float *y)
{
    FOR_LANES(n, { STORE(y + i, pn_tanh_avx2(LOAD(x + i))); });
}

static void sigmoid(const float *x, int n, float *y)
{
    FOR_LANES(n, { STORE(y + i, pn_sigmoid_avx2(LOAD(x + i))); });
}

static void relu_sqr(float *x, int n)
{
    FOR_LANES(n, {
        __m256 v = _mm256_max_ps(_mm256_setzero_ps(), LOAD(x + i));
        STORE(x + i, _mm256_mul_ps(v, v));
    });
}

void pn_avx2_floats(pn_kernels *k)
{
    k->quantize[PN_ACT_Q32] = quantize_q32;
    k->quantize[PN_ACT_Q256] = quantize_q256;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->add = add;
    k->scale_add = scale_add;
    k->silu_mul = silu_mul;
    k->gelu_tanh = gelu_tanh;
    k->softmax = softmax;
    k->rope_norm = rope_norm;
    k->rope_neox = rope_neox;
    k->attn_finish = attn_finish;
    k->argmax = argmax;
    k->lerp = lerp;
    k->tanh = vector_tanh;
    k->sigmoid = sigmoid;
    k->relu_sqr = relu_sqr;
}
