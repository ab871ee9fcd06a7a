# Tensors of an RWKV model by name and expected shape. Names are without the source's prefix, which is "rwkv.", "moba."
# or "", and the same in safetensors and GGUF files. GIL; ValueError naming file and tensor.
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.load.source cimport Source

# (rows, columns) of a matrix, unchecked but for the number of dimensions. `wanted` describes it in the message when it
# is missing.
cdef tuple rwkv_shape(Source f, str name, str wanted)
# n values in whatever shape, as f32: borrowed from the mapping when it holds them aligned, else converted into memory
# of f.owned.
cdef const float *rwkv_vector(Source f, str name, int n) except NULL
# (rows, cols); int8 when `may_quantize` and the file is to be quantised.
cdef pn_matrix rwkv_matrix(Source f, str name, int rows, int cols, bint may_quantize) except *
# One half of a LoRA as (out, in): down (rank, n) or up (n, rank). Files have it as (in, out), which is transposed into
# memory of f.owned, or as (out, in); the shape tells, since a rank is smaller than n. rank 0: any.
cdef pn_matrix rwkv_lora(Source f, str name, int n, int rank, bint down) except *
