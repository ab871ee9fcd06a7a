"""The matrix x matrix path of one weight type at one level, for tests and the micro benchmark.

Runs the stages the engine runs (panel of 16 rows, packed token tiles, tile products) on arrays given from Python. The
engine does not import this module.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uintptr_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import numpy as np

from pantheon._core.kernels.table cimport PN_PANEL, PN_TYPE_COUNT, pn_act, pn_kernels, pn_kernels_level, pn_type_ops


cdef const pn_type_ops *type_ops(str level, str type_name) except NULL:
    """GIL: the type's entry in the level's table. ValueError: no such level or type."""
    cdef const pn_kernels *k = pn_kernels_level(level)
    cdef bytes wanted = type_name.encode()
    cdef int i
    for i in range(<int> PN_TYPE_COUNT):
        if k.type[i].name != NULL and k.type[i].name == wanted:
            return &k.type[i]
    raise ValueError(f"unknown weight type {type_name!r}")


cdef const pn_type_ops *tile_ops(str level, str type_name) except NULL:
    """The same; ValueError also where the level has no tile for the type."""
    cdef const pn_type_ops *ops = type_ops(level, type_name)
    if ops.tile == NULL:
        raise ValueError(f"{type_name} has no tile at level {level}")
    return ops


def aligned_bytes(Py_ssize_t n, int offset=0):
    """An uint8 array of n bytes that begins ``offset`` bytes past a 64-byte boundary and ends where its memory ends."""
    buffer = np.empty(n + 63 + offset, np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    return buffer[start:start + n]


def tile_info(str level, str type_name):
    """``{"tile_tok", "pack"}``: most tokens of a tile, and an id that is equal for types that share packed input."""
    cdef const pn_type_ops *ops = tile_ops(level, type_name)
    return {"tile_tok": ops.tile_tok, "pack": <uintptr_t> <void *> ops.pack_x}


cdef class Activations:
    """Input of a product: keeps the arrays of a pn_act alive.

    f (n_tok, n) float32; q (n_tok, n) int8; d (n_tok, n/32 or n/256) float32; s (n_tok, n/32) float32;
    bsum (n_tok, n/32) int32; sum (n_tok, n/16) int16. Arrays that the type does not read may be None.
    """
    cdef pn_act act
    cdef tuple kept

    def __init__(self, int n, int n_tok, f=None, q=None, d=None, s=None, bsum=None, sum=None):
        memset(&self.act, 0, sizeof(pn_act))
        self.act.n = n
        self.act.n_tok = n_tok
        arrays = []
        for name, array, dtype in (("f", f, np.float32), ("q", q, np.int8), ("d", d, np.float32), ("s", s, np.float32),
                                   ("bsum", bsum, np.int32), ("sum", sum, np.int16)):
            if array is None:
                arrays.append(None)
                continue
            array = np.ascontiguousarray(array)
            if array.dtype != dtype or array.ndim != 2 or array.shape[0] != n_tok:
                raise ValueError(f"{name} is {array.dtype} {array.shape}, {np.dtype(dtype)} ({n_tok}, ...) needed")
            arrays.append(array)
        self.kept = tuple(arrays)
        f, q, d, s, bsum, sum = arrays
        self.act.f = <const float *> address(f, n)
        self.act.q = <int8_t *> address(q, n)
        self.act.d = <float *> address(d, n // 256 if sum is not None else n // 32)
        self.act.s = <float *> address(s, n // 32)
        self.act.bsum = <int32_t *> address(bsum, n // 32)
        self.act.sum = <int16_t *> address(sum, n // 16)


cdef void *address(array, int columns) except? NULL:
    if array is None:
        return NULL
    if array.shape[1] != columns:
        raise ValueError(f"an input array has {array.shape[1]} columns, {columns} needed")
    return <void *> <uintptr_t> array.ctypes.data


cdef size_t unit_offset(const pn_type_ops *ops, int n, int t):
    """Where the packed input of token t begins, t a multiple of pack_tok."""
    return (ops.pack_bytes(n, ops.pack_tok) + 63) // 64 * 64 * (t // ops.pack_tok)


cdef void pack_units(const pn_type_ops *ops, const pn_act *x, int t0, int n_tok, uint8_t *packed) noexcept nogil:
    cdef size_t unit = (ops.pack_bytes(x.n, ops.pack_tok) + 63) // 64 * 64
    cdef int t = 0
    while t < n_tok:
        ops.pack_x(x, t0 + t, min(ops.pack_tok, n_tok - t), packed + unit * <size_t>(t // ops.pack_tok))
        t += ops.pack_tok


cdef int check_rows(const pn_type_ops *ops, const uint8_t[:] w, size_t row_bytes, int n_rows, int n) except -1:
    if n <= 0 or n % ops.block or row_bytes < <size_t> (n // ops.block * ops.block_bytes):
        raise ValueError(f"rows of {row_bytes} bytes do not hold {n} elements")
    if n_rows <= 0 or <size_t> w.shape[0] < (n_rows - 1) * row_bytes + n // ops.block * ops.block_bytes:
        raise ValueError(f"{w.shape[0]} bytes do not hold {n_rows} rows")
    return 0


def matmul(str level, str type_name, const uint8_t[::1] w, size_t row_bytes, int n_rows, int n, Activations x,
           int tile_tok=0):
    """Products of all rows and tokens, float32 (n_tok, n_rows rounded up to the panel of 16).

    w holds n_rows rows, ``row_bytes`` apart, and is read in place. tile_tok: tokens of a tile; 0 is the level's own
    number.
    Every panel, packed tile and output row is followed by bytes that must come back unchanged: RuntimeError if not.
    """
    cdef const pn_type_ops *ops = tile_ops(level, type_name)
    check_rows(ops, w, row_bytes, n_rows, n)
    if x.act.n != n:
        raise ValueError(f"input of {x.act.n} elements, rows of {n}")
    if tile_tok == 0:
        tile_tok = ops.tile_tok
    if not 0 < tile_tok <= ops.tile_tok:
        raise ValueError(f"tile_tok is {tile_tok}: 1 to {ops.tile_tok} is possible")

    cdef int n_tok = x.act.n_tok, t, tokens, r
    cdef int n_panel_rows = (n_rows + PN_PANEL - 1) // PN_PANEL * PN_PANEL
    cdef size_t panel_size = ops.panel_bytes(n), packed_size
    guard = np.arange(64, dtype=np.uint8)
    panel_array = aligned_bytes(panel_size + 64)
    cdef uint8_t[::1] panel = panel_array
    cdef uint8_t[::1] packed
    # one column of guard between output rows: a tile may not write past its 16 rows
    out_array = np.full((n_tok, n_panel_rows + 1), -77, np.float32)
    cdef float[:, ::1] out = out_array
    tiles = []
    for t in range(0, n_tok, tile_tok):
        tokens = min(tile_tok, n_tok - t)
        r = (tokens - 1) // ops.pack_tok * ops.pack_tok
        packed_size = unit_offset(ops, n, r) + ops.pack_bytes(n, tokens - r)
        packed_array = aligned_bytes(packed_size + 64)
        packed_array[packed_size:] = guard
        packed = packed_array
        pack_units(ops, &x.act, t, tokens, &packed[0])
        if not np.array_equal(packed_array[packed_size:], guard):
            raise RuntimeError("pack_x wrote past its bytes")
        tiles.append((t, tokens, packed_array))
    for r in range(0, n_rows, PN_PANEL):
        panel_array[panel_size:] = guard
        ops.unpack(&w[r * row_bytes], row_bytes, min(PN_PANEL, n_rows - r), n, &panel[0])
        if not np.array_equal(panel_array[panel_size:], guard):
            raise RuntimeError("unpack wrote past its bytes")
        for t, tokens, packed_array in tiles:
            packed = packed_array
            ops.tile(&panel[0], &packed[0], n, tokens, &out[t, r], n_panel_rows + 1)
    if not np.all(out_array[:, n_panel_rows] == -77):
        raise RuntimeError("tile wrote past its rows")
    return out_array[:, :n_panel_rows].copy()


def matmul_parts(str level, str type_name, const uint8_t[::1] w, size_t row_bytes, int n_rows, int n, Activations x,
                 int columns, int panels):
    """Products by tile_part: ``columns`` (a multiple of 256) at a time, of so many panels at once; as matmul() else.

    None where the level has no tile_part for the type.
    """
    cdef const pn_type_ops *ops = tile_ops(level, type_name)
    check_rows(ops, w, row_bytes, n_rows, n)
    if x.act.n != n or n_rows % PN_PANEL or columns <= 0 or columns % 256 or panels <= 0:
        raise ValueError(f"{n_rows} rows of {n} elements, input of {x.act.n}, {columns} columns of {panels} panels")
    if ops.tile_part == NULL:
        return None
    cdef int n_tok = x.act.n_tok, t, r, k, p, cols, count, tokens
    cdef uint8_t[::1] packed = aligned_bytes(unit_offset(ops, n, n_tok + ops.pack_tok))
    cdef uint8_t[::1] panel = aligned_bytes(panels * ops.panel_bytes(columns))
    cdef float[:, ::1] out = np.full((n_tok, n_rows), -77, np.float32)
    pack_units(ops, &x.act, 0, n_tok, &packed[0])
    for r in range(0, n_rows, panels * PN_PANEL):
        count = min(panels, (n_rows - r) // PN_PANEL)
        for k in range(0, n, columns):
            cols = min(columns, n - k)
            for p in range(count):
                ops.unpack(&w[(r + p * PN_PANEL) * row_bytes + k // ops.block * ops.block_bytes], row_bytes, PN_PANEL,
                           cols, &panel[p * ops.panel_bytes(cols)])
            for t in range(0, n_tok, ops.tile_tok):
                tokens = min(ops.tile_tok, n_tok - t)
                ops.tile_part(&panel[0], count, &packed[unit_offset(ops, n, t)], n, k, cols, tokens, &out[t, r],
                              n_rows)
    return np.asarray(out)


def vector_products(str level, str type_name, const uint8_t[::1] w, size_t row_bytes, int n_rows, int n, Activations x):
    """The same products by the level's dot1, float32 (n_tok, n_rows)."""
    cdef const pn_type_ops *ops = type_ops(level, type_name)
    check_rows(ops, w, row_bytes, n_rows, n)
    cdef float[:, ::1] out = np.empty((x.act.n_tok, n_rows), np.float32)
    cdef int t, r
    with nogil:
        for t in range(x.act.n_tok):
            for r in range(n_rows):
                ops.dot1(&w[r * row_bytes], &x.act, t, &out[t, r])
    return np.asarray(out)


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + 1e-9 * now.tv_nsec


def measure(str level, str type_name, const uint8_t[::1] w, size_t row_bytes, int n_rows, int n, Activations x,
            int repeats):
    """Times the whole product in this thread: ``{"pack", "unpack", "tile"}``, seconds of one pass.

    Every panel counts with the best of its ``repeats``, so that other processes disturb little. n_rows is a multiple of
    the panel of 16.
    """
    cdef const pn_type_ops *ops = tile_ops(level, type_name)
    check_rows(ops, w, row_bytes, n_rows, n)
    if n_rows % PN_PANEL or x.act.n != n:
        raise ValueError(f"{n_rows} rows of {n} elements with input of {x.act.n}")
    cdef int n_tok = x.act.n_tok, step = ops.tile_tok, t, p
    cdef uint8_t[::1] panel = aligned_bytes(ops.panel_bytes(n))
    cdef size_t tile_bytes = unit_offset(ops, n, step)
    cdef uint8_t[::1] packed = aligned_bytes(tile_bytes * ((n_tok + step - 1) // step))
    cdef float[:, ::1] out = np.zeros((n_tok, n_rows), np.float32)
    cdef double[::1] unpack = np.full(n_rows // PN_PANEL, np.inf)
    cdef double[::1] tile = np.full(n_rows // PN_PANEL, np.inf)
    cdef double pack = float("inf"), begin, mark, end
    for _ in range(repeats):
        with nogil:
            begin = seconds()
            t = 0
            while t < n_tok:
                pack_units(ops, &x.act, t, min(step, n_tok - t), &packed[t // step * tile_bytes])
                t += step
            pack = min(pack, seconds() - begin)
            for p in range(n_rows // PN_PANEL):
                begin = seconds()
                ops.unpack(&w[p * PN_PANEL * row_bytes], row_bytes, PN_PANEL, n, &panel[0])
                mark = seconds()
                t = 0
                while t < n_tok:
                    ops.tile(&panel[0], &packed[t // step * tile_bytes], n, min(step, n_tok - t),
                             &out[t, p * PN_PANEL], n_rows)
                    t += step
                end = seconds()
                unpack[p] = min(unpack[p], mark - begin)
                tile[p] = min(tile[p], end - mark)
    return {"pack": pack, "unpack": float(np.sum(unpack)), "tile": float(np.sum(tile))}
