# Qwen3.5: Gated DeltaNet layers with a gated attention layer in between, dense (`qwen35`) or with experts
# (`qwen35moe`).
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.types cimport PN_MODEL_MAX_DIES, pn_arch, pn_config, pn_model, pn_state, tm_tensor

# GIL; the caller owns the result. Maps the weights of a file: config gets its hyper-parameters, weights are views.
# ValueError naming the tensor or key.
cdef pn_qwen35moe_model *pn_qwen35moe_load(gguf_file *gguf, pn_config *config) except NULL
cdef void pn_qwen35moe_free(pn_qwen35moe_model *w) noexcept nogil
# nogil. Records the GPU dies (n_dies,) that an upload would use; n_dies is at most PN_MODEL_MAX_DIES.
cdef void pn_qwen35moe_model_set_dies(pn_qwen35moe_model *w, const int *dies, int n_dies) noexcept nogil
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_qwen35moe_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
# nogil. The registry row.
cdef pn_arch_ops pn_qwen35moe_ops(const char *name, pn_arch arch) noexcept nogil
