# Layers of the transformer family and their parts, by all ranks of a run together. phi.pyx builds its layer from the
# parts.
from pantheon._core.arch.llama.structs cimport pn_llama_layer, pn_llama_model, pn_llama_work
from pantheon._core.arch.structs cimport IN_OWN, pn_layout, pn_pass, pn_work

cdef enum:                               # inputs beside the frame's
    IN_HEADS = IN_OWN                    # of out: attention's result, normed where there is a sub-norm
    IN_FF = IN_OWN + 1                   # of down, the same

cdef inline pn_llama_model *model_of(const pn_pass *p) noexcept nogil:
    return <pn_llama_model *>p.run.model.weights

cdef inline pn_llama_work *work_of(const pn_pass *p) noexcept nogil:
    return <pn_llama_work *>p.run.work

# The entries of pn_arch_ops, nogil; see there.
cdef void llama_walk(pn_layout *l, pn_work *work) noexcept nogil
cdef void llama_enter(pn_pass *p) noexcept nogil
cdef void llama_layer(pn_pass *p, int l) noexcept nogil
cdef void llama_leave(pn_pass *p) noexcept nogil
# Parts of a layer, nogil.
# q, k and v of the layer, then attention; heads is whole after the next barrier.
cdef void llama_attention(pn_pass *p, int l) noexcept nogil
# Norm of this rank's tokens for the layer after l, prepared for its qkv; nothing after the last layer.
cdef void llama_next(pn_pass *p, int l) noexcept nogil
