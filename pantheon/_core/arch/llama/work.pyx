"""Work buffers of a run of the Llama family (see llama_work.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pantheon._core.arch.llama.structs cimport (
    pn_llama_layer,
    pn_llama_model,
    pn_llama_rank,
    pn_llama_stream,
    pn_llama_work,
)
from pantheon._core.arch.run cimport run_memory
from pantheon._core.base.carver cimport carve, carve_rest, carver
from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.kernels.table cimport PN_ACT_F32, PN_ACT_ROW
from pantheon._core.layers.attention cimport attention_scratch
from pantheon._core.layers.gated cimport gated_scratch
from pantheon._core.layers.linear cimport group_panel_bytes, input_layout, pn_group
from pantheon._core.layers.moe_weights cimport moe_layout, pn_moe
from pantheon._core.types cimport pn_config, pn_model

cdef int dense_downs(const pn_llama_model *w, const pn_config *c, const pn_group **groups) noexcept nogil:
    """down of the layers without experts; returns how many there are."""
    cdef int i, n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe == NULL:
            groups[n] = &w.layers[i].down
            n += 1
    return n


cdef int expert_layers(const pn_llama_model *w, const pn_config *c, const pn_moe **layers) noexcept nogil:
    cdef int i, n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe != NULL:
            layers[n] = w.layers[i].moe
            n += 1
    return n


cdef void layout_inputs(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    """Inputs are sized for the widest need of any layer; layers of one model mix types."""
    cdef const pn_group *groups[3 * 1024]
    cdef int i, n = 0
    for i in range(c.n_layer):
        groups[n] = &w.layers[i].qkv
        if w.layers[i].moe != NULL:
            groups[n + 1] = &w.layers[i].moe.router
            groups[n + 2] = &w.layers[i].moe.reads
            n += 3
        else:
            groups[n + 1] = &w.layers[i].gate_up
            n += 2
    m.used += input_layout(&s.embd, carve_rest(m), s.normed, groups, n, n_tok)
    for i in range(c.n_layer):
        groups[i] = &w.layers[i].out
    m.used += input_layout(&s.heads, carve_rest(m), heads, groups, c.n_layer, n_tok)
    n = dense_downs(w, c, groups)
    if n > 0:
        m.used += input_layout(&s.ff, carve_rest(m), gate, groups, n, n_tok)
    groups[0] = &w.head
    m.used += input_layout(&s.head, carve_rest(m), s.normed, groups, 1, n_out)


cdef void layout_stream(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    s.x = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.normed = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.angles = <float *>carve(m, <size_t>n_tok * 2 * w.rope.n_pair * sizeof(float))
    if w.sub_norms:                      # the norms' results need room of their own: ranks share what they read
        heads = <float *>carve(m, <size_t>n_tok * c.n_head * c.head_dim * sizeof(float))
        gate = <float *>carve(m, <size_t>n_tok * c.n_ff * sizeof(float))
    layout_inputs(s, m, w, c, heads, gate, n_tok, n_out)


cdef size_t panel_bytes(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    cdef size_t most = group_panel_bytes(&w.head)
    cdef int i
    for i in range(c.n_layer):
        most = max(most, group_panel_bytes(&w.layers[i].qkv))
        most = max(most, group_panel_bytes(&w.layers[i].out))
        most = max(most, group_panel_bytes(&w.layers[i].gate_up))
        most = max(most, group_panel_bytes(&w.layers[i].down))
        if w.layers[i].moe != NULL:
            most = max(most, w.layers[i].moe.panel_bytes)
    return most


cdef bint float_ff(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    cdef int i
    for i in range(c.n_layer):
        if w.layers[i].down.kinds[<int>PN_ACT_F32] or w.layers[i].ffn_norm == NULL:
            return True
    return False


cdef bint llama_whole_ff(const pn_llama_model *w, const pn_llama_layer *layer) noexcept nogil:
    """Whether down's input must be there whole before it is quantised, so that it cannot be made in blocks."""
    return (w.squared_relu or layer.ffn_sub_norm != NULL or layer.gate_up.scattered
            or layer.down.kinds[<int>PN_ACT_ROW])


cdef size_t llama_work_layout(pn_llama_work *work, uint8_t *base, const pn_llama_model *w, const pn_config *c,
                              int n_tok, int n_out) noexcept nogil:
    """Buffers of a run of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns the bytes."""
    cdef carver m
    cdef size_t q = <size_t>n_tok * c.n_head * c.head_dim * sizeof(float)
    cdef size_t kv = <size_t>n_tok * c.n_kv_head * c.head_dim * sizeof(float)
    cdef pn_llama_rank scratch
    cdef pn_llama_rank *rank = &scratch
    cdef const pn_group *downs[1024]
    cdef const pn_moe *moes[1024]
    cdef int r, n_moe = expert_layers(w, c, moes)
    cdef size_t n_ff = c.n_ff if dense_downs(w, c, downs) > 0 else 0
    cdef size_t delta = <size_t>n_tok * c.n_embd * sizeof(float)
    cdef bint whole = False
    for r in range(c.n_layer):
        whole = whole or w.layers[r].moe == NULL and llama_whole_ff(w, &w.layers[r])
    m.base = base
    m.used = 0
    work.n_tok = n_tok
    work.n_out = n_out
    work.n_ranks = w.base.n_threads
    work.ranks = <pn_llama_rank *>carve(&m, work.n_ranks * sizeof(pn_llama_rank))
    work.counters = <pn_counter *>carve(&m, (LLAMA_LAYER_COUNTERS * c.n_layer + 1) * sizeof(pn_counter))
    work.q = <float *>carve(&m, q)
    work.k = <float *>carve(&m, kv)
    work.v = <float *>carve(&m, kv)
    work.heads = <float *>carve(&m, q)
    work.gate = <float *>carve(&m, (n_tok if whole else 1) * n_ff * sizeof(float))
    work.up = <float *>carve(&m, (n_tok if whole else 1) * n_ff * sizeof(float))
    work.gated = work.gate if whole else NULL
    if not whole and n_tok > 1 and float_ff(w, c):
        work.gated = <float *>carve(&m, n_tok * n_ff * sizeof(float))
    work.delta = <float *>carve(&m, delta)
    work.delta_ffn = <float *>carve(&m, delta) if w.layers[0].ffn_norm == NULL else NULL
    if n_moe > 0:
        m.used += moe_layout(&work.moe, carve_rest(&m), moes, n_moe, n_tok, work.n_ranks)
    if n_tok > 1:
        layout_stream(&work.shared, &m, w, c, work.heads, work.gated, n_tok, n_out)
    for r in range(work.n_ranks):
        if base != NULL:
            rank = &work.ranks[r]
        layout_stream(&rank.single, &m, w, c, work.heads, work.gate, 1, 1)
        rank.attention = <uint8_t *>carve(&m, attention_scratch(c.n_head, c.n_kv_head, c.head_dim))
        rank.panel = <uint8_t *>carve(&m, panel_bytes(w, c) if n_tok > 1 else 0)
        rank.gated = <uint8_t *>carve(&m, gated_scratch(n_tok) if n_tok > 1 else 0)
    return m.used


cdef pn_llama_work *llama_work(pn_model *model, int n_tok, int n_out) noexcept nogil:
    """The model's buffers of prefill and batch, grown to n_tok tokens and n_out logits; NULL when there is no
    memory."""
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_work *work = &w.work
    cdef size_t need
    if work.n_tok >= n_tok and work.n_out >= n_out and work.n_ranks == w.base.n_threads:
        return work
    n_tok = max(n_tok, work.n_tok)
    n_out = max(n_out, work.n_out)
    pn_fork_hold()
    need = llama_work_layout(work, NULL, w, &model.config, n_tok, n_out)
    if run_memory(&w.work_memory, &w.work_bytes, need, n_tok) != NULL:
        llama_work_layout(work, <uint8_t *>w.work_memory, w, &model.config, n_tok, n_out)
    else:
        memset(work, 0, sizeof(pn_llama_work))
        work = NULL
    pn_fork_release()
    return work
