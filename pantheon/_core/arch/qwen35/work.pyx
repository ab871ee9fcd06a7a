"""Work buffers of Qwen3.5 runs (see qwen35moe_work.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pantheon._core.arch.qwen35.structs cimport (
    pn_qwen35moe_layer,
    pn_qwen35moe_model,
    pn_qwen35moe_rank,
    pn_qwen35moe_stream,
    pn_qwen35moe_work,
)
from pantheon._core.arch.run cimport run_memory
from pantheon._core.base.carver cimport carve, carve_floats, carve_rest, carver
from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.pool cimport pn_counter, pn_counter_zero
from pantheon._core.kernels.table cimport PN_ACT_F32
from pantheon._core.layers.attention cimport attention_scratch
from pantheon._core.layers.deltanet cimport deltanet_channels, deltanet_scratch, deltanet_values
from pantheon._core.layers.gated cimport gated_scratch
from pantheon._core.layers.linear cimport group_panel_bytes, input_begin, input_layout, pn_group, pn_input
from pantheon._core.layers.moe cimport MOE_COUNTERS
from pantheon._core.layers.moe_weights cimport moe_layout, pn_moe
from pantheon._core.types cimport pn_config, pn_model

cdef enum:
    MAX_LAYERS = 1024                    # of any config
    LAYER_COUNTERS = 3                   # of the mixer; the feed-forward part takes 2 or MOE_COUNTERS

cdef void layout_input(pn_input *x, carver *m, float *f, const pn_group **groups, int n, int n_tok) noexcept nogil:
    """An input that no layer reads is empty."""
    memset(x, 0, sizeof(pn_input))
    if n > 0:
        m.used += input_layout(x, carve_rest(m), f, groups, n, n_tok)


cdef void layout_stream(pn_qwen35moe_stream *s, carver *m, const pn_qwen35moe_model *w, const pn_config *c,
                        float *heads, float *values, float *ff, int n_tok, int n_out) noexcept nogil:
    """Inputs are sized for the widest need of any layer; layers of one model mix types."""
    cdef const pn_group *embd[3 * MAX_LAYERS]
    cdef const pn_group *groups[MAX_LAYERS]
    cdef int i, n = 0
    s.x = carve_floats(m, n_tok, c.n_embd)
    s.normed = carve_floats(m, n_tok, c.n_embd)
    s.angles = carve_floats(m, n_tok, 2 * w.rope.n_pair)
    for i in range(c.n_layer):
        embd[n] = &w.layers[i].delta.input if w.layers[i].recurrent else &w.layers[i].qkv
        if w.layers[i].moe.n_experts > 0:
            embd[n + 1], embd[n + 2] = &w.layers[i].moe.router, &w.layers[i].moe.reads
            n += 3
        else:
            embd[n + 1] = &w.layers[i].gate_up
            n += 2
    layout_input(&s.embd, m, s.normed, embd, n, n_tok)
    n = 0
    for i in range(c.n_layer):
        if not w.layers[i].recurrent:
            groups[n] = &w.layers[i].out
            n += 1
    layout_input(&s.heads, m, heads, groups, n, n_tok)
    n = 0
    for i in range(c.n_layer):
        if w.layers[i].recurrent:
            groups[n] = &w.layers[i].delta.out
            n += 1
    layout_input(&s.values, m, values, groups, n, n_tok)
    n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe.n_experts == 0:
            groups[n] = &w.layers[i].down
            n += 1
    layout_input(&s.ff, m, ff, groups, n, n_tok)
    groups[0] = &w.head
    layout_input(&s.head, m, s.normed, groups, 1, n_out)


cdef size_t panel_bytes(const pn_qwen35moe_model *w, const pn_config *c) noexcept nogil:
    cdef size_t most = group_panel_bytes(&w.head)
    cdef const pn_qwen35moe_layer *layer
    cdef int i
    for i in range(c.n_layer):
        layer = &w.layers[i]
        most = max(most, group_panel_bytes(&layer.delta.input if layer.recurrent else &layer.qkv))
        most = max(most, group_panel_bytes(&layer.delta.out if layer.recurrent else &layer.out))
        if layer.moe.n_experts > 0:
            most = max(most, group_panel_bytes(&layer.moe.router), layer.moe.panel_bytes)
        else:
            most = max(most, group_panel_bytes(&layer.gate_up), group_panel_bytes(&layer.down))
    return most


cdef bint float_down(const pn_qwen35moe_model *w, const pn_config *c) noexcept nogil:
    cdef int i
    for i in range(c.n_layer):
        if w.layers[i].moe.n_experts == 0 and w.layers[i].down.kinds[<int>PN_ACT_F32]:
            return True
    return False


cdef void layout_mixers(pn_qwen35moe_work *work, carver *m, const pn_qwen35moe_model *w, const pn_config *c,
                        int n_tok) noexcept nogil:
    """Buffers of the two kinds of mixer, in one place: a layer has one of them."""
    cdef size_t start = m.used, end
    work.qg = carve_floats(m, n_tok, 2 * c.n_head * c.head_dim)
    work.q = carve_floats(m, n_tok, c.n_head * c.head_dim)
    work.k = carve_floats(m, n_tok, c.n_kv_head * c.head_dim)
    work.v = carve_floats(m, n_tok, c.n_kv_head * c.head_dim)
    work.heads = carve_floats(m, n_tok, c.n_head * c.head_dim)
    end = m.used
    m.used = start
    work.qkv = carve_floats(m, n_tok, deltanet_channels(&w.dims))
    work.z = carve_floats(m, n_tok, deltanet_values(&w.dims))
    work.beta = carve_floats(m, n_tok, w.dims.n_v_head)
    work.alpha = carve_floats(m, n_tok, w.dims.n_v_head)
    m.used = max(m.used, end)


cdef void layout_moe(pn_qwen35moe_work *work, carver *m, const pn_qwen35moe_model *w, const pn_config *c,
                     int n_tok) noexcept nogil:
    cdef const pn_moe *moes[MAX_LAYERS]
    cdef int i, n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe.n_experts > 0:
            moes[n] = &w.layers[i].moe
            n += 1
    if n > 0:
        m.used += moe_layout(&work.moe, carve_rest(m), moes, n, n_tok, work.n_ranks)


cdef size_t layout(pn_qwen35moe_work *work, uint8_t *base, const pn_qwen35moe_model *w, const pn_config *c, int n_tok,
                   int n_out) noexcept nogil:
    """Buffers of a run of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns the bytes."""
    cdef carver m
    cdef pn_qwen35moe_rank scratch
    cdef pn_qwen35moe_rank *rank = &scratch
    cdef int r, dense = c.n_ff if w.layers[0].moe.n_experts == 0 else 0
    m.base = base
    m.used = 0
    work.n_tok = n_tok
    work.n_out = n_out
    work.n_ranks = w.base.n_threads
    work.ranks = <pn_qwen35moe_rank *>carve(&m, work.n_ranks * sizeof(pn_qwen35moe_rank))
    work.n_counters = c.n_layer * (LAYER_COUNTERS + max(2, <int>MOE_COUNTERS)) + 1
    work.counters = <pn_counter *>carve(&m, work.n_counters * sizeof(pn_counter))
    layout_mixers(work, &m, w, c, n_tok)
    work.gate = carve_floats(&m, 1, dense)
    work.up = carve_floats(&m, 1, dense)
    work.gated = carve_floats(&m, n_tok, dense) if n_tok > 1 and float_down(w, c) else NULL
    work.delta = carve_floats(&m, n_tok, c.n_embd)
    layout_moe(work, &m, w, c, n_tok)
    if n_tok > 1:
        layout_stream(&work.shared, &m, w, c, work.heads, work.z, work.gated, n_tok, n_out)
    for r in range(work.n_ranks):
        if base != NULL:
            rank = &work.ranks[r]
        layout_stream(&rank.single, &m, w, c, work.heads, work.z, work.gate, 1, 1)
        rank.mixer = <uint8_t *>carve(&m, max(attention_scratch(c.n_head, c.n_kv_head, c.head_dim),
                                              deltanet_scratch(&w.dims)))
        rank.panel = <uint8_t *>carve(&m, panel_bytes(w, c) if n_tok > 1 else 0)
        rank.gated = <uint8_t *>carve(&m, gated_scratch(n_tok) if n_tok > 1 and dense > 0 else 0)
    return m.used


cdef size_t qwen35moe_work_need(const pn_model *model, int n_tok, int n_out) noexcept nogil:
    cdef pn_qwen35moe_work work
    memset(&work, 0, sizeof(work))
    return layout(&work, NULL, <const pn_qwen35moe_model *>model.weights, &model.config, n_tok, n_out)


cdef pn_qwen35moe_work *qwen35moe_work(pn_model *model, int n_tok, int n_out) noexcept nogil:
    cdef pn_qwen35moe_model *w = <pn_qwen35moe_model *>model.weights
    cdef pn_qwen35moe_work *work = &w.work
    cdef size_t need
    if work.n_tok >= n_tok and work.n_out >= n_out and work.n_ranks == w.base.n_threads:
        return work
    n_tok = max(n_tok, work.n_tok)
    n_out = max(n_out, work.n_out)
    pn_fork_hold()
    need = layout(work, NULL, w, &model.config, n_tok, n_out)
    if run_memory(&w.work_memory, &w.work_bytes, need, n_tok) != NULL:
        layout(work, <uint8_t *>w.work_memory, w, &model.config, n_tok, n_out)
    else:
        memset(work, 0, sizeof(pn_qwen35moe_work))
        work = NULL
    pn_fork_release()
    return work


cdef void qwen35moe_work_begin(pn_qwen35moe_work *work, int n_tok, int n_out) noexcept nogil:
    cdef pn_qwen35moe_stream *s
    cdef int i
    for i in range(work.n_ranks if n_tok == 1 else 1):
        s = &work.ranks[i].single if n_tok == 1 else &work.shared
        input_begin(&s.embd, n_tok)
        input_begin(&s.heads, n_tok)
        input_begin(&s.values, n_tok)
        input_begin(&s.ff, n_tok)
        input_begin(&s.head, n_out)
    if n_tok > 1:
        for i in range(work.n_counters):
            pn_counter_zero(&work.counters[i])
