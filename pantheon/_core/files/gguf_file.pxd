# An open GGUF file or split set, as its readers share it: no code.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from pantheon._core.files.mapping cimport pn_mapping
from pantheon._core.files.name_index cimport name_index
from pantheon._core.types cimport ft_tokenizer, tm_tensor

ctypedef enum gguf_value_type:
    GGUF_U8 = 0
    GGUF_I8 = 1
    GGUF_U16 = 2
    GGUF_I16 = 3
    GGUF_U32 = 4
    GGUF_I32 = 5
    GGUF_F32 = 6
    GGUF_BOOL = 7
    GGUF_STRING = 8
    GGUF_ARRAY = 9
    GGUF_U64 = 10
    GGUF_I64 = 11
    GGUF_F64 = 12

cdef struct gguf_kv:
    char *key                            # (key_len + 1,) malloc, owned by who owns the array: names never change
    size_t key_len
    int type                             # gguf_value_type
    int elem_type                        # of an array, else -1
    uint64_t count                       # elements of an array; bytes of a string; 1 otherwise
    const uint8_t *data                  # the value; the bytes of a string, the elements of an array

cdef struct gguf_shard:                  # all zero: empty and valid
    pn_mapping *map                      # owned
    int version
    int64_t n_kv
    gguf_kv *kv                          # (n_kv,) owned; values are in the mapping
    name_index keys                      # owned; items are positions in kv
    int64_t n_tensors
    tm_tensor *tensors                   # (n_tensors,) owned; data points into the mapping

cdef struct gguf_file:
    int version
    int n_maps
    pn_mapping **maps                    # (n_maps,) owned
    int64_t n_kv
    gguf_kv *kv                          # (n_kv,) owned
    int64_t n_tensors
    tm_tensor *tensors                   # (n_tensors,) owned; data points into the mappings
    void *index                          # name and key lookup, private
    ft_tokenizer *tokenizer              # view of tokenizer.ggml.*, owned; NULL when the file has no vocabulary
