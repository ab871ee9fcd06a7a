# RWKV-X: RWKV-7 blocks, and after every few of them an attention block over remembered tokens. Without attention blocks
# it is plain RWKV-7. Weights come from safetensors without a config: every size is a shape.
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_model, pn_state, tm_tensor

# GIL. pn_arch_ops.load.
cdef int pn_rwkvx_load(pn_model *model, const pn_arch_ops *self, Source f) except -1
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_rwkvx_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
# nogil. The registry row.
cdef pn_arch_ops pn_rwkvx_ops() noexcept nogil
