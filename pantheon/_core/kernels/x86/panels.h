/* Layouts of panels that more than one level reads: 16 weight rows unpacked to bytes, 4 consecutive k of every row
 * side by side. A step (4 k) of all rows takes 64 bytes, and so does one 4-byte number of all rows.
 *
 * 32-weight types, per block:   codes (8 steps, 16 rows, 4) uint8 | d (16,) f32 | m (16,) f32 where the type has a
 * minimum. K types, per sub-block of 32: codes (8 steps, 16 rows, 4) uint8 | scales (1 or 2, 16 rows, 2) int16, each
 * scale twice;
 *          per block of 256:    8 sub-blocks | mins (4, 16 rows, 2) int16, two sub-blocks a pair (not Q6_K) | d (16,)
 *   f32
 *                               | dmin (16,) f32 (not Q6_K).
 */
#ifndef PN_X86_PANELS_H
#define PN_X86_PANELS_H

#include "kernels.h"

#define PN_PANEL_INLINE static inline __attribute__((always_inline))

/* Bytes of one step, or of one number of all rows; steps of 32 weights; sub-blocks of a K block. */
enum { PANEL_SET = PN_PANEL * 4, PANEL_STEPS = 8, PANEL_SUBS = 8 };

/* Types with small signed codes whose panels are those of another type, offset as its codes are. */
static const pn_type PANELS_OF_Q5_0[] = {PN_MXFP4, PN_Q1_0, PN_Q2_0};
static const pn_type PANELS_OF_Q6_K[] = {PN_Q3_K, PN_IQ3_S, PN_IQ1_S, PN_IQ1_M, PN_TQ1_0, PN_TQ2_0};

/* ---- 32-weight types --------------------------------------------------------------------------------------------- */

enum { Q32_D = PANEL_STEPS * PANEL_SET, Q32_M = Q32_D + PANEL_SET };

PN_PANEL_INLINE int q32_has_min(pn_type type) { return type == PN_Q4_1 || type == PN_Q5_1; }

/* log2 of what codes are offset by, 0 for no offset. Q8_0 is offset only at levels whose products want unsigned
 * codes. */
PN_PANEL_INLINE int q32_offset_shift(pn_type type)
{
    return type == PN_Q8_0 ? 7 : type == PN_Q4_0 ? 3 : type == PN_Q4_1 ? 0 : 4;
}

PN_PANEL_INLINE int q32_panel_block(pn_type type) { return Q32_M + (q32_has_min(type) ? PANEL_SET : 0); }

/* ---- K types ----------------------------------------------------------------------------------------------------- */

enum { K_SCALES = PANEL_STEPS * PANEL_SET };

PN_PANEL_INLINE int k_has_min(pn_type type) { return type != PN_Q6_K; }
PN_PANEL_INLINE int k_is_offset(pn_type type) { return type == PN_Q6_K; }         /* codes are offset by 32 */
PN_PANEL_INLINE int k_n_scales(pn_type type) { return type == PN_Q6_K ? 2 : 1; } /* scales of a sub-block */
PN_PANEL_INLINE int k_panel_sub(pn_type type) { return K_SCALES + k_n_scales(type) * PANEL_SET; }
PN_PANEL_INLINE int k_panel_mins(pn_type type) { return PANEL_SUBS * k_panel_sub(type); }
PN_PANEL_INLINE int k_panel_d(pn_type type) { return k_panel_mins(type) + (k_has_min(type) ? 4 * PANEL_SET : 0); }
PN_PANEL_INLINE int k_panel_block(pn_type type) { return k_panel_d(type) + (k_has_min(type) ? 2 : 1) * PANEL_SET; }

/* ---- super-blocks of 256 weights as int16 ------------------------------------------------------------------------ */

/* Codes times scales, 2 consecutive k of every row side by side. Panel, per block:  (128 steps, 16 rows, 2) int16 |
 * d (16,) f32, and where the type has minimums | mins (8, 16 rows, 2) int16, one for 16 codes | dmin (16,) f32.
 * Packed input, per block of T tokens:  codes (128 steps, T, 2) int16 | sums of 16 codes (8, T, 2) int16 | d (T,) f32.
 *
 * Range: a code times its scale is at most 127 * 32 in size; 256 * 127 * 32 * 127 < 2^28. */
enum { S16_STEPS = 128, S16_D = S16_STEPS * PANEL_SET, S16_MINS = S16_D + PANEL_SET };
enum { S16_MIN_STEPS = 8, S16_DMIN = S16_MINS + S16_MIN_STEPS * PANEL_SET };
/* offsets inside packed input, each times T */
enum { S16_PACK_SUMS = 4 * S16_STEPS, S16_PACK_D = S16_PACK_SUMS + 4 * S16_MIN_STEPS, S16_PACK_BLOCK = S16_PACK_D + 4 };

PN_PANEL_INLINE int s16_panel_block(int has_min) { return has_min ? S16_DMIN + PANEL_SET : S16_MINS; }

static const pn_type S16_PANELS[] = {PN_IQ4_XS, PN_IQ2_XXS, PN_IQ2_XS, PN_IQ2_S, PN_IQ3_XXS};
static const pn_type S16_PANELS_WITH_MIN[] = {PN_Q2_K};

#endif
