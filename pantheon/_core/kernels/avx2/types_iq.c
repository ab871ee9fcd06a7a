/* IQ2, IQ3 and IQ1: rows of a grid, eight or four values at a time, with separate signs. The grids are expanded to
 * bytes once, when the level's table is built; their index lists are those of the reference. */
#include "iq_grids.h"
#include "super.h"

static uint64_t iq2_xxs_rows[256], iq2_xs_rows[512], iq2_s_rows[1024], iq1_rows[2048];
static uint32_t iq3_xxs_rows[256], iq3_s_rows[512];

/* n_values values of every row of a grid, the first one in the lowest byte, times scale */
static uint64_t grid_row(int index, const int8_t *values, int n_values, int scale)
{
    const int field = 16 / n_values;
    uint64_t row = 0;
    for (int i = 0; i < n_values; i++)
        row |= (uint64_t)(uint8_t)(scale * values[index >> field * i & ((1 << field) - 1)]) << 8 * i;
    return row;
}

static void expand_grids(void)
{
    for (int i = 0; i < 256; i++) {
        iq2_xxs_rows[i] = grid_row(iq2_xxs_grid[i], iq2_xxs_grid_values, 8, 1);
        iq3_xxs_rows[i] = (uint32_t)grid_row(iq3_xxs_grid[i], iq3_xxs_grid_values, 4, 1);
    }
    for (int i = 0; i < 512; i++) {
        iq2_xs_rows[i] = grid_row(iq2_xs_grid[i], iq2_xs_grid_values, 8, 1);
        iq3_s_rows[i] = (uint32_t)grid_row(iq3_s_grid[i], iq3_s_grid_values, 4, 1);
    }
    for (int i = 0; i < 1024; i++)
        iq2_s_rows[i] = grid_row(iq2_s_grid[i], iq2_s_grid_values, 8, 1);
    for (int i = 0; i < 2048; i++) /* in eighths */
        iq1_rows[i] = grid_row(iq1_grid[i], iq1_grid_values, 8, 8);
}

PN_INLINE uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

PN_INLINE __m256i eights(const uint64_t *rows, unsigned i0, unsigned i1, unsigned i2, unsigned i3)
{
    return _mm256_setr_epi64x((long long)rows[i0], (long long)rows[i1], (long long)rows[i2], (long long)rows[i3]);
}

/* index: eight row numbers, int32 */
PN_INLINE __m256i fours(const uint32_t *rows, __m256i index)
{
    uint32_t i[8];
    _mm256_storeu_si256((__m256i *)i, index);
    return _mm256_setr_epi32((int)rows[i[0]], (int)rows[i[1]], (int)rows[i[2]], (int)rows[i[3]], (int)rows[i[4]],
                             (int)rows[i[5]], (int)rows[i[6]], (int)rows[i[7]]);
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

/* All ones where byte k has bit k % 8 set. */
PN_INLINE __m256i bit_mask(__m256i bytes)
{
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
}

PN_INLINE __m256i negated_where(__m256i v, __m256i mask) { return _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask); }

/* 32 signs of 4 bytes, bit k for value k */
PN_INLINE __m256i with_signs(__m256i v, const uint8_t *signs)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                             2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    return negated_where(v, bit_mask(_mm256_shuffle_epi8(_mm256_set1_epi32((int)pn_load32(signs)), byte_of)));
}

/* seven: four 64-bit lanes of seven signs for eight values; the eighth makes their number even. */
PN_INLINE __m256i with_even_signs(__m256i v, __m256i seven)
{
    const __m256i odd = _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
                                         0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i low_byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8,
                                              0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8);
    __m256i low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, _mm256_set1_epi8(15)));
    __m256i high = _mm256_shuffle_epi8(odd, _mm256_srli_epi64(seven, 4));
    __m256i eight = _mm256_xor_si256(seven, _mm256_xor_si256(low, high));
    return negated_where(v, bit_mask(_mm256_shuffle_epi8(eight, low_byte)));
}

/* Four times seven signs in the low 28 bits of a word. */
PN_INLINE __m256i sevens(uint32_t word)
{
    __m256i v = _mm256_srlv_epi64(_mm256_set1_epi64x(word), _mm256_setr_epi64x(0, 7, 14, 21));
    return _mm256_and_si256(v, _mm256_set1_epi64x(127));
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* 2s + 1 */
PN_INLINE __m128i odd_scales(__m128i s) { return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1)); }

PN_INLINE __m128i twice_bytes(__m128i words) { return _mm_or_si128(words, _mm_slli_epi16(words, 8)); }

/* The 16 nibbles of 8 bytes. */
PN_INLINE __m128i nibble_scales(const uint8_t *p)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)p);
    return odd_scales(_mm_and_si128(_mm_unpacklo_epi8(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15)));
}

/* The top four bits of eight words, each twice. */
PN_INLINE __m128i top_scales(__m128i words03, __m128i words47)
{
    return odd_scales(twice_bytes(_mm_packus_epi32(_mm_srli_epi32(words03, 28), _mm_srli_epi32(words47, 28))));
}

static inline uint16_t first_half(const uint8_t *b) { return pn_load16(b); }

/* ---- IQ2 --------------------------------------------------------------------------------------------------------- */

static inline __m256i iq2_xxs_codes(const uint8_t *b, int j)
{
    const uint8_t *i = b + 2 + 8 * j;
    return with_even_signs(eights(iq2_xxs_rows, i[0], i[1], i[2], i[3]), sevens(pn_load32(i + 4)));
}

static inline __m128i iq2_xxs_scales(const uint8_t *b)
{
    __m256 lo = _mm256_castsi256_ps(load256(b + 2)), hi = _mm256_castsi256_ps(load256(b + 34));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(lo, hi, 0xDD)); /* words 0 1 4 5 | 2 3 6 7 */
    odd = _mm256_permute4x64_epi64(odd, 0xD8);
    return top_scales(_mm256_castsi256_si128(odd), _mm256_extracti128_si256(odd, 1));
}

static const pn_super_type IQ2_XXS = {.bytes = 66, .offset = SUPER_SIGNED, .factor = 0.125f, .codes = iq2_xxs_codes,
                                      .scales = iq2_xxs_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq2_xxs, IQ2_XXS, s16)

/* Four words of a 9-bit index and seven signs. */
static inline __m256i iq2_xs_codes(const uint8_t *b, int j)
{
    uint64_t w = load64(b + 2 + 8 * j);
    __m256i v = eights(iq2_xs_rows, w & 511, w >> 16 & 511, w >> 32 & 511, w >> 48 & 511);
    return with_even_signs(v, _mm256_srli_epi64(_mm256_cvtepu16_epi64(_mm_cvtsi64_si128((long long)w)), 9));
}

static inline __m128i iq2_xs_scales(const uint8_t *b) { return nibble_scales(b + 66); }

static const pn_super_type IQ2_XS = {.bytes = 74, .offset = SUPER_SIGNED, .factor = 0.125f, .codes = iq2_xs_codes,
                                     .scales = iq2_xs_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq2_xs, IQ2_XS, s16)

static inline __m256i iq2_s_codes(const uint8_t *b, int j)
{
    const uint8_t *i = b + 2 + 4 * j;
    unsigned h = (unsigned)b[66 + j] << 8; /* two more bits an index */
    __m256i v = eights(iq2_s_rows, i[0] | (h & 0x300), i[1] | (h >> 2 & 0x300), i[2] | (h >> 4 & 0x300),
                       i[3] | (h >> 6 & 0x300));
    return with_signs(v, b + 34 + 4 * j);
}

static inline __m128i iq2_s_scales(const uint8_t *b) { return nibble_scales(b + 74); }

static const pn_super_type IQ2_S = {.bytes = 82, .offset = SUPER_SIGNED, .factor = 0.125f, .codes = iq2_s_codes,
                                    .scales = iq2_s_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq2_s, IQ2_S, s16)

/* ---- IQ3 --------------------------------------------------------------------------------------------------------- */

PN_INLINE __m256i eight_bytes(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }

static inline __m256i iq3_xxs_codes(const uint8_t *b, int j)
{
    return with_even_signs(fours(iq3_xxs_rows, eight_bytes(b + 2 + 8 * j)), sevens(pn_load32(b + 66 + 4 * j)));
}

static inline __m128i iq3_xxs_scales(const uint8_t *b) { return top_scales(load128(b + 66), load128(b + 82)); }

static const pn_super_type IQ3_XXS = {.bytes = 98, .offset = SUPER_SIGNED, .factor = 0.25f, .codes = iq3_xxs_codes,
                                      .scales = iq3_xxs_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq3_xxs, IQ3_XXS, s16)

/* Bit m of byte 66 + j is the ninth bit of index m. */
static inline __m256i iq3_s_codes(const uint8_t *b, int j)
{
    __m256i h = _mm256_sllv_epi32(_mm256_set1_epi32(b[66 + j]), _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1));
    __m256i index = _mm256_or_si256(eight_bytes(b + 2 + 8 * j), _mm256_and_si256(h, _mm256_set1_epi32(256)));
    return with_signs(fours(iq3_s_rows, index), b + 74 + 4 * j);
}

static inline __m128i iq3_s_scales(const uint8_t *b)
{
    __m128i v = _mm_cvtsi32_si128((int)pn_load32(b + 106));
    v = _mm_and_si128(_mm_unpacklo_epi8(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
    return odd_scales(_mm_unpacklo_epi8(v, v));
}

static const pn_super_type IQ3_S = {.bytes = 110, .offset = SUPER_SIGNED, .factor = 1, .codes = iq3_s_codes,
                                    .scales = iq3_s_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq3_s, IQ3_S, u6)

/* ---- IQ1: in eighths, plus or minus one -------------------------------------------------------------------------- */

static inline __m256i iq1_s_codes(const uint8_t *b, int j)
{
    const uint8_t *i = b + 2 + 4 * j;
    unsigned h = pn_load16(b + 34 + 2 * j);
    __m256i v = eights(iq1_rows, i[0] | (h << 8 & 0x700), i[1] | (h << 5 & 0x700), i[2] | (h << 2 & 0x700),
                       i[3] | (h >> 1 & 0x700));
    return _mm256_add_epi8(v, _mm256_set1_epi8(h & 0x8000 ? -1 : 1));
}

static inline __m128i iq1_s_scales(const uint8_t *b)
{
    return odd_scales(twice_bytes(_mm_and_si128(_mm_srli_epi16(load128(b + 34), 12), _mm_set1_epi16(7))));
}

static const pn_super_type IQ1_S = {.bytes = 50, .offset = SUPER_SIGNED, .factor = 0.125f, .codes = iq1_s_codes,
                                    .scales = iq1_s_scales, .d = first_half};
PN_SUPER_FUNCTIONS(iq1_s, IQ1_S, u6)

/* A nibble for eight values: three more bits of the index, and the sign of the eighth. */
static inline __m256i iq1_m_codes(const uint8_t *b, int j)
{
    const __m256i nibble_sign = _mm256_setr_epi64x(0x0808080808080808, (long long)0x8080808080808080ull,
                                                   0x0808080808080808, (long long)0x8080808080808080ull);
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                             1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    const uint8_t *i = b + 4 * j;
    unsigned h = pn_load16(b + 32 + 2 * j);
    __m256i v = eights(iq1_rows, i[0] | (h << 8 & 0x700), i[1] | (h << 4 & 0x700), i[2] | (h & 0x700),
                       i[3] | (h >> 4 & 0x700));
    __m256i sign = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi16((short)h), byte_of), nibble_sign);
    sign = _mm256_cmpeq_epi8(sign, nibble_sign);
    return _mm256_add_epi8(v, _mm256_or_si256(sign, _mm256_set1_epi8(1)));
}

/* Four words of four 3-bit scales. */
static inline __m128i iq1_m_scales(const uint8_t *b)
{
    const __m128i seven = _mm_set1_epi16(7);
    __m128i v = _mm_loadl_epi64((const __m128i *)(b + 48));
    __m128i s0 = _mm_and_si128(v, seven), s1 = _mm_and_si128(_mm_srli_epi16(v, 3), seven);
    __m128i s2 = _mm_and_si128(_mm_srli_epi16(v, 6), seven), s3 = _mm_and_si128(_mm_srli_epi16(v, 9), seven);
    s0 = _mm_or_si128(s0, _mm_slli_epi16(s1, 8));
    s2 = _mm_or_si128(s2, _mm_slli_epi16(s3, 8));
    return odd_scales(_mm_unpacklo_epi16(s0, s2));
}

/* The half is spread over the top nibbles of the four words. */
static inline uint16_t iq1_m_d(const uint8_t *b)
{
    return (uint16_t)(b[49] >> 4 | (b[51] & 0xf0) | (b[53] & 0xf0) << 4 | (b[55] & 0xf0) << 8);
}

static const pn_super_type IQ1_M = {.bytes = 56, .offset = SUPER_SIGNED, .factor = 0.125f, .codes = iq1_m_codes,
                                    .scales = iq1_m_scales, .d = iq1_m_d};
PN_SUPER_FUNCTIONS(iq1_m, IQ1_M, u6)

void pn_avx2_types_iq(pn_kernels *k)
{
    expand_grids();
    PN_SUPER_SET(k, PN_IQ2_XXS, iq2_xxs);
    PN_SUPER_SET(k, PN_IQ2_XS, iq2_xs);
    PN_SUPER_SET(k, PN_IQ2_S, iq2_s);
    PN_SUPER_SET(k, PN_IQ3_XXS, iq3_xxs);
    PN_SUPER_SET(k, PN_IQ3_S, iq3_s);
    PN_SUPER_SET(k, PN_IQ1_S, iq1_s);
    PN_SUPER_SET(k, PN_IQ1_M, iq1_m);
}
