"""Work buffers of RWKV-X runs (see rwkvx_work.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memset

from pantheon._core.arch.run cimport run_memory
from pantheon._core.arch.rwkv.structs cimport (
    RX_COUNTERS,
    RX_LORAS,
    RX_MIXES,
    pn_rwkvx_model,
    rx_candidate,
    rx_prompt,
    rx_rank,
    rx_state,
    rx_stream,
    rx_work,
)
from pantheon._core.base.carver cimport carve, carve_floats, carve_rest, carver
from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.base.report cimport pn_set_no_memory
from pantheon._core.layers.attention cimport attention_scratch
from pantheon._core.layers.kvcache cimport kvcache_bytes, pn_llama_kv_cache
from pantheon._core.layers.linear cimport group_panel_bytes, input_layout, pn_group
from pantheon._core.types cimport pn_config, pn_kv_type, pn_model

cdef inline size_t aligned(size_t n) noexcept nogil:
    return (n + 63) // 64 * 64


cdef void layout_mixes(rx_stream *s, carver *m, const pn_rwkvx_model *w, int n_tok) noexcept nogil:
    """Every mix has its readers; channel mix and attention, which need one input each, borrow the first."""
    cdef const pn_group *groups[5120]
    cdef int i, b, n
    for i in range(RX_MIXES):
        n = 0
        for b in range(w.n_blocks):
            groups[n] = &w.blocks[b].down[i]
            n += 1
        for b in range(w.n_blocks if i == 0 else 0):
            groups[n] = &w.blocks[b].ffn.key
            n += 1
        for b in range(w.n_attn if i == 0 else 0):
            groups[n], groups[n + 1], groups[n + 2] = &w.attn[b].qkv, &w.attn[b].q, &w.attn[b].ffn.key
            n += 3
        m.used += input_layout(&s.mix[i], carve_rest(m), s.mixed[i], groups, n, n_tok)


cdef void layout_inputs(rx_stream *s, carver *m, const rx_work *work, const pn_rwkvx_model *w, int n_tok,
                        int n_out) noexcept nogil:
    """Inputs are sized for the widest need of any block; blocks of one model may mix types."""
    cdef const pn_group *groups[2048]
    cdef int i, b, n
    layout_mixes(s, m, w, n_tok)
    for i in range(RX_LORAS):
        n = 0
        for b in range(w.n_blocks):
            if w.blocks[b].up[i].n > 0:
                groups[n] = &w.blocks[b].up[i]
                n += 1
        if n > 0:
            m.used += input_layout(&s.low[i], carve_rest(m), s.lora[i], groups, n, n_tok)
    for b in range(w.n_blocks):
        groups[b] = &w.blocks[b].out
    for b in range(w.n_attn):
        groups[w.n_blocks + b] = &w.attn[b].out
    m.used += input_layout(&s.heads, carve_rest(m), work.y, groups, w.n_blocks + w.n_attn, n_tok)
    for b in range(w.n_blocks):
        groups[b] = &w.blocks[b].ffn.value
    for b in range(w.n_attn):
        groups[w.n_blocks + b] = &w.attn[b].ffn.value
    m.used += input_layout(&s.ff, carve_rest(m), work.ff, groups, w.n_blocks + w.n_attn, n_tok)
    groups[0] = &w.head
    m.used += input_layout(&s.head, carve_rest(m), s.normed, groups, 1, n_out)


cdef void layout_stream(rx_stream *s, carver *m, const rx_work *work, const pn_rwkvx_model *w, const pn_config *c,
                        bint single) noexcept nogil:
    cdef int i
    cdef int n_tok = 1 if single else work.n_tok
    s.x = carve_floats(m, 1, c.n_embd) if single else NULL
    s.normed = carve_floats(m, n_tok, c.n_embd)
    for i in range(RX_MIXES):
        s.mixed[i] = carve_floats(m, n_tok, c.n_embd)
    for i in range(RX_LORAS):
        s.lora[i] = carve_floats(m, n_tok, w.n_lora[i])
    layout_inputs(s, m, work, w, n_tok, 1 if single else work.n_out)


cdef size_t panel_bytes(const pn_rwkvx_model *w) noexcept nogil:
    cdef size_t most = group_panel_bytes(&w.head)
    cdef int b, i
    for b in range(w.n_blocks):
        for i in range(RX_MIXES):
            most = max(most, group_panel_bytes(&w.blocks[b].down[i]))
        for i in range(RX_LORAS):
            most = max(most, group_panel_bytes(&w.blocks[b].up[i]))
        most = max(most, group_panel_bytes(&w.blocks[b].out))
        most = max(most, group_panel_bytes(&w.blocks[b].ffn.key))
        most = max(most, group_panel_bytes(&w.blocks[b].ffn.value))
    for b in range(w.n_attn):
        most = max(most, group_panel_bytes(&w.attn[b].qkv))
        most = max(most, group_panel_bytes(&w.attn[b].out))
        most = max(most, group_panel_bytes(&w.attn[b].ffn.key))
        most = max(most, group_panel_bytes(&w.attn[b].ffn.value))
    return most


cdef size_t layout(rx_work *work, uint8_t *base, const pn_rwkvx_model *w, const pn_config *c, int n_tok,
                   int n_out, bint single) noexcept nogil:
    """Buffers of one window of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns the
    bytes. single: the ranks' own streams, else the shared one."""
    cdef carver m
    cdef rx_rank scratch
    cdef rx_rank *rank = &scratch
    cdef int i, r
    m.base = base
    m.used = 0
    work.n_tok = n_tok
    work.n_out = n_out
    work.n_ranks = w.base.n_threads
    work.ranks = <rx_rank *>carve(&m, work.n_ranks * sizeof(rx_rank))
    work.counters = <pn_counter *>carve(&m, RX_COUNTERS * sizeof(pn_counter))
    work.caches = <pn_llama_kv_cache **>carve(&m, n_tok * sizeof(pn_llama_kv_cache *))
    work.pos = <int *>carve(&m, n_tok * sizeof(int))
    work.r = carve_floats(&m, n_tok, c.n_embd)
    work.k = carve_floats(&m, n_tok, c.n_embd)
    work.v = carve_floats(&m, n_tok, c.n_embd)
    for i in range(RX_LORAS):
        work.lora[i] = carve_floats(&m, n_tok, w.n_lora[i])
        work.up[i] = carve_floats(&m, n_tok, c.n_embd)
    work.y = carve_floats(&m, n_tok, c.n_embd)
    work.ff = carve_floats(&m, n_tok, c.n_ff)
    work.delta = carve_floats(&m, n_tok, c.n_embd)
    work.v_first = carve_floats(&m, n_tok, c.n_embd)
    work.x = carve_floats(&m, 0 if single else n_tok, c.n_embd)
    if not single:
        layout_stream(&work.shared, &m, work, w, c, False)
    for r in range(work.n_ranks):
        if base != NULL:
            rank = &work.ranks[r]
        if single:
            layout_stream(&rank.single, &m, work, w, c, True)
        rank.attention = <uint8_t *>carve(&m, attention_scratch(c.n_head, c.n_head, c.head_dim) if w.n_attn > 0 else 0)
        rank.panel = <uint8_t *>carve(&m, 0 if single else panel_bytes(w))
    return m.used


cdef rx_work *grown(rx_work *work, void **memory, size_t *bytes, const pn_rwkvx_model *w, const pn_config *c,
                    int n_tok, int n_out, bint single) noexcept nogil:
    cdef size_t need
    if work.n_tok >= n_tok and work.n_out >= n_out and work.n_ranks == w.base.n_threads:
        return work
    n_tok = max(n_tok, work.n_tok)
    n_out = max(n_out, work.n_out)
    pn_fork_hold()
    need = layout(work, NULL, w, c, n_tok, n_out, single)
    if run_memory(memory, bytes, need, n_tok) != NULL:
        layout(work, <uint8_t *>memory[0], w, c, n_tok, n_out, single)
    else:
        memset(work, 0, sizeof(rx_work))
        work = NULL
    pn_fork_release()
    return work


cdef size_t rx_work_need(const pn_model *model, int n_tok, int n_out, bint single) noexcept nogil:
    cdef rx_work work
    memset(&work, 0, sizeof(work))
    return layout(&work, NULL, <const pn_rwkvx_model *>model.weights, &model.config, n_tok, n_out, single)


cdef rx_work *rx_work_shared(pn_model *model, int n_tok, int n_out) noexcept nogil:
    cdef pn_rwkvx_model *w = <pn_rwkvx_model *>model.weights
    return grown(&w.work, &w.work_memory, &w.work_bytes, w, &model.config, n_tok, n_out, False)


cdef rx_work *rx_work_single(rx_state *st, const pn_config *c) noexcept nogil:
    return grown(&st.work, &st.work_memory, &st.work_bytes, st.w, c, 1, 1, True)


# ---- a prompt as a whole ---------------------------------------------------------------------------------------------

cdef size_t layout_prompt(rx_prompt *p, float **x, float **v_first, uint8_t *base, const rx_state *st,
                          const pn_config *c, int n, bint selects) noexcept nogil:
    cdef carver m
    cdef pn_llama_kv_cache *kv = &p.kv
    m.base = base
    m.used = 0
    x[0] = carve_floats(&m, n, c.n_embd)
    v_first[0] = carve_floats(&m, n, c.n_embd)
    if not selects:
        return m.used
    p.k = carve_floats(&m, n, c.n_embd)
    p.v = carve_floats(&m, n, c.n_embd)
    p.order = <rx_candidate *>carve(&m, n * sizeof(rx_candidate))
    p.slot = <int *>carve(&m, n * sizeof(int))
    kv[0] = st.kv[0]
    kv.n_layer = 1
    kv.n_ctx = (n + 7) // 8 * 8
    kv.k_bytes = aligned(kv.ops.k_bytes(kv.n_ctx, kv.head_dim))
    kv.v_bytes = aligned(kv.ops.v_bytes(kv.n_ctx, kv.head_dim))
    kv.nbytes = kv.n_kv_head * (kv.k_bytes + kv.v_bytes)
    kv.data = <uint8_t *>carve(&m, kv.nbytes)
    return m.used


cdef size_t rx_prompt_need(const pn_model *model, pn_kv_type type, int n, bint selects) noexcept nogil:
    cdef pn_config one = model.config
    cdef size_t floats = aligned(<size_t>n * one.n_embd * sizeof(float))
    one.n_layer = 1
    if not selects:
        return 2 * floats + 64
    return (4 * floats + aligned(n * sizeof(rx_candidate)) + aligned(n * sizeof(int))
            + aligned(kvcache_bytes(&one, n, type)) + 64)


cdef void *rx_prompt_new(rx_prompt *p, float **x, float **v_first, const rx_state *st, const pn_config *c, int n,
                         bint selects) noexcept nogil:
    cdef size_t need = layout_prompt(p, x, v_first, NULL, st, c, n, selects) + 64
    cdef void *memory = calloc(1, need)
    if memory == NULL:
        pn_set_no_memory(b"no memory for the %zu bytes of a prompt of %d tokens", need, n)
        return NULL
    layout_prompt(p, x, v_first, <uint8_t *>aligned(<size_t>memory), st, c, n, selects)
    return memory
