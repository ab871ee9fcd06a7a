"""What a sequence keeps (see sequence.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.work cimport work_need, work_grown, work_place
from pantheon._core.base.arena cimport (
    compute_arena_size,
    pn_arena_alloc,
    pn_arena_begin,
    pn_arena_free,
    pn_arena_new,
    pn_arena_size,
)
from pantheon._core.base.carver cimport aligned
from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.report cimport pn_set_error
from pantheon._core.kernels.table cimport PN_F32
from pantheon._core.layers.kvcache cimport (
    kvcache_cost,
    kvcache_init,
    kvcache_release,
    kvcache_reset,
    kvcache_type,
    pn_llama_kv_cache,
)
from pantheon._core.types cimport pn_kv_type, pn_model, pn_state, tm_tensor


cdef inline const pn_arch_weights *weights_of(const pn_model *model) noexcept nogil:
    return <const pn_arch_weights *>model.weights


cdef void sequence_keeps(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil:
    kept.n_ctx = n_ctx
    kept.kv_layers = model.config.n_layer
    kept.kv_rows = n_ctx
    kept.kv_type = type
    kept.recurrent = 0
    kept.arena = True


cdef size_t own_bytes(const pn_model *model, const pn_kept *kept) noexcept nogil:
    """Of the struct but for the cache, the recurrent part, the logits and their alignment."""
    if kept.arena and kept.recurrent == 0:
        return 0
    return (sizeof(pn_sequence) - sizeof(pn_llama_kv_cache) + 64
            + (kept.recurrent + <size_t>model.config.n_vocab) * sizeof(float))


cdef size_t arena_bytes(const pn_model *model) noexcept nogil:
    """Scratch of a single token: the work buffers and the logits, aligned; a multiple of 16."""
    cdef size_t need = work_need(model, 1, 1) + 64 + model.config.n_vocab * sizeof(float)
    return (max(compute_arena_size(&model.config), need) + 15) // 16 * 16


cdef int sequence_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    cdef pn_sequence *s = <pn_sequence *>calloc(1, weights_of(model).ops.state_size)
    cdef pn_kept kept
    if s == NULL:
        raise MemoryError("no memory for a state")
    state.kv_cache = s
    weights_of(model).ops.keeps(model, n_ctx, type, &kept)
    s.nbytes = own_bytes(model, &kept)
    if s.nbytes > 0:
        s.memory = calloc(1, s.nbytes - (sizeof(pn_sequence) - sizeof(pn_llama_kv_cache)))
        if s.memory == NULL:
            raise MemoryError(f"recurrent state: {(<object>s.nbytes):,} bytes")
        s.recurrent = <float *>aligned(<size_t>s.memory)
        s.recurrent_bytes = kept.recurrent * sizeof(float)
        s.logits = s.recurrent + kept.recurrent
        logits_view(&s.logits_view, s.logits, model.config.n_vocab)
    s.n_ctx = (kept.n_ctx + 7) // 8 * 8
    s.kv.type = kvcache_type(&model.config, kept.kv_type)
    if kept.kv_layers > 0:
        kvcache_init(&s.kv, &model.config, kept.kv_layers, kept.kv_rows, kept.kv_type)
    if kept.arena:
        state.arena = pn_arena_new(arena_bytes(model))
    return 0


cdef pn_work *sequence_work(pn_model *model, pn_state *state) noexcept nogil:
    """In an arena they stay where they are until the model's threads change; what runs write there does not."""
    cdef pn_sequence *s = sequence_of(state)
    cdef size_t need
    cdef void *memory
    if state.arena == NULL:
        return work_grown(model, 1, 1)
    if s.single != NULL and s.single.n_ranks == weights_of(model).n_threads:
        return s.single
    s.single = NULL
    if pn_arena_begin(state.arena, arena_bytes(model)) != 0:
        return NULL
    pn_fork_hold()
    need = work_need(model, 1, 1)
    memory = pn_arena_alloc(state.arena, need + 64)
    s.logits = <float *>pn_arena_alloc(state.arena, model.config.n_vocab * sizeof(float))
    logits_view(&s.logits_view, s.logits, model.config.n_vocab)
    s.single = work_place(model, <uint8_t *>aligned(<size_t>memory), 1, 1)
    pn_fork_release()
    return s.single


cdef void sequence_reset(pn_state *state) noexcept nogil:
    cdef pn_sequence *s = sequence_of(state)
    kvcache_reset(&s.kv)
    if s.used:
        memset(s.recurrent, 0, s.recurrent_bytes)
    s.used = False
    s.broken = False


cdef void sequence_free(pn_state *state) noexcept nogil:
    cdef pn_sequence *s = sequence_of(state)
    pn_arena_free(state.arena)
    if s != NULL:
        kvcache_release(&s.kv)
        free(s.memory)
        free(s)


cdef int sequence_truncate(pn_state *state, int pos) noexcept nogil:
    cdef pn_sequence *s = sequence_of(state)
    if s.recurrent_bytes > 0 and (pos != state.pos or s.broken):
        pn_set_error(b"cannot truncate to position %d: recurrent state cannot be truncated; "
                     b"use a checkpoint or reset the state", pos)
        return -1
    state.pos = pos                      # what lies behind is never read again before it is overwritten
    return 0


cdef size_t sequence_snapshot_bytes(const pn_state *state) noexcept nogil:
    return sequence_of(state).recurrent_bytes


cdef int sequence_snapshot(const pn_state *state, void *out) noexcept nogil:
    cdef const pn_sequence *s = sequence_of(state)
    if s.broken:
        pn_set_error(b"the state was interrupted inside a chunk: reset it or restore a checkpoint")
        return -1
    memcpy(out, s.recurrent, s.recurrent_bytes)
    return 0


cdef int sequence_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    cdef pn_sequence *s = sequence_of(state)
    memcpy(s.recurrent, snapshot, s.recurrent_bytes)
    state.pos = pos                      # KV behind it is never read again before it is overwritten
    s.used = True
    s.broken = False
    return 0


cdef int sequence_n_ctx(const pn_state *state) noexcept nogil:
    return sequence_of(state).n_ctx


cdef pn_kv_type sequence_kv_type(const pn_state *state) noexcept nogil:
    return sequence_of(state).kv.type


cdef size_t sequence_bytes(const pn_state *state) noexcept nogil:
    return (sequence_of(state).kv.nbytes + sequence_of(state).nbytes
            + (pn_arena_size(state.arena) if state.arena != NULL else 0))


cdef void sequence_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil:
    cdef pn_kept kept
    weights_of(model).ops.keeps(model, model.config.n_ctx, type, &kept)
    cost.kv_type = kvcache_type(&model.config, kept.kv_type)
    if kept.kv_layers > 0:
        kvcache_cost(&model.config, kept.kv_layers, kept.kv_type, cost)
    if kept.n_ctx < model.config.n_ctx:
        cost.max_ctx = kept.n_ctx
    cost.state_bytes = own_bytes(model, &kept) + (arena_bytes(model) if kept.arena else 0)
    cost.checkpoint_bytes = kept.recurrent * sizeof(float)


cdef void logits_view(tm_tensor *t, float *logits, int n_vocab) noexcept nogil:
    memset(t, 0, sizeof(tm_tensor))
    t.data = logits
    t.type = PN_F32
    t.ne[0] = n_vocab
    t.ne[1] = t.ne[2] = t.ne[3] = 1
    t.nb[0] = sizeof(float)
    t.nb[1] = t.nb[2] = t.nb[3] = n_vocab * sizeof(float)
    memcpy(t.name, b"logits", 7)
