# Buffers of RWKV-X runs: of one window of tokens, and of a whole prompt.
from pantheon._core.arch.rwkv.structs cimport rx_prompt, rx_state
from pantheon._core.arch.structs cimport pn_layout, pn_work
from pantheon._core.types cimport pn_config, pn_kv_type, pn_model

# nogil. The entry of pn_arch_ops; see there.
cdef void rx_walk(pn_layout *l, pn_work *work) noexcept nogil
# nogil. Bytes of rx_prompt_new.
cdef size_t rx_prompt_need(const pn_model *model, pn_kv_type type, int n, bint selects) noexcept nogil
# nogil. Buffers of n tokens of one prompt: residual stream and v_first (n, n_embd) and, with `selects`, what the
# selection needs, in the KV type of the state. Returns their memory, to be freed; NULL when there is none.
cdef void *rx_prompt_new(rx_prompt *p, float **x, float **v_first, const rx_state *st, const pn_config *c, int n,
                         bint selects) noexcept nogil
