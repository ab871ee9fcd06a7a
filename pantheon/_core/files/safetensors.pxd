# safetensors container: the tensors of one file or of a sharded set, as views into the mapping.
#
# Every length, offset, shape and name is checked before it is used; errors are ValueErrors that name the file and the
# tensor. Nothing is converted: a tm_tensor's ne[0] is the last dimension of the file's shape, so a (out, in) matrix has
# ne[0] = in. Dimensions beyond four are folded into ne[3].
from libc.stdint cimport int64_t

from pantheon._core.files.mapping cimport pn_mapping
from pantheon._core.types cimport tm_tensor

cdef enum:                               # tm_tensor.type of dtypes that GGUF has no number for
    ST_U8 = 256
    ST_U16 = 257
    ST_U32 = 258
    ST_U64 = 259
    ST_BOOL = 260
    ST_F8_E4M3 = 261
    ST_F8_E5M2 = 262

cdef struct safetensors_file:
    int n_maps
    pn_mapping **maps                    # (n_maps,) owned
    int64_t n_tensors
    tm_tensor *tensors                   # (n_tensors,) owned; data points into the mappings, names are cut at 63 bytes
    char **names                         # (n_tensors,) owned, whole names
    void *index                          # name lookup, private

# GIL; path is a .safetensors file, or the .safetensors.index.json of a sharded set, whose shards lie in its folder. The
# caller owns the result. OSError, MemoryError, or ValueError naming file and tensor.
cdef safetensors_file *safetensors_open(str path) except NULL
cdef void safetensors_close(safetensors_file *f) noexcept
# GIL; a SafetensorsFile over f, which must live as long as owner does.
cdef object safetensors_view(safetensors_file *f, object owner)
# nogil; borrowed; NULL when absent.
cdef tm_tensor *safetensors_tensor(const safetensors_file *f, const char *name) noexcept nogil
