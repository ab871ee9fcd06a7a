"""The gated delta rule of every kernel level, for tests: thin, with the length checks that C lacks.

Arrays are C-contiguous float32 and are changed in place where the C function does so.
"""
import numpy as np

from pantheon._core.kernels.table cimport PN_DELTA_COLUMNS, pn_kernels, pn_kernels_level

COLUMNS = PN_DELTA_COLUMNS

cdef enum:
    MAX_TAPS = 16


def _same(n, *arrays):
    for array in arrays:
        if array.shape[0] != n:
            raise ValueError(f"{array.shape[0]} elements given, {n} needed")


def sigmoid_mul(str level, float[::1] x, const float[::1] gate):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], gate)
    k.sigmoid_mul(&x[0], &gate[0], <int>x.shape[0])


def l2_norm(str level, const float[::1] x, float eps, float scale, float[::1] y):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], y)
    k.l2_norm(&x[0], eps, scale, <int>x.shape[0], &y[0])


def conv_silu(str level, const float[:, ::1] w, const float[:, ::1] rows):
    """(n,) result of channels with weights w (n, taps) on the last taps tokens, rows (taps, n)."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef const float *pointers[MAX_TAPS]
    cdef int n = <int>w.shape[0], taps = <int>w.shape[1], j
    _same(taps, rows)
    if rows.shape[1] != n or not 1 <= taps <= MAX_TAPS:
        raise ValueError(f"rows of {rows.shape[1]} channels, weights of {n} with {taps} taps")
    cdef float[::1] y = np.full(n, np.nan, np.float32)
    for j in range(taps):
        pointers[j] = &rows[j, 0]
    k.conv_silu(&w[0, 0], pointers, taps, n, &y[0])
    return np.asarray(y)


def delta_gates(str level, const float[::1] alpha, const float[::1] beta, const float[::1] a, const float[::1] dt):
    """(decay, rate) of every head."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef int n = <int>alpha.shape[0]
    _same(n, beta, a, dt)
    cdef float[::1] decay = np.full(n, np.nan, np.float32)
    cdef float[::1] rate = np.full(n, np.nan, np.float32)
    k.delta_gates(&alpha[0], &beta[0], &a[0], &dt[0], n, &decay[0], &rate[0])
    return np.asarray(decay), np.asarray(rate)


def delta_step(str level, float[:, ::1] state, const float[::1] q, const float[::1] k, const float[::1] v, float decay,
               float rate):
    """(dv,) output of one token of one head; state, the memory of (dk, dv) in groups of columns, is changed."""
    cdef const pn_kernels *table = pn_kernels_level(level)
    _same(state.shape[0], q, k)
    _same(state.shape[1], v)
    cdef float[::1] o = np.full(state.shape[1], np.nan, np.float32)
    table.delta_step(&state[0, 0], &q[0], &k[0], &v[0], decay, rate, <int>state.shape[0], <int>state.shape[1], &o[0])
    return np.asarray(o)
