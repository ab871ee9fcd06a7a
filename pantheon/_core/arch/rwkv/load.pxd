# Weights of RWKV-X and RWKV-7 from safetensors, or from a GGUF file with the same tensors.
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.safetensors cimport safetensors_file
from pantheon._core.types cimport pn_load_opts, pn_model

# GIL. Fills model.config (but for arch), model.weights and model.chat_style from one of the two files, which outlives
# the model. OSError, MemoryError, or ValueError naming file and tensor. opts may be NULL.
cdef int rwkvx_load(pn_model *model, str path, const safetensors_file *f, const gguf_file *gguf,
                    const pn_load_opts *opts) except -1
# nogil. Frees model.weights, not the file.
cdef void rwkvx_unload(pn_model *model) noexcept nogil
