"""One sequence of an RWKV-X model (see state.pxd for the contract).

The recurrent part has one size whatever the position, so a state goes back only to a snapshot or to the start. The
memory of the attention blocks is a KV cache: in memory mode its rows are the selected tokens of the last prompt, in
full mode they are the positions, which a snapshot does not copy: they stay what they were.
"""
from libc.math cimport floor
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from pantheon._core.arch.rwkv.structs cimport pn_rwkvx_model
from pantheon._core.arch.sequence cimport sequence_cost, sequence_new, sequence_reset
from pantheon._core.base.report cimport pn_set_error
from pantheon._core.kernels.table cimport PN_RWKV_HEAD
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_reset, kvcache_v
from pantheon._core.types cimport PN_KV_F16


cdef inline int keep_count(const pn_rwkvx_model *w, int n) noexcept nogil:
    return min(n, w.keep_tokens) if w.keep_tokens > 0 else max(1, <int>floor(n * w.keep_ratio))


cdef int rx_keep_count(const pn_state *state, int n) noexcept nogil:
    return keep_count(rx_of(state).w, n)


cdef inline size_t shift_floats(const pn_model *model) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    return <size_t>(2 * w.n_blocks + w.n_attn) * model.config.n_embd


cdef void rx_keeps(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    kept.n_ctx = n_ctx
    kept.kv_layers = w.n_attn
    kept.kv_rows = n_ctx if w.full else keep_count(w, (n_ctx + 7) // 8 * 8)
    kept.kv_type = type if w.n_attn > 0 else PN_KV_F16
    kept.recurrent = (shift_floats(model)
                      + <size_t>w.n_blocks * model.config.n_head * PN_RWKV_HEAD * PN_RWKV_HEAD)
    kept.arena = False


cdef void rx_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    sequence_cost(model, type, cost)
    if w.n_attn > 0 and not w.full:
        if w.keep_tokens > 0:
            cost.rows_max = w.keep_tokens
        else:
            cost.row_share = w.keep_ratio
    # In memory mode a checkpoint has rows of the memory too; such prompts are fed whole and checkpoints not taken.
    cost.checkpoint_bytes += sizeof(int64_t)


cdef int rx_state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    sequence_new(model, state, n_ctx, type)
    rx_of(state).w = <const pn_rwkvx_model *>model.weights
    rx_of(state).wkv = rx_of(state).base.recurrent + shift_floats(model)
    return 0


cdef void rx_state_reset(pn_state *state) noexcept nogil:
    sequence_reset(state)
    rx_of(state).kept = 0


cdef int rx_state_truncate(pn_state *state, int pos) noexcept nogil:
    if pos == 0:
        rx_state_reset(state)
        state.pos = 0
        return 0
    if pos == state.pos and not rx_of(state).base.broken:
        return 0
    pn_set_error(b"a recurrent state cannot go back to position %d from %d: restore a checkpoint, or reset", pos,
                 state.pos)
    return -1


# ---- snapshots -------------------------------------------------------------------------------------------------------

cdef inline int copied_rows(const rx_state *st, int kept) noexcept nogil:
    """Rows of the memory that belong to a snapshot."""
    return (kept + 7) // 8 * 8 if st.w.n_attn > 0 and not st.w.full else 0


cdef size_t rx_snapshot_bytes(const pn_state *state) noexcept nogil:
    cdef const rx_state *st = rx_of(state)
    cdef int rows = copied_rows(st, st.kept)
    cdef size_t n = sizeof(int64_t) + st.base.recurrent_bytes
    if rows > 0:
        n += (<size_t>st.base.kv.n_layer * st.base.kv.n_kv_head
              * (st.base.kv.ops.k_bytes(rows, st.base.kv.head_dim) + st.base.kv.ops.v_bytes(rows, st.base.kv.head_dim)))
    return n


cdef void copy_memory(const rx_state *st, int rows, uint8_t *snapshot, bint out) noexcept nogil:
    """The first rows of every head's keys and values, to a snapshot or from it."""
    cdef int layer, h, part
    cdef uint8_t *area
    cdef size_t n
    for layer in range(st.base.kv.n_layer):
        for h in range(st.base.kv.n_kv_head):
            for part in range(2):
                area = kvcache_k(&st.base.kv, layer, h) if part == 0 else kvcache_v(&st.base.kv, layer, h)
                n = (st.base.kv.ops.k_bytes(rows, st.base.kv.head_dim) if part == 0
                     else st.base.kv.ops.v_bytes(rows, st.base.kv.head_dim))
                if out:
                    memcpy(snapshot, area, n)
                else:
                    memcpy(area, snapshot, n)
                snapshot += n


cdef int rx_snapshot(const pn_state *state, void *out) noexcept nogil:
    cdef const rx_state *st = rx_of(state)
    cdef uint8_t *p = <uint8_t *>out
    cdef int64_t kept = st.kept
    cdef int rows = copied_rows(st, st.kept)
    if st.base.broken:
        pn_set_error(b"a call was interrupted and left the state between positions: reset it or restore a checkpoint")
        return -1
    memcpy(p, &kept, sizeof(kept))
    p += sizeof(kept)
    memcpy(p, st.base.recurrent, st.base.recurrent_bytes)
    if rows > 0:
        copy_memory(st, rows, p + st.base.recurrent_bytes, True)
    return 0


cdef int rx_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    cdef rx_state *st = rx_of(state)
    cdef uint8_t *p = <uint8_t *>snapshot
    cdef int64_t kept
    cdef int rows
    memcpy(&kept, p, sizeof(kept))
    p += sizeof(kept)
    rows = copied_rows(st, <int>kept)
    memcpy(st.base.recurrent, p, st.base.recurrent_bytes)
    if rows > 0:
        copy_memory(st, rows, p + st.base.recurrent_bytes, False)
        st.base.kv.high = max(st.base.kv.high, rows)
    elif st.w.n_attn > 0 and not st.w.full:
        kvcache_reset(&st.base.kv)             # an empty memory is one row of zeros
    state.pos = pos
    st.kept = <int>kept
    st.base.used = True
    st.base.broken = False
    return 0
