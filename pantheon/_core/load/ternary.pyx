"""The matrices of ternary safetensors models (see ternary.pxd for the contract).

Packed: byte (r, c) of (ceil(rows / 4), cols) holds in bit pair k the code of row k * ceil(rows / 4) + r, column c; the
weight is code - 1, times or divided by weight_scale, as transformers' AutoBitLinear and BitLinear have it.
"""
import math

from libc.math cimport fabs
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from pantheon._core.files.safetensors cimport ST_U8
from pantheon._core.kernels.table cimport PN_BF16, PN_F16, PN_F32, PN_I8, PN_T2_ROWS, pn_kernels_active
from pantheon._core.layers.matrix cimport owned_calloc, pn_matrix
from pantheon._core.load.config_hf cimport PN_TERNARY_DIVIDE, PN_TERNARY_ONLINE
from pantheon._core.load.source cimport Source, source_name, source_tensor
from pantheon._core.load.tensors cimport matrix_load, vector_load
from pantheon._core.load.ternary_codes cimport ternary_bad_byte, ternary_pack_row
from pantheon._core.types cimport tm_tensor

cdef enum:
    MAX_COLS = 131072                    # so that sums are exact in a float


cdef double weight_scale(Source f, str name) except? -1:
    """What the products are multiplied by."""
    cdef str key = name.replace(".weight", ".weight_scale")
    cdef double value = vector_load(f, key, 1, False)[0]
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{f.path}: tensor {source_name(f, key)} is {value}, not a finite number above 0")
    return 1.0 / value if f.ternary == PN_TERNARY_DIVIDE else value


cdef int borrow_packed(pn_matrix *m, Source f, const tm_tensor *t, str name) except -1:
    cdef int64_t bad
    cdef size_t n = <size_t>t.ne[0] * <size_t>t.ne[1]
    with nogil:
        bad = ternary_bad_byte(<const uint8_t *>t.data, n)
    if bad >= 0:
        raise ValueError(f"{f.path}: tensor {name} holds code 3 in byte {bad}, which is no ternary weight")
    m.data = <const uint8_t *>t.data
    return 0


cdef double mean_magnitude(const pn_matrix *w, float *row) noexcept nogil:
    cdef double total = 0
    cdef int r, c
    for r in range(w.rows):
        w.ops.dequant(w.data + <size_t>r * w.row_bytes, row, w.cols)
        for c in range(w.cols):
            total += fabs(row[c])
    return total / (<double>w.rows * w.cols)


cdef int pack_floats(pn_matrix *m, Source f, const pn_matrix *w, float s, bint exact, float *row, str name) except -1:
    """Packs float weights w, times s, into memory that dies with the model."""
    cdef int groups = (w.rows + 3) // 4, r, status
    cdef uint8_t *packed = <uint8_t *>owned_calloc(f.owned, <size_t>groups * w.cols)
    for r in range(w.rows):
        with nogil:
            w.ops.dequant(w.data + <size_t>r * w.row_bytes, row, w.cols)
            status = ternary_pack_row(row, s, exact, w.cols, 2 * (r // groups), packed + <size_t>(r % groups) * w.cols)
        if status != 0:
            raise ValueError(f"{f.path}: tensor {name} holds weights in row {r} that are not "
                             + ("-1, 0 or 1" if exact else "finite"))
    m.data = packed
    return 0


cdef int ternary_load(pn_matrix *m, Source f, str name, int rows, int cols) except -1:
    cdef tm_tensor *t = source_tensor(f, name)
    cdef str theirs = source_name(f, name)
    cdef pn_matrix w
    cdef double mean
    cdef float *row
    if cols > MAX_COLS:
        raise ValueError(f"{f.path}: tensor {theirs} has {cols} columns, more than the {<int>MAX_COLS} of a ternary "
                         "one")
    memset(m, 0, sizeof(pn_matrix))
    if t != NULL and (t.type == ST_U8 or t.type == <int>PN_I8):
        if t.ne[0] != cols or t.ne[1] != (rows + 3) // 4 or t.ne[2] != 1 or t.ne[3] != 1:
            raise ValueError(f"{f.path}: tensor {theirs} has shape ({t.ne[1]}, {t.ne[0]}), expected the packed "
                             f"({(rows + 3) // 4}, {cols})")
        if f.ternary == PN_TERNARY_ONLINE:
            raise ValueError(f"{f.path}: tensor {theirs} is packed, but the configuration says that it is not "
                             "quantised")
        borrow_packed(m, f, t, theirs)
        m.scale = weight_scale(f, name)
    else:
        matrix_load(&w, f, name, rows, cols, False)
        if t.type not in (<int>PN_F32, <int>PN_F16, <int>PN_BF16):
            raise ValueError(f"{f.path}: tensor {theirs} has a type that ternary weights cannot come from")
        row = <float *>owned_calloc(f.owned, cols * sizeof(float))
        if f.ternary == PN_TERNARY_ONLINE:
            with nogil:
                mean = mean_magnitude(&w, row)
            if not math.isfinite(mean):
                raise ValueError(f"{f.path}: tensor {theirs} holds weights that are not finite")
            mean = max(mean, 1e-5)
            pack_floats(m, f, &w, <float>(1 / mean), False, row, theirs)
            m.scale = mean
        else:
            m.scale = weight_scale(f, name)
            pack_floats(m, f, &w, 1.0, True, row, theirs)
    m.ops = &pn_kernels_active().type[<int>PN_T2_ROWS]
    m.row_bytes = cols
    m.rows = rows
    m.cols = cols
    return 0
