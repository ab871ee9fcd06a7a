"""Rotary position embedding: frequencies of a model and the (cos, sin) pairs of a position.

Pair p of d rotated dimensions turns by pos * base^(-2p/d), changed by the model's scaling. Angles are formed in double
precision: a float product loses the fraction of large positions.
"""
from libc.math cimport M_PI, ceil, cos, floor, log, pow, sin, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from pantheon._core.types cimport (
    PN_ROPE_SCALING_LINEAR,
    PN_ROPE_SCALING_LLAMA3,
    PN_ROPE_SCALING_LONGROPE,
    PN_ROPE_SCALING_NONE,
    PN_ROPE_SCALING_YARN,
    pn_config,
    pn_rope_scaling,
)


cdef double yarn_dim(const pn_config *c, double rotations) noexcept nogil:
    """The pair whose wavelength turns `rotations` times in the original context."""
    return c.rope_dims * log(c.rope_orig_ctx / (2 * M_PI * rotations)) / (2 * log(c.rope_base))


cdef double scaled_frequency(const pn_config *c, int p, double f) noexcept nogil:
    """Frequency of pair p under the model's scaling, from its plain frequency f."""
    cdef double low, high, t, wavelength
    if c.rope_scaling == PN_ROPE_SCALING_LINEAR:
        return f / c.rope_factor
    if c.rope_scaling == PN_ROPE_SCALING_YARN:
        low, high = yarn_dim(c, c.rope_beta_fast), yarn_dim(c, c.rope_beta_slow)
        if c.rope_truncate:
            low, high = floor(low), ceil(high)
        low, high = max(0.0, low), min(c.rope_dims - 1.0, high)
        t = (p - low) / (high - low if high != low else 0.001)
        t = (1.0 - min(max(t, 0.0), 1.0)) * c.rope_ext_factor    # 1: the frequency is kept, 0: it is divided
        return f * ((1.0 - t) / c.rope_factor + t)
    if c.rope_scaling == PN_ROPE_SCALING_LLAMA3:
        wavelength = 2 * M_PI / f
        if wavelength < c.rope_orig_ctx / c.rope_high_freq:
            return f
        if wavelength > c.rope_orig_ctx / c.rope_low_freq:
            return f / c.rope_factor
        t = (c.rope_orig_ctx / wavelength - c.rope_low_freq) / (c.rope_high_freq - c.rope_low_freq)
        return (1.0 - t) * f / c.rope_factor + t * f
    return f


cdef double rope_attention_factor(pn_rope_scaling scaling, double factor, int orig_ctx) noexcept nogil:
    if factor <= 1:
        return 1.0
    if scaling == PN_ROPE_SCALING_YARN:
        return 0.1 * log(factor) + 1.0
    if scaling == PN_ROPE_SCALING_LONGROPE:
        return sqrt(1.0 + log(factor) / log(orig_ctx))
    return 1.0


cdef int rope_init(pn_rope *r, const pn_config *c, const float *factors) except -1:
    cdef int p
    memset(r, 0, sizeof(pn_rope))
    r.n_pair = c.rope_dims // 2
    r.factor = c.rope_attn_factor
    r.freq = <double *>malloc((r.n_pair + 1) * sizeof(double))
    if r.freq == NULL:
        raise MemoryError("no memory for the rotation's frequencies")
    for p in range(r.n_pair):
        r.freq[p] = scaled_frequency(c, p, pow(c.rope_base, -2.0 * p / c.rope_dims))
        if factors != NULL:
            r.freq[p] /= factors[p]
    return 0


cdef void rope_free(pn_rope *r) noexcept nogil:
    free(r.freq)
    r.freq = NULL


cdef inline void cos_sin(const pn_rope *r, int p, int pos, float *cs) noexcept nogil:
    cdef double angle = pos * r.freq[p]
    cs[2 * p] = <float>(cos(angle) * r.factor)
    cs[2 * p + 1] = <float>(sin(angle) * r.factor)


cdef void rope_angles(const pn_rope *r, int pos, float *cs) noexcept nogil:
    cdef int p
    for p in range(r.n_pair):
        cos_sin(r, p, pos, cs)


cdef void mrope_angles(const pn_rope *r, const int *sections, const int *pos, float *cs) noexcept nogil:
    cdef int p, axis
    for p in range(r.n_pair):
        axis = p % 3
        if axis != 0 and p >= 3 * sections[axis]:
            axis = 0
        cos_sin(r, p, pos[axis], cs)


SCALINGS = {"none": PN_ROPE_SCALING_NONE, "linear": PN_ROPE_SCALING_LINEAR, "yarn": PN_ROPE_SCALING_YARN,
            "longrope": PN_ROPE_SCALING_LONGROPE, "llama3": PN_ROPE_SCALING_LLAMA3}


def rope_table(int dims, double base, str scaling="none", double factor=1.0, int orig_ctx=2048, attn_factor=None,
               double ext_factor=1.0, double beta_fast=32.0, double beta_slow=1.0, double low_freq=1.0,
               double high_freq=4.0, factors=None,
               bint truncate=True):
    """Frequencies (dims / 2,) float64 in radians per position, and the multiplier of cos and sin, of a configuration.

    Fields as in pn_config; factors are the divisors that a file may carry per pair, attn_factor None is what the
    scaling implies.
    """
    cdef pn_config c
    cdef pn_rope r
    cdef float[::1] divisors
    memset(&c, 0, sizeof(c))
    c.rope_dims = dims
    c.rope_base = base
    c.rope_scaling = SCALINGS[scaling]
    c.rope_factor = factor
    c.rope_orig_ctx = orig_ctx
    c.rope_attn_factor = rope_attention_factor(c.rope_scaling, factor, orig_ctx) if attn_factor is None else attn_factor
    c.rope_ext_factor = ext_factor
    c.rope_beta_fast = beta_fast
    c.rope_beta_slow = beta_slow
    c.rope_truncate = truncate
    c.rope_low_freq = low_freq
    c.rope_high_freq = high_freq
    if factors is not None:
        divisors = np.ascontiguousarray(factors, np.float32)
        if divisors.shape[0] != dims // 2:
            raise ValueError(f"factors has {divisors.shape[0]} entries, not {dims // 2}")
    rope_init(&r, &c, &divisors[0] if factors is not None else NULL)
    table = np.array([r.freq[p] for p in range(r.n_pair)])
    rope_free(&r)
    return table, float(r.factor)


def mrope_table(int dims, double base, sections, pos):
    """(dims / 2, 2) float32 cos and sin of interleaved M-RoPE at pos = (text, row, column)."""
    cdef pn_config c
    cdef pn_rope r
    cdef int[3] axes = sections
    cdef int[3] at = pos
    cdef float[:, ::1] cs = np.empty((dims // 2, 2), np.float32)
    memset(&c, 0, sizeof(c))
    c.rope_dims = dims
    c.rope_base = base
    c.rope_attn_factor = 1.0
    rope_init(&r, &c, NULL)
    if r.n_pair > 0:
        mrope_angles(&r, axes, at, &cs[0, 0])
    rope_free(&r)
    return np.asarray(cs)
