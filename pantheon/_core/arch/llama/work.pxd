# Work buffers of a run of the Llama family.
from libc.stdint cimport uint8_t

from pantheon._core.arch.llama.structs cimport pn_llama_layer, pn_llama_model, pn_llama_work
from pantheon._core.layers.moe cimport MOE_COUNTERS
from pantheon._core.types cimport pn_config, pn_model

cdef enum:
    LLAMA_LAYER_COUNTERS = 3 + MOE_COUNTERS      # qkv, attention, out, then the widest feed-forward

# nogil. Lays out the buffers of a run of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns
# the bytes.
cdef size_t llama_work_layout(pn_llama_work *work, uint8_t *base, const pn_llama_model *w, const pn_config *c,
                              int n_tok, int n_out) noexcept nogil
# nogil. The model's buffers of prefill and batch, grown to n_tok tokens and n_out logits; NULL with pn_last_error()
# when there is no memory.
cdef pn_llama_work *llama_work(pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. Whether down's input must be there whole before it is quantised, so that it cannot be made in blocks.
cdef bint llama_whole_ff(const pn_llama_model *w, const pn_llama_layer *layer) noexcept nogil
