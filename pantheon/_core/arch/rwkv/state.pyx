"""One sequence of an RWKV-X model (see rwkvx_state.pxd for the contract).

The recurrent part has one size whatever the position, so a state goes back only to a snapshot or to the start. The
memory of the attention blocks is a KV cache: in memory mode its rows are the selected tokens of the last prompt, in
full mode they are the positions, which a snapshot does not copy: they stay what they were.
"""
from libc.math cimport floor
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from pantheon._core.arch.run cimport logits_view
from pantheon._core.arch.rwkv.structs cimport pn_rwkvx_model, rx_state
from pantheon._core.arch.rwkv.work cimport rx_work_need, rx_work_single
from pantheon._core.base.pages cimport pn_pages_free
from pantheon._core.base.report cimport pn_last_error, pn_set_error
from pantheon._core.kernels.table cimport PN_RWKV_HEAD
from pantheon._core.layers.kvcache cimport kvcache_cost, kvcache_free, kvcache_k, kvcache_new, kvcache_reset, kvcache_v
from pantheon._core.types cimport PN_KV_F16, pn_config, pn_cost, pn_kv_type, pn_model, pn_state

cdef inline int keep_count(const pn_rwkvx_model *w, int n) noexcept nogil:
    return min(n, w.keep_tokens) if w.keep_tokens > 0 else max(1, <int>floor(n * w.keep_ratio))


cdef int rx_keep_count(const pn_state *state, int n) noexcept nogil:
    return keep_count((<const rx_state *>state.kv_cache).w, n)


cdef void rx_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    cdef const pn_config *c = &model.config
    cdef size_t floats = (<size_t>(2 * w.n_blocks + w.n_attn) * c.n_embd
                          + <size_t>w.n_blocks * c.n_head * PN_RWKV_HEAD * PN_RWKV_HEAD + c.n_vocab)
    cost.kv_type = PN_KV_F16             # what rx_state_kv_type says where there is no memory
    if w.n_attn > 0:
        kvcache_cost(c, w.n_attn, type, cost)
        if not w.full and w.keep_tokens > 0:
            cost.rows_max = w.keep_tokens
        elif not w.full:
            cost.row_share = w.keep_ratio
    cost.state_bytes = floats * sizeof(float) + rx_work_need(model, 1, 1, True)
    # A checkpoint in memory mode has rows of the memory too; such prompts are fed whole and checkpoints not taken.
    cost.checkpoint_bytes = sizeof(int64_t) + (floats - c.n_vocab) * sizeof(float)


cdef int rx_state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    cdef pn_rwkvx_model *w = <pn_rwkvx_model *>model.weights
    cdef pn_config *c = &model.config
    cdef pn_config memory = model.config
    cdef rx_state *st = <rx_state *>calloc(1, sizeof(rx_state))
    cdef size_t shifts = <size_t>(2 * w.n_blocks + w.n_attn) * c.n_embd
    if st == NULL:
        raise MemoryError("no memory for a state")
    state.kv_cache = st
    st.w = w
    st.n_ctx = (n_ctx + 7) // 8 * 8
    st.n_floats = shifts + <size_t>w.n_blocks * c.n_head * PN_RWKV_HEAD * PN_RWKV_HEAD
    st.shift = <float *>calloc(st.n_floats, sizeof(float))
    st.logits = <float *>malloc(c.n_vocab * sizeof(float))
    if st.shift == NULL or st.logits == NULL:
        raise MemoryError(f"state of {st.n_floats * sizeof(float):,} bytes")
    st.wkv = st.shift + shifts
    if w.n_attn > 0:
        memory.n_layer = w.n_attn
        st.kv = kvcache_new(&memory, st.n_ctx if w.full else keep_count(w, st.n_ctx), type)
    if rx_work_single(st, c) == NULL:
        raise MemoryError(pn_last_error().decode())
    logits_view(&st.out, st.logits, c.n_vocab)
    return 0


cdef void rx_state_reset(pn_state *state) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    memset(st.shift, 0, st.n_floats * sizeof(float))
    if st.kv != NULL:
        kvcache_reset(st.kv)
    st.kept = 0
    st.broken = False


cdef void rx_state_free(pn_state *state) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    if st == NULL:
        return
    kvcache_free(st.kv)
    free(st.shift)
    free(st.logits)
    pn_pages_free(st.work_memory, st.work_bytes)
    free(st)


cdef int rx_state_truncate(pn_state *state, int pos) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    if pos == 0:
        rx_state_reset(state)
        state.pos = 0
        return 0
    if pos == state.pos and not st.broken:
        return 0
    pn_set_error(b"a recurrent state cannot go back to position %d from %d: restore a checkpoint, or reset", pos,
                 state.pos)
    return -1


cdef int rx_state_n_ctx(const pn_state *state) noexcept nogil:
    return (<const rx_state *>state.kv_cache).n_ctx


cdef pn_kv_type rx_state_kv_type(const pn_state *state) noexcept nogil:
    cdef const rx_state *st = <const rx_state *>state.kv_cache
    return st.kv.type if st.kv != NULL else PN_KV_F16


cdef size_t rx_state_bytes(const pn_state *state) noexcept nogil:
    cdef const rx_state *st = <const rx_state *>state.kv_cache
    return (st.n_floats * sizeof(float) + (st.kv.nbytes if st.kv != NULL else 0) + st.work_bytes
            + state.config.n_vocab * sizeof(float))


# ---- snapshots -------------------------------------------------------------------------------------------------------

cdef inline int copied_rows(const rx_state *st, int kept) noexcept nogil:
    """Rows of the memory that belong to a snapshot."""
    return (kept + 7) // 8 * 8 if st.kv != NULL and not st.w.full else 0


cdef size_t rx_snapshot_bytes(const pn_state *state) noexcept nogil:
    cdef const rx_state *st = <const rx_state *>state.kv_cache
    cdef int rows = copied_rows(st, st.kept)
    cdef size_t n = sizeof(int64_t) + st.n_floats * sizeof(float)
    if rows > 0:
        n += (<size_t>st.kv.n_layer * st.kv.n_kv_head
              * (st.kv.ops.k_bytes(rows, st.kv.head_dim) + st.kv.ops.v_bytes(rows, st.kv.head_dim)))
    return n


cdef void copy_memory(const rx_state *st, int rows, uint8_t *snapshot, bint out) noexcept nogil:
    """The first rows of every head's keys and values, to a snapshot or from it."""
    cdef int layer, h, part
    cdef uint8_t *area
    cdef size_t n
    for layer in range(st.kv.n_layer):
        for h in range(st.kv.n_kv_head):
            for part in range(2):
                area = kvcache_k(st.kv, layer, h) if part == 0 else kvcache_v(st.kv, layer, h)
                n = (st.kv.ops.k_bytes(rows, st.kv.head_dim) if part == 0
                     else st.kv.ops.v_bytes(rows, st.kv.head_dim))
                if out:
                    memcpy(snapshot, area, n)
                else:
                    memcpy(area, snapshot, n)
                snapshot += n


cdef int rx_snapshot(const pn_state *state, void *out) noexcept nogil:
    cdef const rx_state *st = <const rx_state *>state.kv_cache
    cdef uint8_t *p = <uint8_t *>out
    cdef int64_t kept = st.kept
    cdef int rows = copied_rows(st, st.kept)
    if st.broken:
        pn_set_error(b"a call was interrupted and left the state between positions: reset it or restore a checkpoint")
        return -1
    memcpy(p, &kept, sizeof(kept))
    p += sizeof(kept)
    memcpy(p, st.shift, st.n_floats * sizeof(float))
    if rows > 0:
        copy_memory(st, rows, p + st.n_floats * sizeof(float), True)
    return 0


cdef int rx_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    cdef uint8_t *p = <uint8_t *>snapshot
    cdef int64_t kept
    cdef int rows
    memcpy(&kept, p, sizeof(kept))
    p += sizeof(kept)
    rows = copied_rows(st, <int>kept)
    memcpy(st.shift, p, st.n_floats * sizeof(float))
    if rows > 0:
        copy_memory(st, rows, p + st.n_floats * sizeof(float), False)
        st.kv.high = max(st.kv.high, rows)
    elif st.kv != NULL and not st.w.full:
        kvcache_reset(st.kv)             # an empty memory is one row of zeros
    state.pos = pos
    st.kept = <int>kept
    st.broken = False
    return 0
