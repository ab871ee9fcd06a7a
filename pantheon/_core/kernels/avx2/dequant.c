/* Rows of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K and Q5_K to floats: embedding rows. */
#include "values.h"
#include "x86/codes45.h"

PN_INLINE void q32_dequant(pn_type type, const uint8_t *w, float *out, int64_t n)
{
    const int bytes = type == PN_Q8_0 ? 34 : q32_block_bytes(type), has_min = q32_has_min(type);
    for (; n > 0; n -= 32, w += bytes, out += 32) {
        __m256i c = type == PN_Q8_0 ? load256(w + 2) : q32_codes(type, w);
        if (type == PN_Q4_0 || type == PN_Q5_0)
            c = _mm256_sub_epi8(c, _mm256_set1_epi8((char)(1 << q32_offset_shift(type))));
        store_32_values(out, c, has_min, _cvtsh_ss(pn_load16(w)), has_min ? _cvtsh_ss(pn_load16(w + 2)) : 0);
    }
}

PN_INLINE void k45_dequant(pn_type type, const uint8_t *w, float *out, int64_t n)
{
    for (; n > 0; n -= 256, w += type == PN_Q5_K ? 176 : 144) {
        const float d = _cvtsh_ss(pn_load16(w)), dmin = _cvtsh_ss(pn_load16(w + 2));
        for (int j = 0; j < 8; j++, out += 32) {
            int sc, m;
            pn_k4_scale(w + 4, j, &sc, &m);
            store_32_values(out, k45_codes(type, w, j), 1, d * (float)sc, -(dmin * (float)m));
        }
    }
}

#define DEQUANT(name, type, kernel) \
    static void name##_dequant(const uint8_t *w, float *out, int64_t n) { kernel(type, w, out, n); }

DEQUANT(q4_0, PN_Q4_0, q32_dequant)
DEQUANT(q4_1, PN_Q4_1, q32_dequant)
DEQUANT(q5_0, PN_Q5_0, q32_dequant)
DEQUANT(q5_1, PN_Q5_1, q32_dequant)
DEQUANT(q8_0, PN_Q8_0, q32_dequant)
DEQUANT(q4_k, PN_Q4_K, k45_dequant)
DEQUANT(q5_k, PN_Q5_K, k45_dequant)

void pn_avx2_dequant(pn_kernels *k)
{
    k->type[PN_Q4_0].dequant = q4_0_dequant;
    k->type[PN_Q4_1].dequant = q4_1_dequant;
    k->type[PN_Q5_0].dequant = q5_0_dequant;
    k->type[PN_Q5_1].dequant = q5_1_dequant;
    k->type[PN_Q8_0].dequant = q8_0_dequant;
    k->type[PN_Q4_K].dequant = q4_k_dequant;
    k->type[PN_Q5_K].dequant = q5_k_dequant;
}
