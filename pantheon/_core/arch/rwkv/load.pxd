# Weights of RWKV-X and RWKV-7 from safetensors, or from a GGUF file with the same tensors.
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_model

# GIL. Fills model.config (but for arch) and model.weights from a source, whose file outlives the model. OSError,
# MemoryError, or ValueError naming file and tensor.
cdef int rwkvx_load(pn_model *model, const pn_arch_ops *self, Source f) except -1
# nogil. Frees model.weights, not the file.
cdef void rwkvx_unload(pn_model *model) noexcept nogil
