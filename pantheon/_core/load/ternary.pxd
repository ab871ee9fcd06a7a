# The matrices of ternary (BitNet b1.58) safetensors models: packed two-bit codes in place, float weights quantised.
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.load.source cimport Source

# GIL. Fills m from tensor `name` and its weight_scale by the source's rule, which is not PN_TERNARY_NONE. Packed codes
# are borrowed from the mapping; float weights are packed into memory of f.owned. ValueError naming the tensor when it
# is missing, misshapen, holds a code that is none, or has a scale that is not a finite number above 0.
cdef int ternary_load(pn_matrix *m, Source f, str name, int rows, int cols) except -1
