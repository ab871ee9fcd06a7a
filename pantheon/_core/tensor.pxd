# Weights as the forward passes see them: a quantised matrix and the tensors of a file, checked for shape and type.
from libc.stdint cimport uint8_t

from pantheon._core.kernels.table cimport pn_type_ops
from pantheon._core.source cimport pn_source

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

# GIL. Fills m from tensor `name` of shape (rows, cols); 1 when it is there, 0 when it is absent and optional.
# ValueError naming the tensor when it is missing, has another shape, or a type that no kernel of this build multiplies.
cdef int matrix_load(pn_matrix *m, const pn_source *f, str path, str name, int rows, int cols, bint optional) except -1
# GIL. The same for a stack of n matrices (n, rows, cols): m is the first one, *step the bytes from one to the next.
cdef int matrix_stack_load(pn_matrix *m, size_t *step, const pn_source *f, str path, str name, int n, int rows,
                           int cols, bint optional) except -1
# GIL. True when the file has a tensor of that name.
cdef bint tensor_present(const pn_source *f, str name)
# nogil. Rows [first, first + n) of a matrix.
cdef pn_matrix matrix_view(const pn_matrix *m, int first, int n) noexcept nogil
# GIL. (n,) f32 values of a one-dimensional tensor: borrowed from the mapping when it holds aligned f32, else converted
# into memory of `owned`. NULL when absent and optional; ValueError as above.
cdef const float *vector_load(pn_owned *owned, const pn_source *f, str path, str name, int n,
                              bint optional) except? NULL
# GIL. The same of a (rows, cols) tensor, or (rows, 1, cols).
cdef const float *table_load(pn_owned *owned, const pn_source *f, str path, str name, int rows, int cols,
                             bint optional) except? NULL
# GIL. Where m has a quantised type: an F32 copy of it, which dies with `owned`; MemoryError.
cdef int matrix_to_f32(pn_matrix *m, pn_owned *owned) except -1
# GIL. n zeroed bytes that die with `owned`; MemoryError.
cdef void *owned_calloc(pn_owned *owned, size_t n) except NULL
cdef void owned_free(pn_owned *owned) noexcept nogil
