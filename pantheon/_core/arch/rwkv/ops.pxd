# RWKV-X: RWKV-7 blocks, and after every few of them an attention block over remembered tokens. Without attention blocks
# it is plain RWKV-7. Weights come from safetensors without a config: every size is a shape.
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.types cimport pn_load_opts, pn_model, pn_state, tm_tensor

# GIL. Loads RWKV-X or RWKV-7 from safetensors: fills model.config and model.weights. ValueError naming file and tensor.
# opts may be NULL.
cdef int pn_rwkvx_load(pn_model *model, str path, const pn_load_opts *opts) except -1
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_rwkvx_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
# nogil. The registry row.
cdef pn_arch_ops pn_rwkvx_ops() noexcept nogil
# nogil. Path of the World vocabulary that came with an RWKV-X model, borrowed; NULL: none did, or another model.
cdef const char *pn_rwkvx_vocab_path(const pn_model *model) noexcept nogil
# nogil. True where the result of a prompt depends on how it is cut: RWKV-X in memory mode.
cdef bint pn_rwkvx_whole_prompts(const pn_model *model) noexcept nogil
