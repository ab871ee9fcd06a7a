"""The RWKV and int8-row functions of every kernel level, for tests: thin, with the length checks that C lacks.

Arrays are C-contiguous float32 unless said otherwise.
"""
from libc.stdint cimport int16_t, uint8_t
from libc.string cimport memset

import numpy as np

from pantheon._core.kernels.table cimport (
    PN_ACT_WIDE, PN_RWKV_HEAD, pn_act, pn_kernels, pn_kernels_level, pn_rwkv7_step,
)


def elementwise(str level, str name, const float[::1] x):
    """"tanh", "sigmoid" or "relu_sqr" of x, as a new array."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef float[::1] y = np.array(x, np.float32)
    cdef int n = <int> x.shape[0]
    if n == 0:
        return np.asarray(y)
    if name == "tanh":
        k.tanh(&x[0], n, &y[0])
    elif name == "sigmoid":
        k.sigmoid(&x[0], n, &y[0])
    else:
        k.relu_sqr(&y[0], n)
    return np.asarray(y)


def lerp(str level, const float[::1] a, const float[::1] b, const float[::1] t):
    """a + (b - a) * t, as a new array."""
    cdef float[::1] y = np.empty(a.shape[0], np.float32)
    if b.shape[0] != a.shape[0] or t.shape[0] != a.shape[0] or a.shape[0] == 0:
        raise ValueError("arrays of one length above 0 are needed")
    pn_kernels_level(level).lerp(&a[0], &b[0], &t[0], <int> a.shape[0], &y[0])
    return np.asarray(y)


def head(str level, dict arrays, float[:, ::1] state):
    """One step of one head: arrays of (64,) by the names of pn_rwkv7_step; mix, v_first and v0 may be absent together.

    state (64 keys, 64 values) is updated; returns (y, k_out, v_out).
    """
    cdef pn_rwkv7_step p
    cdef float[::1] y = np.empty(PN_RWKV_HEAD, np.float32)
    cdef float[::1] k = np.empty(PN_RWKV_HEAD, np.float32)
    cdef float[::1] v = np.empty(PN_RWKV_HEAD, np.float32)
    cdef const float[::1] view
    cdef const float *at[16]
    cdef int i
    names = ("r", "k", "v", "w", "a", "g", "mix", "v_first", "w0", "a0", "v0", "k_k", "k_a", "r_k", "ln_w", "ln_b")
    if state.shape[0] != PN_RWKV_HEAD or state.shape[1] != PN_RWKV_HEAD:
        raise ValueError("state is not (64, 64)")
    for i in range(16):
        at[i] = NULL
        if names[i] in arrays:
            view = arrays[names[i]]
            if view.shape[0] != PN_RWKV_HEAD:
                raise ValueError(f"{names[i]} has {view.shape[0]} elements, not 64")
            at[i] = &view[0]
        elif names[i] not in ("mix", "v_first", "v0") or "mix" in arrays:
            raise ValueError(f"{names[i]} is missing")
    p.r, p.k, p.v, p.w, p.a, p.g = at[0], at[1], at[2], at[3], at[4], at[5]
    p.mix, p.v_first, p.w0, p.a0, p.v0 = at[6], at[7], at[8], at[9], at[10]
    p.k_k, p.k_a, p.r_k, p.ln_w, p.ln_b = at[11], at[12], at[13], at[14], at[15]
    p.state = &state[0, 0]
    p.k_out, p.v_out, p.y = &k[0], &v[0], &y[0]
    pn_kernels_level(level).rwkv7_head(&p)
    return np.asarray(y), np.asarray(k), np.asarray(v)


def loss(str level, const float[:, ::1] state, const float[::1] k, const float[::1] v):
    """Squared error of restoring v from state (64 keys, 64 values) and k, summed."""
    if state.shape[0] != 64 or state.shape[1] != 64 or k.shape[0] != 64 or v.shape[0] != 64:
        raise ValueError("a head of 64 is needed")
    return pn_kernels_level(level).rwkv7_loss(&state[0, 0], &k[0], &v[0])


def quantize_rows(str level, const float[:, ::1] x):
    """(rows, cols / 32 * 36) bytes of int8 rows: per block of 32 a float32 scale and the codes."""
    cdef uint8_t[:, ::1] out = np.zeros((x.shape[0], x.shape[1] // 32 * 36), np.uint8)
    cdef int r
    if x.shape[1] % 32 or x.shape[1] == 0:
        raise ValueError(f"rows of {x.shape[1]} are not blocks of 32")
    for r in range(x.shape[0]):
        pn_kernels_level(level).group8_quantize(&x[r, 0], <int> x.shape[1], &out[r, 0])
    return np.asarray(out)


def dequantize_rows(str level, const uint8_t[:, ::1] rows):
    """(rows, cols) float32 of int8 rows."""
    cdef float[:, ::1] out = np.empty((rows.shape[0], rows.shape[1] // 36 * 32), np.float32)
    cdef int r
    for r in range(rows.shape[0]):
        pn_kernels_level(level).group8.dequant(&rows[r, 0], &out[r, 0], out.shape[1])
    return np.asarray(out)


def quantize_input(str level, const float[::1] x):
    """int16 codes (n,) of an input and their float32 scales (n / 32,)."""
    cdef int n = <int> x.shape[0]
    cdef int16_t[::1] wide = np.empty(n, np.int16)
    cdef float[::1] d = np.empty(n // 32, np.float32)
    cdef pn_act act
    if n == 0 or n % 32:
        raise ValueError(f"{n} elements are not blocks of 32")
    memset(&act, 0, sizeof(act))
    act.n, act.n_tok = n, 1
    act.f, act.wide, act.d = &x[0], &wide[0], &d[0]
    pn_kernels_level(level).quantize[<int> PN_ACT_WIDE](&act, 0)
    return np.asarray(wide), np.asarray(d)


def rows_product(str level, const uint8_t[:, ::1] rows, const float[::1] x):
    """(rows,) products with a vector, eight rows at a time and the rest singly."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef int n = <int> x.shape[0], r = 0
    cdef float[::1] out = np.full(rows.shape[0], np.nan, np.float32)
    cdef int16_t[::1] wide
    cdef float[::1] d
    cdef pn_act act
    if rows.shape[1] != n // 32 * 36:
        raise ValueError(f"rows of {rows.shape[1]} bytes do not fit {n} elements")
    wide, d = quantize_input(level, x)
    memset(&act, 0, sizeof(act))
    act.n, act.n_tok = n, 1
    act.f, act.wide, act.d = &x[0], &wide[0], &d[0]
    while r + 8 <= rows.shape[0]:
        k.group8.dot8(&rows[r, 0], rows.shape[1], &act, 0, &out[r], 1)
        r += 8
    while r < rows.shape[0]:
        k.group8.dot1(&rows[r, 0], &act, 0, &out[r])
        r += 1
    return np.asarray(out)
