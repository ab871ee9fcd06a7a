# One sequence of an RWKV-X model: token shifts, heads' states, remembered keys and values.
from pantheon._core.types cimport pn_cost, pn_kv_type, pn_model, pn_state

# The rows of pn_arch_ops (ops.pxd says what each does).
cdef int rx_state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1
cdef void rx_state_reset(pn_state *state) noexcept nogil
cdef void rx_state_free(pn_state *state) noexcept nogil
cdef int rx_state_truncate(pn_state *state, int pos) noexcept nogil
cdef int rx_state_n_ctx(const pn_state *state) noexcept nogil
cdef pn_kv_type rx_state_kv_type(const pn_state *state) noexcept nogil
cdef size_t rx_state_bytes(const pn_state *state) noexcept nogil
cdef size_t rx_snapshot_bytes(const pn_state *state) noexcept nogil
cdef int rx_snapshot(const pn_state *state, void *out) noexcept nogil
cdef int rx_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil
# nogil. What a state takes: KV areas and their rows, and state_bytes of *cost.
cdef void rx_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil
# nogil. Tokens that a prompt of n tokens leaves in memory.
cdef int rx_keep_count(const pn_state *state, int n) noexcept nogil
