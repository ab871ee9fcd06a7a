# The tensor types of a GGUF file: name, elements of a block, bytes of a block. Rows are whole blocks, packed.
from libc.stdint cimport uint32_t


cdef extern from *:
    """
    #ifndef PN_GGML_TYPE_INFO
    #define PN_GGML_TYPE_INFO
    typedef struct ggml_type_info { const char *name; int block; int bytes; int tail; } ggml_type_info;
    #endif
    """
    ctypedef struct ggml_type_info:
        const char *name                 # "Q4_K"
        int block                        # elements
        int bytes                        # bytes of one block
        int tail                         # bytes behind a tensor's rows, before the next one

# nogil; static; NULL when the number stands for no type that this reader knows.
cdef const ggml_type_info *ggml_type(uint32_t number) noexcept nogil
