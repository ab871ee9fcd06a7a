# From the tensors of a file to matrices and vectors, checked for shape and type.
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.load.source cimport Source

# GIL. Fills m from tensor `name` of shape (rows, cols); 1 when it is there, 0 when it is absent and optional.
# ValueError naming the tensor when it is missing, has another shape, or a type that no kernel of this build multiplies.
cdef int matrix_load(pn_matrix *m, Source f, str name, int rows, int cols, bint optional) except -1
# GIL. The same for a stack of n matrices (n, rows, cols): m is the first one, *step the bytes from one to the next.
cdef int matrix_stack_load(pn_matrix *m, size_t *step, Source f, str name, int n, int rows, int cols,
                           bint optional) except -1
# GIL. True when the file has a tensor of that name.
cdef bint tensor_present(Source f, str name)
# GIL. (n,) f32 values of a one-dimensional tensor: borrowed from the mapping when it holds aligned f32, else converted
# into memory of f.owned. NULL when absent and optional; ValueError as above.
cdef const float *vector_load(Source f, str name, int n, bint optional) except? NULL
# GIL. The same of a (rows, cols) tensor, or (rows, 1, cols).
cdef const float *table_load(Source f, str name, int rows, int cols, bint optional) except? NULL
