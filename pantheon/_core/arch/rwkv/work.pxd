# Work buffers of RWKV-X runs: of one window of tokens, of single tokens, and of a whole prompt.
from pantheon._core.arch.rwkv.structs cimport pn_rwkvx_model, rx_prompt, rx_state, rx_work
from pantheon._core.types cimport pn_config, pn_kv_type, pn_model

# nogil. The model's buffers of prefill and batch, grown to n_tok tokens and n_out logits; NULL when there is no memory.
cdef rx_work *rx_work_shared(pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. The state's buffers of single tokens, for the model's present number of ranks; NULL when there is no memory.
cdef rx_work *rx_work_single(rx_state *st, const pn_config *c) noexcept nogil
# nogil. Bytes of the shared buffers of n_tok tokens, n_out of them with logits, or, with single, of the state's own;
# and of rx_prompt_new.
cdef size_t rx_work_need(const pn_model *model, int n_tok, int n_out, bint single) noexcept nogil
cdef size_t rx_prompt_need(const pn_model *model, pn_kv_type type, int n, bint selects) noexcept nogil
# nogil. Buffers of n tokens of one prompt: residual stream and v_first (n, n_embd) and, with `selects`, what the
# selection needs, in the KV type of the state. Returns their memory, to be freed; NULL when there is none.
cdef void *rx_prompt_new(rx_prompt *p, float **x, float **v_first, const rx_state *st, const pn_config *c, int n,
                         bint selects) noexcept nogil
