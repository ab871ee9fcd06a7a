/* The loops of the sampler that see every logit of the vocabulary. Written so that the compiler turns them into vector
 * code without relaxed floating-point rules: independent lanes, no branches, a fixed order of every sum. */
#ifndef PN_SAMPLING_LOOPS_H
#define PN_SAMPLING_LOOPS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PN_SCAN_BLOCK = 128, PN_SCAN_LANES = 16 };

/* exp(x) for x <= 0 to about one unit in the last place; 0 below -87, where the result would leave the normal range.
 * x = n ln 2 + r with |r| <= ln 2 / 2, and the series of exp(r) to r^7, whose rest is below 1e-8. */
static inline float pn_exp_neg(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, held in the low mantissa bits */
    float c = x > -87.0f ? x : -87.0f;
    float t = c * 1.44269504f + shift;
    float n = t - shift;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts, the first exact times any n here */
    float p = 1.0f / 5040.0f;
    int32_t bits;
    float scale;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    memcpy(&bits, &t, 4);
    bits = (int32_t)((uint32_t)(bits - 0x4B400000 + 127) << 23); /* 2^n */
    memcpy(&scale, &bits, 4);
    p *= scale;
    return x > -87.0f ? p : 0.0f;
}

/* Maximum of n floats into *max and of every block of PN_SCAN_BLOCK into block_max (ceil(n / PN_SCAN_BLOCK),).
 * Returns -1, or the index of the first NaN; then the maxima mean nothing. */
static inline int pn_scan_max(const float *x, int n, float *block_max, float *max)
{
    int bad = 0, full = n / PN_SCAN_BLOCK, b, i, j;
    float top = -INFINITY;
    for (b = 0; b < full; b++) {
        const float *p = x + (size_t)b * PN_SCAN_BLOCK;
        float m[PN_SCAN_LANES];
        int32_t u[PN_SCAN_LANES];
        for (j = 0; j < PN_SCAN_LANES; j++) {
            m[j] = p[j];
            u[j] = p[j] != p[j];
        }
        for (i = PN_SCAN_LANES; i < PN_SCAN_BLOCK; i += PN_SCAN_LANES)
            for (j = 0; j < PN_SCAN_LANES; j++) {
                m[j] = p[i + j] > m[j] ? p[i + j] : m[j];
                u[j] |= p[i + j] != p[i + j];
            }
        for (i = PN_SCAN_LANES / 2; i > 0; i /= 2)
            for (j = 0; j < i; j++) {
                m[j] = m[j + i] > m[j] ? m[j + i] : m[j];
                u[j] |= u[j + i];
            }
        block_max[b] = m[0];
        top = m[0] > top ? m[0] : top;
        bad |= u[0];
    }
    if (full * PN_SCAN_BLOCK < n) {
        float m = -INFINITY;
        for (i = full * PN_SCAN_BLOCK; i < n; i++) {
            m = x[i] > m ? x[i] : m;
            bad |= x[i] != x[i];
        }
        block_max[full] = m;
        top = m > top ? m : top;
    }
    *max = top;
    if (bad)
        for (i = 0; i < n; i++)
            if (x[i] != x[i])
                return i;
    return -1;
}

/* Sum of exp((x - max) * inv_t) over those of n floats that are >= floor; max is their maximum, so no term exceeds 1.
 * e (n,), where given, gets the terms (0 for those below the floor). */
static inline double pn_exp_sum(const float *x, int n, float max, float inv_t, float floor, float *e)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    float buffer[64];
    int i, j;
    for (i = 0; i < n; i += 64) {
        int m = n - i < 64 ? n - i : 64;
        float *out = e ? e + i : buffer;
        for (j = 0; j < m; j++) {
            float v = pn_exp_neg((x[i + j] - max) * inv_t);
            out[j] = x[i + j] >= floor ? v : 0.0f;
        }
        for (j = 0; j + 3 < m; j += 4) {
            s0 += out[j];
            s1 += out[j + 1];
            s2 += out[j + 2];
            s3 += out[j + 3];
        }
        for (; j < m; j++)
            s0 += out[j];
    }
    return (s0 + s1) + (s2 + s3);
}

/* Number, sum and sum of squares of x - max over the finite ones of n floats. */
static inline void pn_moments(const float *x, int n, float max, int64_t *count, double *sum, double *sum2)
{
    double s[4] = {0}, q[4] = {0};
    int64_t c[4] = {0};
    int i, j;
    for (i = 0; i + 3 < n; i += 4)
        for (j = 0; j < 4; j++) {
            double d = x[i + j] >= -FLT_MAX ? (double)x[i + j] - max : 0.0;
            s[j] += d;
            q[j] += d * d;
            c[j] += x[i + j] >= -FLT_MAX;
        }
    for (; i < n; i++)
        if (x[i] >= -FLT_MAX) {
            double d = (double)x[i] - max;
            s[0] += d;
            q[0] += d * d;
            c[0]++;
        }
    *count = c[0] + c[1] + c[2] + c[3];
    *sum = (s[0] + s[1]) + (s[2] + s[3]);
    *sum2 = (q[0] + q[1]) + (q[2] + q[3]);
}

/* Indices and values of those of n floats that are >= floor, in index order; returns how many. Blocks whose maximum is
 * below the floor are skipped. id and v hold n + 1 elements: the slot behind the last one found is scribbled on. */
static inline int pn_collect(const float *x, int n, const float *block_max, float floor, uint32_t *id, float *v)
{
    int found = 0, b, i;
    for (b = 0; (int64_t)b * PN_SCAN_BLOCK < n; b++) {
        int end = n - b * PN_SCAN_BLOCK < PN_SCAN_BLOCK ? n : (b + 1) * PN_SCAN_BLOCK;
        if (block_max[b] < floor)
            continue;
        for (i = b * PN_SCAN_BLOCK; i < end; i++) {
            id[found] = (uint32_t)i;
            v[found] = x[i];
            found += x[i] >= floor;
        }
    }
    return found;
}

/* A uint32 that orders as the float does (no NaN; -0 becomes +0), and back. */
static inline uint32_t pn_order_of(float x)
{
    uint32_t u;
    x += 0.0f;
    memcpy(&u, &x, 4);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static inline float pn_float_of(uint32_t u)
{
    float x;
    u = u & 0x80000000u ? u & 0x7FFFFFFFu : ~u;
    memcpy(&x, &u, 4);
    return x;
}

#endif
