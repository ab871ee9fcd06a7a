"""Ternary products of every level from Python, for tests."""
from libc.stdint cimport int8_t, int32_t, uint8_t
from libc.string cimport memset

import numpy as np

from pantheon._core.kernels.table cimport (
    PN_ACT_ROW,
    PN_I2_S,
    PN_T2_ROWS,
    pn_act,
    pn_kernels,
    pn_kernels_level,
    pn_type_ops,
)


def quantize_row(str level, const float[:, ::1] f):
    """Codes (n_tok, n) int8, scales (n_tok,) float32 and sums of codes (n_tok,) int32 of inputs (n_tok, n)."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef int8_t[:, ::1] q = np.full((f.shape[0], f.shape[1]), 99, np.int8)
    cdef float[::1] d = np.full(f.shape[0], np.nan, np.float32)
    cdef int32_t[::1] bsum = np.full(f.shape[0], 9999, np.int32)
    cdef pn_act x
    cdef int t
    memset(&x, 0, sizeof(x))
    x.n = <int>f.shape[1]
    x.n_tok = <int>f.shape[0]
    x.f = &f[0, 0]
    x.q = &q[0, 0]
    x.d = &d[0]
    x.bsum = &bsum[0]
    for t in range(x.n_tok):
        k.quantize[<int>PN_ACT_ROW](&x, t)
    return np.asarray(q), np.asarray(d), np.asarray(bsum)


def sums(str level, str type_name, const uint8_t[:, ::1] rows, const int8_t[:, ::1] codes, int t):
    """Sums of stored rows (n_rows, row_bytes) times token t of codes (n_tok, n), (n_rows, results) float32.

    T2_ROWS: four results a stored row. I2_S: two, by dot1 and by dot8; n_rows is a multiple of 8.
    """
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef bint packed = type_name == "T2_ROWS"
    cdef const pn_type_ops *ops = &k.type[<int>(PN_T2_ROWS if packed else PN_I2_S)]
    cdef int32_t[::1] bsum = np.asarray(codes).sum(axis=1, dtype=np.int32)
    cdef float[:, ::1] out = np.full((rows.shape[0], 4 if packed else 2), np.nan, np.float32)
    cdef Py_ssize_t r
    cdef pn_act x
    if rows.shape[1] * (1 if packed else 4) != codes.shape[1] or (not packed and rows.shape[0] % 8):
        raise ValueError(f"{rows.shape[0]} rows of {rows.shape[1]} bytes do not go with {codes.shape[1]} codes")
    memset(&x, 0, sizeof(x))
    x.n = <int>codes.shape[1]
    x.n_tok = <int>codes.shape[0]
    x.q = <int8_t *>&codes[0, 0]
    x.bsum = &bsum[0]
    for r in range(rows.shape[0]):
        ops.dot1(&rows[r, 0], &x, t, &out[r, 0])
    if not packed:
        for r in range(0, rows.shape[0], 8):
            ops.dot8(&rows[r, 0], <size_t>rows.shape[1], &x, t, &out[r, 1], 2)
    return np.asarray(out)
