# One GGUF file: a whole model, or one part of a split set.
from libc.stdint cimport int64_t

from pantheon._core.files.ggml_types cimport ggml_type
from pantheon._core.files.gguf_file cimport gguf_kv, gguf_shard
from pantheon._core.types cimport tm_tensor

# GIL; maps the file, reads and checks its whole directory into *s, which must be all zero. After an error too the
# caller owes s a gguf_shard_free. Tensor names are not yet compared with each other: that is for the whole set.
cdef int gguf_shard_read(str path, gguf_shard *s) except -1
cdef void gguf_shard_free(gguf_shard *s) noexcept nogil
# nogil; an array of n keys and their names; NULL is allowed.
cdef void gguf_kv_free(gguf_kv *kv, int64_t n) noexcept nogil
# nogil; borrowed; NULL when absent.
cdef const gguf_kv *gguf_shard_find(const gguf_shard *s, const char *key) noexcept nogil


cdef inline size_t tensor_bytes(const tm_tensor *t) noexcept nogil:
    return t.nb[3] * <size_t> t.ne[3] + <size_t> ggml_type(t.type).tail
