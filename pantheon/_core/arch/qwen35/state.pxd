# Sequence state of Qwen3.5: KV of the attention layers, convolution and recurrent state of the others.
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model
from pantheon._core.types cimport pn_cost, pn_kv_type, pn_model, pn_state

# nogil. What a state takes: KV areas, max_ctx and state_bytes of *cost; type may be PN_KV_DEFAULT.
cdef void qwen35moe_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil

# The rows of pn_arch_ops; see there.
cdef int state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1
cdef void state_reset(pn_state *state) noexcept nogil
cdef void state_free(pn_state *state) noexcept nogil
cdef int state_truncate(pn_state *state, int pos) noexcept nogil
cdef size_t state_snapshot_bytes(const pn_state *state) noexcept nogil
cdef int state_snapshot(const pn_state *state, void *out) noexcept nogil
cdef int state_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil
cdef int state_n_ctx(const pn_state *state) noexcept nogil
cdef pn_kv_type state_kv_type(const pn_state *state) noexcept nogil
cdef size_t state_bytes(const pn_state *state) noexcept nogil
