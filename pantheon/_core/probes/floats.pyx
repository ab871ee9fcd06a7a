"""The float and attention functions of every kernel level, for tests: thin, with the length checks that C lacks.

Arrays are C-contiguous float32 unless said otherwise and are changed in place where the C function does so.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t
from libc.string cimport memset

import numpy as np

from pantheon._core.kernels.table cimport (
    PN_ACT_F32, PN_ACT_Q32, PN_ACT_Q256, PN_ATTN_TILE, PN_KVK_COUNT, pn_act, pn_attn_rows, pn_kernels, pn_kernels_level,
    pn_kv_ops,
)

cdef extern from "exp.h" nogil:
    float pn_exp(float x)

cdef extern from "half.h" nogil:
    int pn_f32_to_f16(float x)

cdef extern from "bits.h" nogil:
    float pn_f16_to_f32(int h)


def exp(const float[::1] x):
    """The scalar exponential of every element (at most 0), as a new array."""
    cdef float[::1] y = np.empty(x.shape[0], np.float32)
    cdef Py_ssize_t i
    for i in range(x.shape[0]):
        y[i] = pn_exp(x[i])
    return np.asarray(y)


def to_half(const float[::1] x):
    """Scalar conversion to half precision: uint16 bits."""
    return np.array([pn_f32_to_f16(x[i]) for i in range(x.shape[0])], np.uint16)


def from_half(const unsigned short[::1] h):
    """Scalar conversion from half precision bits to float32."""
    return np.array([pn_f16_to_f32(h[i]) for i in range(h.shape[0])], np.float32)


def _same(n, *arrays):
    for array in arrays:
        if array.shape[0] != n:
            raise ValueError(f"{array.shape[0]} elements given, {n} needed")


def quantize(str level, str kind, const float[:, ::1] f):
    """Codes of (n_tok, n) inputs. kind "q32": (q, d, s, bsum); kind "q256": (q, d, sum)."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef int n_tok = <int> f.shape[0], n = <int> f.shape[1], t
    cdef int block = {"q32": 32, "q256": 256}[kind]
    if n == 0 or n_tok == 0 or n % block:
        raise ValueError(f"{n_tok} rows of {n} elements are not rows of blocks of {block}")
    cdef int8_t[:, ::1] q = np.full((n_tok, n), 99, np.int8)
    cdef float[:, ::1] d = np.full((n_tok, n // block), np.nan, np.float32)
    cdef float[:, ::1] s = np.full((n_tok, n // 32), np.nan, np.float32)
    cdef int32_t[:, ::1] bsum = np.full((n_tok, n // 32), 9999, np.int32)
    cdef int16_t[:, ::1] sums = np.full((n_tok, n // 16), 9999, np.int16)
    cdef pn_act x
    memset(&x, 0, sizeof(x))
    x.n = n
    x.n_tok = n_tok
    x.f = &f[0, 0]
    x.q = &q[0, 0]
    x.d = &d[0, 0]
    x.s = &s[0, 0]
    x.bsum = &bsum[0, 0]
    x.sum = &sums[0, 0]
    for t in range(n_tok):
        k.quantize[<int> PN_ACT_F32](&x, t)  # must touch nothing
    for t in range(n_tok):
        k.quantize[<int> (PN_ACT_Q32 if block == 32 else PN_ACT_Q256)](&x, t)
    if block == 32:
        return np.asarray(q), np.asarray(d), np.asarray(s), np.asarray(bsum)
    return np.asarray(q), np.asarray(d), np.asarray(sums)


def rms_norm(str level, const float[::1] x, const float[::1] w, float eps, float[::1] y):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], w, y)
    k.rms_norm(&x[0], &w[0], eps, <int> x.shape[0], &y[0])


def layer_norm(str level, const float[::1] x, const float[::1] w, const float[::1] b, float eps, float[::1] y):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], w, b, y)
    k.layer_norm(&x[0], &w[0], &b[0], eps, <int> x.shape[0], &y[0])


def add(str level, float[::1] x, const float[::1] y):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], y)
    k.add(&x[0], &y[0], <int> x.shape[0])


def scale_add(str level, float[::1] x, const float[::1] y, float a):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(x.shape[0], y)
    k.scale_add(&x[0], &y[0], a, <int> x.shape[0])


def silu_mul(str level, float[::1] gate, const float[::1] up):
    cdef const pn_kernels *k = pn_kernels_level(level)
    _same(gate.shape[0], up)
    k.silu_mul(&gate[0], &up[0], <int> gate.shape[0])


def gelu_tanh(str level, float[::1] x):
    cdef const pn_kernels *k = pn_kernels_level(level)
    k.gelu_tanh(&x[0], <int> x.shape[0])


def softmax(str level, float[::1] x):
    cdef const pn_kernels *k = pn_kernels_level(level)
    k.softmax(&x[0], <int> x.shape[0])


def argmax(str level, const float[::1] x):
    cdef const pn_kernels *k = pn_kernels_level(level)
    return k.argmax(&x[0], <int> x.shape[0])


def attn_finish(str level, float[::1] acc, float s):
    cdef const pn_kernels *k = pn_kernels_level(level)
    k.attn_finish(&acc[0], s, <int> acc.shape[0])


def rope(str level, str kind, float[:, ::1] x, const float[:, ::1] cs):
    """Rotates x (n_head, head_dim) by cs (n_pair, 2); kind "norm" or "neox"."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    if cs.shape[1] != 2 or 2 * cs.shape[0] > x.shape[1]:
        raise ValueError(f"{cs.shape[0]} pairs do not fit a head of {x.shape[1]}")
    if kind == "norm":
        k.rope_norm(&x[0, 0], <int> x.shape[0], <int> x.shape[1], &cs[0, 0], <int> cs.shape[0])
    else:
        k.rope_neox(&x[0, 0], <int> x.shape[0], <int> x.shape[1], &cs[0, 0], <int> cs.shape[0])


cdef const pn_kv_ops *_kv(str level, str kind) except NULL:
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef bytes wanted = kind.encode()
    cdef int i
    for i in range(<int> PN_KVK_COUNT):
        if k.kv[i].name == wanted:
            return &k.kv[i]
    raise ValueError(f"unknown KV type {kind!r}")


def kv_bytes(str level, str kind, int n_ctx, int head_dim):
    """Bytes of the K area and of the V area of one head."""
    cdef const pn_kv_ops *ops = _kv(level, kind)
    return ops.k_bytes(n_ctx, head_dim), ops.v_bytes(n_ctx, head_dim)


def kv_store(str level, str kind, uint8_t[::1] k, uint8_t[::1] v, int pos, const float[::1] xk, const float[::1] xv):
    """Writes position pos of one head into its K and V areas."""
    cdef const pn_kv_ops *ops = _kv(level, kind)
    cdef int dim = <int> xk.shape[0]
    _same(dim, xv)
    if k.shape[0] < <Py_ssize_t> ops.k_bytes(pos + 1, dim) or v.shape[0] < <Py_ssize_t> ops.v_bytes(pos + 1, dim):
        raise ValueError(f"position {pos} is outside the cache")
    ops.store_k(&k[0], pos, dim, &xk[0])
    ops.store_v(&v[0], pos, dim, &xv[0])


def attention(str level, str kind, const uint8_t[::1] k, const uint8_t[::1] v, const float[:, ::1] q, float scale,
              const int[::1] first, const int[::1] last, bint finish=True):
    """Attention of n rows q (n, D) over all their tiles; row r sees positions first[r] to last[r].

    Returns (acc (n, D), m (n,), s (n,)); acc is divided by s unless finish is false.
    """
    cdef const pn_kernels *table = pn_kernels_level(level)
    cdef const pn_kv_ops *ops = _kv(level, kind)
    cdef int n = <int> q.shape[0], head_dim = <int> q.shape[1], tile, r, end = max(last) + 1
    _same(n, first, last)
    if min(first) < 0 or k.shape[0] < <Py_ssize_t> ops.k_bytes(end, head_dim):
        raise ValueError("a row sees positions outside the K area")
    if v.shape[0] < <Py_ssize_t> ops.v_bytes(end, head_dim):
        raise ValueError("a row sees positions outside the V area")
    cdef float[::1] m = np.full(n, -np.inf, np.float32)
    cdef float[::1] s = np.zeros(n, np.float32)
    cdef float[:, ::1] acc = np.zeros((n, head_dim), np.float32)
    cdef pn_attn_rows rows
    rows.n = n
    rows.head_dim = head_dim
    rows.scale = scale
    rows.q = &q[0, 0]
    rows.ldq = <size_t> head_dim
    rows.first = &first[0]
    rows.last = &last[0]
    rows.m = &m[0]
    rows.s = &s[0]
    rows.acc = &acc[0, 0]
    with nogil:
        for tile in range((end + <int> PN_ATTN_TILE - 1) // <int> PN_ATTN_TILE):
            ops.attn_tile(&rows, &k[0], &v[0], tile)
        if finish:
            for r in range(n):
                table.attn_finish(&acc[r, 0], s[r], head_dim)
    return np.asarray(acc), np.asarray(m), np.asarray(s)
