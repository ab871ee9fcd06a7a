# Hyper-parameters and weights of Qwen3.5 from GGUF files and Hugging Face folders.
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_config

# GIL. config from the keys of a GGUF file, checked; the model's own sizes and the kind of each layer. ValueError naming
# the key.
cdef int qwen35moe_load_config(pn_qwen35moe_model *w, pn_config *c, Source f) except -1
# GIL. The same from the config.json of a Hugging Face model.
cdef int qwen35moe_hf_config(pn_qwen35moe_model *w, pn_config *c, Source f) except -1
# GIL. Tensors of a checked config; ValueError naming the tensor.
cdef int qwen35moe_load_tensors(pn_qwen35moe_model *w, const pn_config *c, Source f) except -1
