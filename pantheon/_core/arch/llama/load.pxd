# Weights of the dense transformer family from GGUF or safetensors.
from pantheon._core.arch.llama.structs cimport pn_llama_model
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_config

# GIL. Tensors of a validated config, checked for presence and shape; ValueError naming the tensor.
cdef int llama_load_tensors(pn_llama_model *w, const pn_config *c, Source f) except -1
