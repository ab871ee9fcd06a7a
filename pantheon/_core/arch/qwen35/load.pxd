# Hyper-parameters and weights of Qwen3.5 from GGUF files and Hugging Face folders.
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.load.source cimport pn_source
from pantheon._core.types cimport pn_config

# GIL. config from the keys of `arch`, checked; the model's own sizes and the kind of each layer. ValueError naming the
# key.
cdef int qwen35moe_load_config(pn_qwen35moe_model *w, pn_config *c, const gguf_file *f, str arch, str path) except -1
# GIL. The same from a text model's config.json (standard_config).
cdef int qwen35moe_hf_config(pn_qwen35moe_model *w, pn_config *c, dict config, str path) except -1
# GIL. Tensors of a checked config; ValueError naming the tensor.
cdef int qwen35moe_load_tensors(pn_qwen35moe_model *w, const pn_config *c, const pn_source *f, str path) except -1
