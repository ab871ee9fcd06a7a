# GGUF container, versions 2 and 3: metadata and tensor directory of a file or a split set, as views into the mapping.
#
# Every length, offset and count of the file is checked before it is used; errors are ValueErrors that name the file and
# the byte offset, key or tensor. Metadata lives in the first shard; tensors are the union of all shards.
from libc.stdint cimport int64_t

from pantheon._core.files.gguf_file cimport gguf_file, gguf_kv
from pantheon._core.types cimport tm_tensor

# GIL; any shard of a split set may be named; the caller owns the result.
cdef gguf_file *gguf_open(str path) except NULL
cdef void gguf_close(gguf_file *f) noexcept
# nogil; borrowed; NULL when absent.
cdef const gguf_kv *gguf_find(const gguf_file *f, const char *key) noexcept nogil
cdef tm_tensor *gguf_tensor(const gguf_file *f, const char *name) noexcept nogil
# GIL; 1 and *out set when the key is there, 0 and *out untouched when not. Any integer type will do for an integer, any
# number for a float; anything else raises ValueError naming the key. i is the element of a per-layer array (a scalar
# stands for all of them); a list shorter than i + 1 raises.
cdef int gguf_get_int(const gguf_file *f, const char *key, int64_t i, int64_t *out) except -1
cdef int gguf_get_float(const gguf_file *f, const char *key, int64_t i, double *out) except -1
cdef int gguf_get_bool(const gguf_file *f, const char *key, bint *out) except -1
# GIL; str or None. Raises ValueError when the value is no string or no UTF-8.
cdef object gguf_get_str(const gguf_file *f, const char *key)
# GIL; the value as a Python object (int, float, bool, str, list of those); token lists come as bytes. None when absent.
# ValueError when the file was cut short meanwhile.
cdef object gguf_value(const gguf_file *f, const gguf_kv *kv)
