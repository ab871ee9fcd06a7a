"""The kernel table in force, and a view of every level for tests.

The level is chosen once, at import: the highest one that the processor and the system support, or the one named by the
environment variable PANTHEON_CPU. An unknown or unsupported name there is an error of everything that would compute,
loading a model first of all: not of the import, which asking for help or for the version needs too.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t
from libc.string cimport memset

import numpy as np

cdef extern from "kernels.h" nogil:
    ctypedef struct pn_level:
        const char *name
        int supported

    const pn_level *pn_kernels_levels()
    const pn_kernels *pn_kernels_get(const char *level)
    const pn_kernels *pn_kernels_best()

cdef extern from "cpu.h" nogil:
    enum:
        PN_CPU_FEATURES
    uint32_t pn_cpu_features()
    const char *pn_cpu_feature_name(int i)

cdef const pn_kernels *_active = pn_kernels_best()
cdef str _refused = None                 # why the level that PANTHEON_CPU names is not in force

cdef const pn_kernels *pn_kernels_active() noexcept nogil:
    return _active

cdef int pn_kernels_check() except -1:
    if _refused is not None:
        raise ValueError(_refused)
    return 0

cdef const pn_kernels *pn_kernels_level(str level) except NULL:
    cdef bytes name = level.encode()
    cdef const pn_kernels *k = pn_kernels_get(name)
    if k == NULL:
        raise ValueError(f"no kernel level {level!r}: this machine has {', '.join(levels_supported())}")
    return k


def levels_built():
    """Names of the levels of this build, lowest first."""
    cdef const pn_level *level = pn_kernels_levels()
    names = []
    while level.name != NULL:
        names.append(level.name.decode())
        level += 1
    return names


def levels_supported():
    """Names of the levels that this machine can run, lowest first."""
    cdef bytes name
    names = []
    for built in levels_built():
        name = built.encode()
        if pn_kernels_get(name) != NULL:
            names.append(built)
    return names


def cpu_info():
    """What the kernels found and chose.

    Returns a dict: ``level`` in force, ``levels_supported`` and ``levels_built`` (lowest first), ``features`` of the
    processor that its system supports, and ``types``, a dict from weight type to the level its products come from.
    ValueError: PANTHEON_CPU names a level that this machine cannot run.
    """
    pn_kernels_check()
    cdef uint32_t features = pn_cpu_features()
    cdef int i
    types = {}
    for i in range(<int> PN_TYPE_COUNT):
        if _active.type[i].name != NULL:
            types[_active.type[i].name.decode()] = _active.type[i].level.decode()
    return {
        "level": _active.level.decode(),
        "levels_supported": levels_supported(),
        "levels_built": levels_built(),
        "features": [pn_cpu_feature_name(i).decode() for i in range(PN_CPU_FEATURES) if features >> i & 1],
        "types": types,
    }


cdef const pn_type_ops *_type_ops(str level, str type_name) except NULL:
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef bytes wanted = type_name.encode()
    cdef int i
    for i in range(<int> PN_TYPE_COUNT):
        if k.type[i].name != NULL and k.type[i].name == wanted:
            return &k.type[i]
    raise ValueError(f"unknown weight type {type_name!r}")


def type_info(str type_name, str level="ref"):
    """``{"block", "block_bytes", "act", "level", "has_tile"}`` of a weight type at a level.

    block and block_bytes are elements and bytes of a block; act is the input of a product: "f32", "q32", "q256" or
    "row".
    """
    cdef const pn_type_ops *ops = _type_ops(level, type_name)
    return {
        "block": ops.block,
        "block_bytes": ops.block_bytes,
        "act": ("f32", "q32", "q256", "row")[ops.act],
        "level": ops.level.decode(),
        "has_tile": ops.tile != NULL,
    }


def dequantize(str level, str type_name, bytes row, int64_t n):
    """n elements of one row as float32 (n,). ValueError: ``row`` is not exactly that many elements."""
    cdef const pn_type_ops *ops = _type_ops(level, type_name)
    if n < 0 or n % ops.block or len(row) != n // ops.block * ops.block_bytes:
        raise ValueError(f"{len(row)} bytes are not {n} elements of {type_name}")
    cdef float[::1] out = np.empty(max(n, 1), np.float32)
    ops.dequant(<const uint8_t *> PyBytes_AS_STRING(row), &out[0], n)
    return np.asarray(out)[:n]


cdef enum:
    TOKEN = 2  # which of the input vectors matvec uses


def matvec(str level, str type_name, const uint8_t[:, ::1] rows, int n, act):
    """Products of weight rows with one input vector, by dot8 and by dot1.

    rows is (n_rows, row_bytes) uint8, n_rows a multiple of 8; act is a dict of the pn_act arrays that the type reads:
    "f" (n,) float32, "q" (n,) int8, "d" float32, "s" float32, "bsum" int32, "sum" int16. The vector becomes the last of
    three, so that a product which looks at the wrong one is wrong. The rows are read where they are.
    Returns two float32 arrays (n_rows,): dot8 with the rows r, r + g, ... of a group (g = n_rows / 8), and dot1.
    """
    cdef const pn_type_ops *ops = _type_ops(level, type_name)
    cdef Py_ssize_t n_rows = rows.shape[0], stride = rows.shape[1], g, r
    if n_rows == 0 or n_rows % 8:
        raise ValueError(f"{n_rows} rows: a positive multiple of 8 is needed")
    if n <= 0 or n % ops.block or stride != n // ops.block * ops.block_bytes:
        raise ValueError(f"rows of {stride} bytes do not hold {n} elements of {type_name}")
    cdef pn_act x
    memset(&x, 0, sizeof(x))
    x.n = n
    x.n_tok = TOKEN + 1
    cdef const float[::1] f
    cdef int8_t[::1] q
    cdef float[::1] d
    cdef float[::1] s
    cdef int32_t[::1] bsum
    cdef int16_t[::1] sums
    if ops.act == PN_ACT_F32:
        f = _exact(act["f"], np.float32, n)
        x.f = &f[0]
    else:
        q = _exact(act["q"], np.int8, n)
        d = _exact(act["d"], np.float32, n // (32 if ops.act == PN_ACT_Q32 else 256))
        x.q = &q[0]
        x.d = &d[0]
        if ops.act == PN_ACT_Q32:
            s = _exact(act["s"], np.float32, n // 32)
            bsum = _exact(act["bsum"], np.int32, n // 32)
            x.s = &s[0]
            x.bsum = &bsum[0]
        else:
            sums = _exact(act["sum"], np.int16, n // 16)
            x.sum = &sums[0]

    cdef float[::1] by8 = np.full(n_rows, np.nan, np.float32)
    cdef float[::1] by1 = np.full(n_rows, np.nan, np.float32)
    g = n_rows // 8
    with nogil:
        for r in range(g):
            ops.dot8(&rows[0, 0] + r * stride, g * stride, &x, TOKEN, &by8[r], g)
        for r in range(n_rows):
            ops.dot1(&rows[0, 0] + r * stride, &x, TOKEN, &by1[r])
    return np.asarray(by8), np.asarray(by1)


def _exact(array, dtype, n):
    """array (n,) behind TOKEN rows of ones, the whole 64-byte aligned as the engine's own arrays are."""
    array = np.asarray(array)
    if array.dtype != dtype or array.shape != (n,):
        raise ValueError(f"{array.dtype} {array.shape} given, {np.dtype(dtype)} ({n},) needed")
    nbytes = (TOKEN + 1) * array.nbytes
    buffer = np.empty(nbytes + 63, np.uint8)
    start = -buffer.ctypes.data % 64
    out = buffer[start:start + nbytes].view(dtype)
    out[:] = 1
    out[TOKEN * n:] = array
    return out


def _choose():
    global _active, _refused
    pinned = os.environ.get("PANTHEON_CPU", "")
    if not pinned:
        return
    try:
        _active = pn_kernels_level(pinned)
    except ValueError:
        _refused = f"PANTHEON_CPU={pinned}: this machine can run {', '.join(levels_supported())}"


_choose()
