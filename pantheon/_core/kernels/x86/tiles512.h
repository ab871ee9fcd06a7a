/* What matrix x matrix tiles in 512-bit registers share.
 *
 * One 512-bit vector holds 4 consecutive k of all 16 rows, lane = row. vpdpbusd takes the input as a broadcast memory
 * operand, so a step is one weight load and one instruction per token. vpdpwssd does the same with 2 int16 numbers.
 */
#ifndef PN_X86_TILES512_H
#define PN_X86_TILES512_H

#include "vnni.h"

TILE_INLINE __m512i load_512(const void *p) { return _mm512_load_si512(p); }
TILE_INLINE __m512 load_ps(const void *p) { return _mm512_load_ps(p); }
TILE_INLINE __m512 broadcast_ps(const uint8_t *p)
{
    float v;
    memcpy(&v, p, 4);
    return _mm512_set1_ps(v);
}
TILE_INLINE __m512i broadcast_512(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* s += w * x over 4 k; x is 4 bytes of packed input. gcc 12 would spend an instruction on the broadcast. Without the
 * instruction the sources are compiled to be emulated (docs/levels.md). */
#ifdef __AVX512VNNI__
TILE_INLINE void step_512(__m512i *s, __m512i w, const uint8_t *x)
{
    __asm__ volatile("vpdpbusd %[x]%{1to16%}, %[w], %[s]" : [s] "+v"(*s) : [w] "v"(w), [x] "m"(*(const int32_t *)x));
}

/* The same with int16 numbers, over 2 k. */
TILE_INLINE void step_i16_512(__m512i *s, __m512i w, const uint8_t *x)
{
    __asm__ volatile("vpdpwssd %[x]%{1to16%}, %[w], %[s]" : [s] "+v"(*s) : [w] "v"(w), [x] "m"(*(const int32_t *)x));
}

#define KEEP_512(v) __asm__ volatile("" : "+v"(v))
#else
TILE_INLINE void step_512(__m512i *s, __m512i w, const uint8_t *x)
{
    *s = _mm512_dpbusd_epi32(*s, w, broadcast_512(x));
}

TILE_INLINE void step_i16_512(__m512i *s, __m512i w, const uint8_t *x)
{
    *s = _mm512_dpwssd_epi32(*s, w, broadcast_512(x));
}

#define KEEP_512(v) (void)(v)
#endif

/* Low or high half of every dword as f16, to f32 */
TILE_INLINE __m512 halves_ps(__m512i v, const int high)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high ? _mm512_srli_epi32(v, 16) : v));
}

#define TILE_UP_TO_12(name, type, kernel) \
    TILE_FIXED(name, type, kernel, 1) TILE_FIXED(name, type, kernel, 2) TILE_FIXED(name, type, kernel, 3) \
    TILE_FIXED(name, type, kernel, 4) TILE_FIXED(name, type, kernel, 5) TILE_FIXED(name, type, kernel, 6) \
    TILE_FIXED(name, type, kernel, 7) TILE_FIXED(name, type, kernel, 8) TILE_FIXED(name, type, kernel, 9) \
    TILE_FIXED(name, type, kernel, 10) TILE_FIXED(name, type, kernel, 11) TILE_FIXED(name, type, kernel, 12) \
    static void name(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy) \
    { \
        static void (*const body[])(TILE_ARGS) = {name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, \
                                                  name##_7, name##_8, name##_9, name##_10, name##_11, name##_12}; \
        body[n_tok - 1](panel, packed, n, y, ldy); \
    }

#endif
