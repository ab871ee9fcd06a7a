# A weight matrix as the layers see it, and the memory that a model's weights own.
from libc.stdint cimport uint8_t

from pantheon._core.kernels.table cimport pn_type_ops

cdef struct pn_matrix:                   # rows of a weight, a view into the mapping
    const uint8_t *data                  # row 0
    size_t row_bytes
    int rows                             # output features
    int cols                             # input features
    const pn_type_ops *ops
    float scale                          # multiplies the products; 0: nothing does

cdef struct pn_owned:                    # memory that dies with the weights
    void **items                         # (n,) malloc'ed blocks
    int n

# nogil. Rows [first, first + n) of a matrix.
cdef pn_matrix matrix_view(const pn_matrix *m, int first, int n) noexcept nogil
# GIL. Where m has a quantised type: an F32 copy of it, which dies with `owned`; MemoryError.
cdef int matrix_to_f32(pn_matrix *m, pn_owned *owned) except -1
# GIL. n zeroed bytes that die with `owned`; MemoryError.
cdef void *owned_calloc(pn_owned *owned, size_t n) except NULL
cdef void owned_free(pn_owned *owned) noexcept nogil
