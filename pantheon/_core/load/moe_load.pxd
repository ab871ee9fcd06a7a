# Weights of a mixture-of-experts feed-forward from a GGUF file.
from pantheon._core.layers.moe_weights cimport pn_moe
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_config

# GIL. Whether the layer whose tensors start with `block` ("blk.0.") is one of experts: a dense one has its ffn_down.
cdef bint moe_layer(const pn_config *c, Source f, str block)
# GIL. The layer's router and experts, checked for presence and shape; ValueError naming the tensor.
cdef int moe_load(pn_moe *moe, const pn_config *c, Source f, str block) except -1
