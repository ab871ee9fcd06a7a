/* Rounding one position of a head to f16, 8 dims at a time. Quantised types are stored by the reference code. */
#include "kv_expand.h"
#include "x86/lanes.h"

static inline int part(int head_dim, int d)
{
    return head_dim - d < PN_LANES ? head_dim - d : PN_LANES;
}

static void store_k_f16(uint8_t *k, int pos, int head_dim, const float *x)
{
    k += pn_k_at(pos, 0, head_dim) * 2;
    for (int d = 0; d < head_dim; d += 8) {
        __m256 v = _mm256_maskload_ps(x + d, pn_lanes_mask(part(head_dim, d)));
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)h, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        for (int i = 0; i < part(head_dim, d); i++, k += 16)
            memcpy(k, h + i, 2);
    }
}

static void store_v_f16(uint8_t *v, int pos, int head_dim, const float *x)
{
    v += (size_t)pos * (size_t)head_dim * 2;
    for (int d = 0; d < head_dim; d += 8) {
        const int n = part(head_dim, d);
        __m128i h = _mm256_cvtps_ph(_mm256_maskload_ps(x + d, pn_lanes_mask(n)), _MM_FROUND_TO_NEAREST_INT);
        memcpy(v + 2 * (size_t)d, &h, 2 * (size_t)n);
    }
}

void pn_avx2_kv_store(pn_kernels *k)
{
    k->kv[PN_KVK_F16].store_k = store_k_f16;
    k->kv[PN_KVK_F16].store_v = store_v_f16;
}
