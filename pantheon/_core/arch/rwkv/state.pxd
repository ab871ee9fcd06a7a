# One sequence of an RWKV-X model: token shifts, heads' states, remembered keys and values.
from pantheon._core.arch.rwkv.structs cimport rx_state
from pantheon._core.arch.structs cimport pn_kept
from pantheon._core.types cimport pn_cost, pn_kv_type, pn_model, pn_state

cdef inline rx_state *rx_of(const pn_state *state) noexcept nogil:
    return <rx_state *>state.kv_cache

# The entries of pn_arch_ops; see there.
cdef void rx_keeps(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil
cdef int rx_state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1
cdef void rx_state_reset(pn_state *state) noexcept nogil
cdef int rx_state_truncate(pn_state *state, int pos) noexcept nogil
cdef size_t rx_snapshot_bytes(const pn_state *state) noexcept nogil
cdef int rx_snapshot(const pn_state *state, void *out) noexcept nogil
cdef int rx_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil
# nogil. What a state takes: KV areas and their rows, and state_bytes of *cost.
cdef void rx_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil
# nogil. Tokens that a prompt of n tokens leaves in memory.
cdef int rx_keep_count(const pn_state *state, int n) noexcept nogil
