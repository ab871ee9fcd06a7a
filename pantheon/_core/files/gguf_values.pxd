# Metadata values of a GGUF file as numbers and Python objects. `m` is the mapping that the value lies in.
from libc.stdint cimport int64_t, uint32_t

from pantheon._core.files.gguf_file cimport gguf_kv
from pantheon._core.files.mapping cimport pn_mapping

# GIL; the file's path as str, for messages.
cdef str path_of(const pn_mapping *m)
# GIL; bytes of the file as text for a message: quoted, shortened, never failing.
cdef str quoted(const char *text, size_t length)
# nogil; bytes of one value, 0 for strings, arrays and unknown numbers; name of a value type or NULL.
cdef size_t value_size(uint32_t type) noexcept nogil
cdef const char *value_type_name(uint32_t type) noexcept nogil
# GIL; the value, or ValueError naming file and key. i is the element of a per-layer array; a scalar stands for all.
cdef int kv_int(const pn_mapping *m, const gguf_kv *kv, int64_t i, int64_t *out) except -1
cdef int kv_float(const pn_mapping *m, const gguf_kv *kv, int64_t i, double *out) except -1
cdef int kv_bool(const pn_mapping *m, const gguf_kv *kv, bint *out) except -1
cdef str kv_str(const pn_mapping *m, const gguf_kv *kv)
cdef object kv_object(const pn_mapping *m, const gguf_kv *kv)
