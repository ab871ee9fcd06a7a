# What a sequence keeps: a KV cache, and floats that every token rewrites where the architecture has such.
from libc.stdint cimport uint8_t

from pantheon._core.arch.structs cimport pn_kept, pn_sequence, pn_work
from pantheon._core.types cimport pn_cost, pn_kv_type, pn_model, pn_state, tm_tensor

cdef inline pn_sequence *sequence_of(const pn_state *state) noexcept nogil:
    return <pn_sequence *>state.kv_cache

# nogil. The buffers of a single token of this state; NULL with pn_last_error().
cdef pn_work *sequence_work(pn_model *model, pn_state *state) noexcept nogil
# nogil. Its KV areas, max_ctx, state_bytes and checkpoint_bytes in a zeroed *cost.
cdef void sequence_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil
# nogil. A view of (n_vocab,) f32.
cdef void logits_view(tm_tensor *t, float *logits, int n_vocab) noexcept nogil

# The entries of pn_arch_ops; see there.
cdef void sequence_keeps(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil
cdef int sequence_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1
cdef void sequence_reset(pn_state *state) noexcept nogil
cdef void sequence_free(pn_state *state) noexcept nogil
cdef int sequence_truncate(pn_state *state, int pos) noexcept nogil
cdef size_t sequence_snapshot_bytes(const pn_state *state) noexcept nogil
cdef int sequence_snapshot(const pn_state *state, void *out) noexcept nogil
cdef int sequence_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil
cdef int sequence_n_ctx(const pn_state *state) noexcept nogil
cdef pn_kv_type sequence_kv_type(const pn_state *state) noexcept nogil
cdef size_t sequence_bytes(const pn_state *state) noexcept nogil
