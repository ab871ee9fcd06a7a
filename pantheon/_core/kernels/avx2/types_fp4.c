/* IQ4_NL, MXFP4, NVFP4 and IQ4_XS: codes looked up in a list of 16. The multiply takes one unsigned operand: |w| times
 * the activation with w's sign. */
#include "super.h"
#include "x86/codes4.h"

PN_INLINE __m256i signed_products(__m256i w, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* Lane r: sum of value * activation of row r's block of 32, the 16 code bytes at qs + r * stride. small: sums of 16
 * products fit 16 bits (16 * 12 * 127 = 24384). */
PN_INLINE __m256i lookup_sums(__m256i values, int small, const uint8_t *qs, size_t stride, const int8_t *x)
{
    const __m256i low4 = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    const __m256i x0 = twice128(x), x1 = twice128(x + 16);
    __m256i s[4];
    for (int r = 0; r < 4; r++) {
        __m256i v = pair128(qs + r * stride, qs + (r + 4) * stride);
        __m256i lo = _mm256_shuffle_epi8(values, _mm256_and_si256(v, low4));
        __m256i hi = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(v, 4), low4));
        __m256i a = signed_products(lo, x0), b = signed_products(hi, x1);
        s[r] = small ? _mm256_add_epi16(a, b) : _mm256_add_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
    }
    return small ? _mm256_madd_epi16(tree_epi16(s), one) : tree_epi32(s);
}

static void iq4_nl_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 18) {
        __m256i isum = lookup_sums(unequal_values(), 0, w + 2, stride, xq + 32 * b);
        __m256 d = _mm256_mul_ps(load_scales(w, stride), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(iq4_nl)

static void mxfp4_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const int n_blocks = x->n / 32;
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * n_blocks;
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < n_blocks; b++, w += 17) {
        __m256i isum = lookup_sums(e2m1_values(), 1, w + 1, stride, xq + 32 * b);
        __m256i e = _mm256_setr_epi32(w[0], w[stride], w[2 * stride], w[3 * stride], w[4 * stride], w[5 * stride],
                                      w[6 * stride], w[7 * stride]);
        __m256 d = _mm256_mul_ps(mx_scales(e), _mm256_broadcast_ss(xd + b));
        acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), acc);
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(mxfp4)

/* Four scales a block of 64, one for 16 codes: sub-blocks of rows r and r + 4 meet in one vector before the tree. */
static void nvfp4_dot8(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os)
{
    const __m256i one = _mm256_set1_epi16(1);
    const int8_t *xq = x->q + (size_t)t * x->n;
    const float *xd = x->d + (size_t)t * (x->n / 32);
    __m256 acc = _mm256_setzero_ps();
    for (int b = 0; b < x->n / 64; b++, w += 36, xq += 64, xd += 2) {
        const __m256i x02 = pair128((const uint8_t *)xq, (const uint8_t *)xq + 32);
        const __m256i x13 = pair128((const uint8_t *)xq + 16, (const uint8_t *)xq + 48);
        __m256i even[8], odd[8], s[4][4];
        int32_t scales[8];
        for (int r = 0; r < 8; r++) {
            __m256i c02, c13;
            nvfp4_codes(w + r * stride, &c02, &c13);
            even[r] = signed_products(c02, x02);
            odd[r] = signed_products(c13, x13);
            scales[r] = (int32_t)pn_load32(w + r * stride);
        }
        for (int r = 0; r < 4; r++) {
            s[0][r] = _mm256_permute2x128_si256(even[r], even[r + 4], 0x20);
            s[1][r] = _mm256_permute2x128_si256(odd[r], odd[r + 4], 0x20);
            s[2][r] = _mm256_permute2x128_si256(even[r], even[r + 4], 0x31);
            s[3][r] = _mm256_permute2x128_si256(odd[r], odd[r + 4], 0x31);
        }
        const __m256i all = load256(scales);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m256 isum = _mm256_cvtepi32_ps(_mm256_madd_epi16(tree_epi16(s[k]), one));
            __m256i scale = _mm256_and_si256(_mm256_srli_epi32(all, 8 * k), _mm256_set1_epi32(255));
            acc = _mm256_fmadd_ps(_mm256_mul_ps(nv_scales(scale), _mm256_broadcast_ss(xd + k / 2)), isum, acc);
        }
    }
    store8(out, os, acc);
}
PN_DOT1_FROM_DOT8(nvfp4)

/* ---- IQ4_XS ------------------------------------------------------------------------------------------------------ */

static inline __m256i iq4_xs_codes(const uint8_t *b, int j) { return lookup_32(unequal_values(), b + 8 + 16 * j); }
static inline uint16_t iq4_xs_d(const uint8_t *b) { return pn_load16(b); }

/* One 6-bit scale for 32 codes, offset by 32: 16-bit lane g is the scale of group g twice. The low four bits are
 * nibbles, the high two a bit pair of the word at b + 2. */
static inline __m128i iq4_xs_scales(const uint8_t *b)
{
    const __m128i spread = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i to_top = _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
    __m128i v = _mm_shuffle_epi8(_mm_set1_epi32((int)pn_load32(b + 4)), spread);
    __m128i low = _mm_and_si128(_mm_blend_epi16(v, _mm_srli_epi16(v, 4), 0xAA), _mm_set1_epi8(15));
    __m128i high = _mm_srli_epi16(_mm_mullo_epi16(_mm_set1_epi16((short)pn_load16(b + 2)), to_top), 14);
    high = _mm_mullo_epi16(high, _mm_set1_epi16(0x1010));
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
}

static const pn_super_type IQ4_XS = {.bytes = 136, .offset = SUPER_SIGNED, .factor = 1, .codes = iq4_xs_codes,
                                     .scales = iq4_xs_scales, .d = iq4_xs_d};
PN_SUPER_FUNCTIONS(iq4_xs, IQ4_XS, s16)

void pn_avx2_types_fp4(pn_kernels *k)
{
    PN_AVX2_SET(k, PN_IQ4_NL, iq4_nl);
    PN_AVX2_SET(k, PN_MXFP4, mxfp4);
    PN_AVX2_SET(k, PN_NVFP4, nvfp4);
    PN_SUPER_SET(k, PN_IQ4_XS, iq4_xs);
}
