"""Views of weight matrices and memory that dies with the weights (see matrix.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, realloc

from pantheon._core.kernels.table cimport PN_ACT_F32, PN_F32, pn_kernels_active


cdef pn_matrix matrix_view(const pn_matrix *m, int first, int n) noexcept nogil:
    cdef pn_matrix view = m[0]
    view.data += <size_t>first * m.row_bytes
    view.rows = n
    return view


cdef int matrix_to_f32(pn_matrix *m, pn_owned *owned) except -1:
    cdef float *copy
    cdef int i
    if m.ops.act == PN_ACT_F32:
        return 0
    copy = <float *>owned_calloc(owned, <size_t>m.rows * m.cols * sizeof(float))
    for i in range(m.rows):
        m.ops.dequant(m.data + <size_t>i * m.row_bytes, copy + <size_t>i * m.cols, m.cols)
    m.data = <const uint8_t *>copy
    m.row_bytes = <size_t>m.cols * sizeof(float)
    m.ops = &pn_kernels_active().type[<int>PN_F32]
    return 0


cdef void *owned_calloc(pn_owned *owned, size_t n) except NULL:
    cdef void **items = <void **>realloc(owned.items, (owned.n + 1) * sizeof(void *))
    if items == NULL:
        raise MemoryError("no memory for the list of a model's buffers")
    owned.items = items
    items[owned.n] = calloc(1, n if n > 0 else 1)
    if items[owned.n] == NULL:
        raise MemoryError(f"no memory for a buffer of {n} bytes")
    owned.n += 1
    return items[owned.n - 1]


cdef void owned_free(pn_owned *owned) noexcept nogil:
    cdef int i
    for i in range(owned.n):
        free(owned.items[i])
    free(owned.items)
    owned.items = NULL
    owned.n = 0
