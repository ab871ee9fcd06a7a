"""Sequence state of Qwen3.5 (see qwen35moe_state.pxd for the contract)."""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model, pn_qwen35moe_state
from pantheon._core.arch.run cimport logits_view
from pantheon._core.base.report cimport pn_log, pn_set_error
from pantheon._core.layers.deltanet cimport deltanet_conv_size, deltanet_s_size
from pantheon._core.layers.kvcache cimport kvcache_cost, kvcache_free, kvcache_new, kvcache_reset
from pantheon._core.memory.environment cimport environment_max_seq, pn_admit_kv_q4
from pantheon._core.types cimport (
    PN_ARCH_QWEN35MOE,
    PN_KV_DEFAULT,
    PN_KV_Q4_0,
    PN_LOG_WARNING,
    pn_config,
    pn_cost,
    pn_kv_type,
    pn_model,
    pn_state,
)

cdef pn_config kv_config(const pn_model *model) noexcept nogil:
    """The KV cache of a model whose only layers are the attention layers."""
    cdef pn_config c = model.config
    c.n_layer = (<const pn_qwen35moe_model *>model.weights).n_attention
    return c


cdef pn_kv_type chosen_type(const pn_model *model, pn_kv_type type) noexcept nogil:
    if type == PN_KV_DEFAULT and model.config.arch == PN_ARCH_QWEN35MOE and pn_admit_kv_q4():
        return PN_KV_Q4_0
    return type


cdef int chosen_n_ctx(const pn_model *model, int n_ctx) noexcept nogil:
    return min(n_ctx, environment_max_seq()) if model.config.arch == PN_ARCH_QWEN35MOE else n_ctx


cdef size_t recurrent_floats(const pn_qwen35moe_model *w, size_t *conv) noexcept nogil:
    conv[0] = w.n_recurrent * deltanet_conv_size(&w.dims)
    return conv[0] + w.n_recurrent * deltanet_s_size(&w.dims)


cdef size_t own_bytes(const pn_model *model) noexcept nogil:
    """Of the struct, the recurrent part, the logits and their alignment."""
    cdef size_t conv
    return (sizeof(pn_qwen35moe_state) + 64
            + (recurrent_floats(<const pn_qwen35moe_model *>model.weights, &conv) + <size_t>model.config.n_vocab)
            * sizeof(float))


cdef void qwen35moe_state_cost(const pn_model *model, pn_kv_type type, pn_cost *cost) noexcept nogil:
    cdef pn_config c = kv_config(model)
    cdef size_t conv
    kvcache_cost(&c, c.n_layer, chosen_type(model, type), cost)
    cost.max_ctx = chosen_n_ctx(model, model.config.n_ctx)
    cost.state_bytes = own_bytes(model)
    cost.checkpoint_bytes = recurrent_floats(<const pn_qwen35moe_model *>model.weights, &conv) * sizeof(float)


cdef int state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    cdef const pn_qwen35moe_model *w = <const pn_qwen35moe_model *>model.weights
    cdef pn_qwen35moe_state *s = <pn_qwen35moe_state *>calloc(1, sizeof(pn_qwen35moe_state))
    cdef pn_config c = kv_config(model)
    cdef size_t conv, n = recurrent_floats(w, &conv)
    cdef float *base
    if s == NULL:
        raise MemoryError("no memory for a state")
    state.kv_cache = s
    if chosen_n_ctx(model, n_ctx) < n_ctx:
        pn_log(PN_LOG_WARNING, b"n_ctx %d is clamped to %d by QWEN35_MAX_SEQ", n_ctx, chosen_n_ctx(model, n_ctx))
    s.nbytes = own_bytes(model)
    s.memory = calloc(1, s.nbytes - sizeof(pn_qwen35moe_state))
    if s.memory == NULL:
        raise MemoryError(f"recurrent state: {(<object>s.nbytes):,} bytes")
    base = <float *>((<size_t>s.memory + 63) // 64 * 64)
    s.recurrent.conv = base
    s.recurrent.s = base + conv
    s.recurrent_bytes = n * sizeof(float)
    s.logits = base + n
    logits_view(&s.logits_view, s.logits, c.n_vocab)
    s.kv = kvcache_new(&c, chosen_n_ctx(model, n_ctx), chosen_type(model, type))
    return 0


cdef inline pn_qwen35moe_state *of(const pn_state *state) noexcept nogil:
    return <pn_qwen35moe_state *>state.kv_cache


cdef void state_reset(pn_state *state) noexcept nogil:
    cdef pn_qwen35moe_state *s = of(state)
    kvcache_reset(s.kv)
    if s.used:
        memset(s.recurrent.conv, 0, s.recurrent_bytes)
    s.used = False
    s.broken = False


cdef void state_free(pn_state *state) noexcept nogil:
    if of(state) != NULL:
        kvcache_free(of(state).kv)
        free(of(state).memory)
        free(of(state))


cdef int state_truncate(pn_state *state, int pos) noexcept nogil:
    if pos == state.pos and not of(state).broken:
        return 0
    pn_set_error(b"cannot truncate to position %d: recurrent state cannot be truncated; "
                 b"use a checkpoint or reset the state", pos)
    return -1


cdef size_t state_snapshot_bytes(const pn_state *state) noexcept nogil:
    return of(state).recurrent_bytes


cdef int state_snapshot(const pn_state *state, void *out) noexcept nogil:
    if of(state).broken:
        pn_set_error(b"the state was interrupted inside a chunk: reset it or restore a checkpoint")
        return -1
    memcpy(out, of(state).recurrent.conv, of(state).recurrent_bytes)
    return 0


cdef int state_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    memcpy(of(state).recurrent.conv, snapshot, of(state).recurrent_bytes)
    state.pos = pos                      # KV behind it is never read again before it is overwritten
    of(state).used = True
    of(state).broken = False
    return 0


cdef int state_n_ctx(const pn_state *state) noexcept nogil:
    return of(state).kv.n_ctx


cdef pn_kv_type state_kv_type(const pn_state *state) noexcept nogil:
    return of(state).kv.type


cdef size_t state_bytes(const pn_state *state) noexcept nogil:
    return of(state).nbytes + of(state).kv.nbytes
