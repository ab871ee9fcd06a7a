# Tensors of an RWKV model by name and expected shape, from safetensors or from a GGUF file that keeps their names.
from libc.stdint cimport int64_t, uint8_t

from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.safetensors cimport safetensors_file
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.types cimport tm_tensor

# Every method raises ValueError naming file and tensor. Names are without the prefix, which is "rwkv.", "moba." or "".
cdef class RwkvTensors:
    cdef const safetensors_file *f       # borrowed; NULL for GGUF
    cdef const gguf_file *gguf           # borrowed; NULL for safetensors
    cdef str path
    cdef str prefix
    cdef pn_owned *owned                 # takes what has to be converted
    cdef bint quantize                   # matrices that may be int8 are made so
    cdef set asked                       # full names of what was found

    # All names in the file, prefix included.
    cdef list names(self)
    cdef tm_tensor *lookup(self, str full_name) except? NULL
    cdef bint has(self, str full_name) except -1
    cdef str full(self, str name)
    # `wanted` describes it in the message when it is missing.
    cdef tm_tensor *find(self, str name, str wanted) except NULL
    cdef tm_tensor *find_floats(self, str name, str wanted) except NULL
    # Raises unless every tensor was asked for; those whose name one of the patterns matches at its start may be there.
    cdef int check_extra(self, list ignored) except -1
    # (rows, columns) of a matrix, unchecked but for the number of dimensions.
    cdef tuple shape2(self, str name, str wanted)
    # n values in whatever shape, as f32: borrowed from the mapping when it holds them aligned, else converted.
    cdef const float *vector(self, str name, int n) except NULL
    # (rows, cols); int8 when `may_quantize` and the file is to be quantised.
    cdef pn_matrix matrix(self, str name, int rows, int cols, bint may_quantize) except *
    # One half of a LoRA as (out, in): down (rank, n) or up (n, rank). Files have it as (in, out), which is transposed
    # into `owned`, or as (out, in); the shape tells, since a rank is smaller than n. rank 0: any.
    cdef pn_matrix lora(self, str name, int n, int rank, bint down) except *
    cdef pn_matrix quantized(self, str name, const pn_matrix *source) except *
    cdef const uint8_t *transposed(self, const uint8_t *x, int64_t rows, int64_t cols, int item) except NULL
