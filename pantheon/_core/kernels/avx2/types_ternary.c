/* One to two bits a weight: TQ1_0 and TQ2_0 (-1, 0, 1), Q1_0 (-1, 1), Q2_0 (-1, 0, 1, 2). */
#include "codes2.h"
#include "super.h"

/* ---- TQ2_0: the 2-bit fields 0..3 of 32 bytes are 32 codes each -------------------------------------------------- */

static inline __m256i tq2_0_codes(const uint8_t *b, int j)
{
    return _mm256_and_si256(_mm256_srli_epi16(load256(b + j / 4 * 32), j % 4 * 2), _mm256_set1_epi8(3));
}

static inline uint16_t tq2_0_d(const uint8_t *b) { return pn_load16(b + 64); }

static const pn_super_type TQ2_0 = {.bytes = 66, .offset = 1, .factor = 1, .codes = tq2_0_codes, .d = tq2_0_d};
PN_SUPER_FUNCTIONS(tq2_0, TQ2_0, u6)

/* ---- TQ1_0: five base-3 digits a byte, digit m = (byte * 3^m mod 256) * 3 / 256 ---------------------------------- */

PN_INLINE __m256i times3(__m256i v) { return _mm256_add_epi8(_mm256_add_epi8(v, v), v); }

/* The digit in front: 3 * v / 256 is 1 from 86 on and 2 from 171 on. */
PN_INLINE __m256i first_digit(__m256i v)
{
    __m256i one = _mm256_cmpeq_epi8(v, _mm256_max_epu8(v, _mm256_set1_epi8(86)));
    __m256i two = _mm256_cmpeq_epi8(v, _mm256_max_epu8(v, _mm256_set1_epi8((char)171)));
    return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_setzero_si256(), one), two);
}

/* Codes 0..159 are the digits of bytes 0..31 in turn; 160..239 those of bytes 32..47, 16 a digit; 240..255 the first
 * four digits of bytes 48..51. */
static inline __m256i tq1_0_codes(const uint8_t *b, int j)
{
    __m256i v, next;
    if (j < 5) {
        v = load256(b);
#pragma GCC unroll 4
        for (int m = 0; m < j; m++)
            v = times3(v);
        return first_digit(v);
    }
    v = twice128(b + 32);
#pragma GCC unroll 4
    for (int m = 0; m < 2 * (j - 5); m++)
        v = times3(v);
    if (j < 7) {
        next = times3(v);
    } else { /* 32-bit lanes of the four bytes times 1, 3, 9, 27 */
        next = _mm256_set1_epi32((int)pn_load32(b + 48));
        next = _mm256_blend_epi32(next, times3(next), 0xAA);
        next = _mm256_blend_epi32(next, times3(times3(next)), 0xCC);
    }
    return first_digit(_mm256_blend_epi32(v, next, 0xF0));
}

static inline uint16_t tq1_0_d(const uint8_t *b) { return pn_load16(b + 52); }

static const pn_super_type TQ1_0 = {.bytes = 54, .offset = 1, .factor = 1, .codes = tq1_0_codes, .d = tq1_0_d};
PN_SUPER_FUNCTIONS(tq1_0, TQ1_0, u6)

/* ---- Q1_0, Q2_0: one scale for four or two blocks of the input, a multiply-add for each -------------------------- */

PN_INLINE void low_bits_dot8(int size, const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const __m256i one = _mm256_set1_epi16(1);
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 32);
    __m256 acc = _mm256_setzero_ps();
    for (int i = 0; i < x->n; i += size, w += 18) {
        const __m256 d = load_scales_wide(w, stride);
#pragma GCC unroll 4
        for (int j = 0; j < size / 32; j++, xq += 32, xd++) {
            __m256i s[8];
#pragma GCC unroll 8
            for (int r = 0; r < 8; r++) {
                __m256i c = size == 128 ? q1_0_codes(w + r * stride, j) : q2_0_codes(w + r * stride, j);
                __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(load256(xq), c));
                s[r] = _mm256_madd_epi16(p, one);
            }
            acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_broadcast_ss(xd)), _mm256_cvtepi32_ps(tree8_epi32(s)), acc);
        }
    }
    store8(out, os, acc);
}

static void q1_0_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    low_bits_dot8(128, w, stride, x, t, out, os);
}
PN_DOT1_FROM_DOT8(q1_0)

static void q2_0_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    low_bits_dot8(64, w, stride, x, t, out, os);
}
PN_DOT1_FROM_DOT8(q2_0)

void pn_avx2_types_ternary(pn_kernels *k)
{
    PN_SUPER_SET(k, PN_TQ1_0, tq1_0);
    PN_SUPER_SET(k, PN_TQ2_0, tq2_0);
    PN_AVX2_SET(k, PN_Q1_0, q1_0);
    PN_AVX2_SET(k, PN_Q2_0, q2_0);
}
