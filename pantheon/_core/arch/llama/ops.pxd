# The transformer family: Llama 2/3, Mistral, Mixtral, Qwen2, Qwen3 and their mixtures of experts, BitNet b1.58. Phi is
# built from the same parts (phi.pyx).
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_arch, pn_model, pn_rope_kind, pn_state, tm_tensor

# GIL. pn_arch_ops.load of a Hugging Face model.
cdef int pn_llama_load_safetensors(pn_model *model, const pn_arch_ops *self, Source f) except -1
# nogil. The registry row of one architecture of the family.
cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
