"""Matrices and vectors from the tensors of a file (see tensors.pxd for the contract)."""
import math

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from pantheon._core.kernels.table cimport (
    PN_F32,
    PN_I2_S,
    PN_TQ2_0,
    PN_TYPE_COUNT,
    pn_kernels_active,
    pn_type_ops,
)
from pantheon._core.layers.matrix cimport owned_calloc
from pantheon._core.load.source cimport Source, shape_text, source_name, source_tensor, type_text
from pantheon._core.load.ternary_codes cimport ternary_bad_block
from pantheon._core.types cimport tm_tensor


cdef const pn_type_ops *type_ops(Source f, const tm_tensor *t, str name) except NULL:
    cdef const pn_type_ops *ops
    if 0 <= t.type < PN_TYPE_COUNT:
        ops = &pn_kernels_active().type[t.type]
        if ops.name != NULL and ops.dequant != NULL:
            return ops
    raise ValueError(f"{f.path}: tensor {name} has type {type_text(t)}, which this build cannot multiply")


cdef bint tensor_present(Source f, str name):
    return source_tensor(f, name) != NULL


cdef int check_ternary(pn_matrix *m, Source f, const tm_tensor *t, str name) except -1:
    """Ternary types: every code stands for a weight; I2_S has its scale behind the rows."""
    cdef int64_t bad
    cdef size_t n_blocks = <size_t>t.ne[2] * <size_t>t.ne[1] * <size_t>(t.ne[0] // m.ops.block)
    with nogil:
        bad = ternary_bad_block(m.data, n_blocks, m.ops.block_bytes, 32 if t.type == <int>PN_I2_S else 64)
    if bad >= 0:
        raise ValueError(f"{f.path}: tensor {name} holds code 3 in block {bad}, which is no ternary weight")
    if t.type == <int>PN_I2_S:
        memcpy(&m.scale, m.data + <size_t>t.ne[2] * t.nb[2], sizeof(float))
        if not (math.isfinite(m.scale) and m.scale > 0):
            raise ValueError(f"{f.path}: tensor {name} has the scale {m.scale}, not a finite number above 0")
        if m.cols > 131072:
            raise ValueError(f"{f.path}: tensor {name} has {m.cols} columns, too many for a ternary one")
    return 0


cdef int stack_load(pn_matrix *m, size_t *step, Source f, str name, int n, int rows, int cols,
                    str shape, bint optional) except -1:
    cdef tm_tensor *t = source_tensor(f, name)
    memset(m, 0, sizeof(pn_matrix))
    if t == NULL and optional:
        return 0
    name = source_name(f, name)
    if t == NULL:
        raise ValueError(f"{f.path}: tensor {name} of shape {shape} is missing")
    if t.ne[0] != cols or t.ne[1] != rows or t.ne[2] != n or t.ne[3] != 1:
        raise ValueError(f"{f.path}: tensor {name} has shape {shape_text(t)}, expected {shape}")
    m.ops = type_ops(f, t, name)
    if m.ops.dot8 == NULL:
        raise ValueError(f"{f.path}: tensor {name} has type {m.ops.name.decode()}, which this build cannot multiply")
    m.data = <const uint8_t *>t.data
    m.row_bytes = t.nb[1]
    m.rows = rows
    m.cols = cols
    step[0] = t.nb[2]
    if t.type == <int>PN_I2_S or t.type == <int>PN_TQ2_0:
        check_ternary(m, f, t, name)
    return 1


cdef int matrix_load(pn_matrix *m, Source f, str name, int rows, int cols, bint optional) except -1:
    cdef size_t step
    return stack_load(m, &step, f, name, 1, rows, cols, f"({rows}, {cols})", optional)


cdef int matrix_stack_load(pn_matrix *m, size_t *step, Source f, str name, int n, int rows,
                           int cols, bint optional) except -1:
    return stack_load(m, step, f, name, n, rows, cols, f"({n}, {rows}, {cols})", optional)


cdef const float *values_load(Source f, str name, int rows, int cols, str shape, bint optional) except? NULL:
    cdef tm_tensor *t = source_tensor(f, name)
    cdef const pn_type_ops *ops
    cdef float *copy
    cdef int r
    if t == NULL and optional:
        return NULL
    name = source_name(f, name)
    if t == NULL:
        raise ValueError(f"{f.path}: tensor {name} of shape {shape} is missing")
    if (t.ne[0] != cols or t.ne[1] * t.ne[2] != rows or t.ne[1] > 1 and t.ne[2] > 1 or t.ne[3] != 1):
        raise ValueError(f"{f.path}: tensor {name} has shape {shape_text(t)}, expected {shape}")
    if t.type == <int>PN_F32 and <size_t>t.data % sizeof(float) == 0:
        return <const float *>t.data
    ops = type_ops(f, t, name)
    copy = <float *>owned_calloc(f.owned, <size_t>rows * cols * sizeof(float))
    for r in range(rows):
        ops.dequant(<const uint8_t *>t.data + r * t.nb[1], copy + <size_t>r * cols, cols)
    return copy


cdef const float *vector_load(Source f, str name, int n, bint optional) except? NULL:
    return values_load(f, name, 1, n, f"({n},)", optional)


cdef const float *table_load(Source f, str name, int rows, int cols, bint optional) except? NULL:
    return values_load(f, name, rows, cols, f"({rows}, {cols})", optional)
