/* Panels of super-blocks of 256 weights: every code is multiplied by its integer scale when it is unpacked, and the
 * int16 product is kept as two planes, its high and its low bytes. So the tile registers sum a whole block, and a scale
 * costs nothing later.
 *
 * Per block: high (4, 16 steps, 16 rows, 4) int8 | low, the same, uint8 | mins (n_mins, 16 rows, 2) int16, of 32 codes
 * each (4) or of 16 (8), or none (0) | d (16,) f32 | dmin (16,) f32 where there are minimums.
 *
 * Range: a product is at most 63 * 31 (Q5_K), 128 * 32 (Q6_K) or 127 * 32 (int16 panels) in size; sums of a block are
 * at most 256 * 16 * 127 < 2^20 of high bytes and 256 * 255 * 127 < 2^23 of low ones.
 */
#ifndef PN_AMX_PLANES_H
#define PN_AMX_PLANES_H

#include "amx.h"
#include "x86/tiles512.h"

enum { PLANE_BYTES = 4 * AMX_TILE_BYTES, PLANES = 2 * PLANE_BYTES };

TILE_INLINE int planes_d(int n_mins) { return PLANES + n_mins * PANEL_SET; }
TILE_INLINE int planes_block(int n_mins) { return planes_d(n_mins) + (n_mins ? 2 : 1) * PANEL_SET; }

/* even, odd: products of the 4 codes of a step at k = 0, 2 and at k = 1, 3, as int16. */
TILE_INLINE void planes_store(uint8_t *block, int step, __m512i even, __m512i odd)
{
    const __m512i odd_bytes = _mm512_set1_epi16((short)0xff00);
    const int select = 0xca; /* first operand ? second : third, bit by bit */
    const __m512i high = _mm512_ternarylogic_epi32(odd_bytes, odd, _mm512_srli_epi16(even, 8), select);
    const __m512i low = _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 8), even, select);
    _mm512_store_si512(block + step * PANEL_SET, high);
    _mm512_store_si512(block + PLANE_BYTES + step * PANEL_SET, low);
}

/* Scales of 16 rows for one sub-block, as vpmaddubsw takes them: s, 0, s, 0 and 0, s, 0, s; and s * offset as int16. */
typedef struct plane_scale {
    __m512i even, odd, lowered;
} plane_scale;

/* scales: int8 in the low byte of every int16, zeros in the high one. offset: 0 or 32, which codes are lowered by. */
TILE_INLINE plane_scale plane_scale_of(__m512i scales, const int offset)
{
    const __m512i odd = _mm512_slli_epi16(scales, 8);
    return (plane_scale){scales, odd, offset ? _mm512_srai_epi16(odd, 3) : odd};
}

/* The 4 codes of a step, less offset, times their scale. */
TILE_INLINE void planes_scale(uint8_t *block, int step, __m512i codes, const int offset, const plane_scale *scale)
{
    __m512i even = _mm512_maddubs_epi16(codes, scale->even), odd = _mm512_maddubs_epi16(codes, scale->odd);
    if (offset) {
        even = _mm512_sub_epi16(even, scale->lowered);
        odd = _mm512_sub_epi16(odd, scale->lowered);
    }
    planes_store(block, step, even, odd);
}

#endif
