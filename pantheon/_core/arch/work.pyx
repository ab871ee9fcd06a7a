"""Buffers of runs (see work.pxd for the contract)."""
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.structs cimport (
    IN_EMBD,
    IN_HEAD,
    MAX_INPUTS,
    WORK_WORDS,
    pn_layout,
    pn_layout_input,
    pn_rank,
    pn_stream,
    pn_work,
)
from pantheon._core.base.carver cimport carve, carve_floats
from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.pages cimport pn_pages_free, pn_pages_new
from pantheon._core.base.pool cimport pn_counter, pn_counter_zero
from pantheon._core.base.report cimport pn_set_no_memory
from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.linear cimport group_panel_bytes, input_begin, input_layout, pn_group, pn_input, reads_add
from pantheon._core.layers.moe_weights cimport moe_layout, moe_reads_add, pn_moe, pn_moe_work
from pantheon._core.types cimport pn_model


cdef void layout_reads(pn_layout *l, int input, const pn_group *g) noexcept nogil:
    reads_add(&l.input[input].reads, g, l.n_out if input == IN_HEAD else l.n_tok)
    l.panel = max(l.panel, group_panel_bytes(g))


cdef void layout_experts(pn_layout *l, const pn_moe *moe) noexcept nogil:
    layout_reads(l, IN_EMBD, &moe.router)
    layout_reads(l, IN_EMBD, &moe.reads)
    l.panel = max(l.panel, moe.panel_bytes)
    moe_reads_add(&l.moe, moe)


cdef void layout_input(pn_layout *l, int input, float *shared, float *single) noexcept nogil:
    l.input[input].given = True
    l.input[input].shared = shared
    l.input[input].single = single


cdef float *layout_floats(pn_layout *l, size_t n) noexcept nogil:
    return carve_floats(&l.m, l.n_tok, n)


cdef void place_stream(pn_stream *s, pn_layout *l, int n_inputs, bint shared) noexcept nogil:
    cdef pn_input nowhere
    cdef pn_layout_input *x
    cdef float *f
    cdef int i, n, n_tok = l.n_tok if shared else 1
    s.x = carve_floats(&l.m, n_tok, l.c.n_embd)
    s.normed = carve_floats(&l.m, n_tok, l.c.n_embd)
    s.angles = carve_floats(&l.m, n_tok, l.n_angles)
    s.input = <pn_input *>carve(&l.m, n_inputs * sizeof(pn_input))
    for i in range(n_inputs):
        x = &l.input[i]
        n = l.n_out if shared and i == IN_HEAD else n_tok
        if i == IN_HEAD or i == IN_EMBD:
            f = s.normed
        elif x.given:
            f = x.shared if shared else x.single
        else:
            f = carve_floats(&l.m, n, x.reads.n)
        input_layout(&s.input[i] if l.m.base != NULL else &nowhere, &l.m, f, &x.reads, n)


cdef size_t place(const pn_model *model, pn_work *work, uint8_t *memory, int n_tok, int n_out) noexcept nogil:
    """The struct, its pn_work included, begins the memory; without memory it is only filled. Returns the bytes."""
    cdef const pn_arch_weights *w = <const pn_arch_weights *>model.weights
    cdef pn_layout l
    cdef pn_moe_work moe
    cdef pn_rank nobody
    cdef pn_rank *rank = &nobody
    cdef int r
    memset(&l, 0, sizeof(l))
    memset(work, 0, w.ops.work_size)
    l.m.base = memory
    l.c = &model.config
    l.w = w
    work.n_tok = l.n_tok = n_tok
    work.n_out = l.n_out = n_out
    work.n_ranks = l.n_ranks = w.n_threads
    carve(&l.m, w.ops.work_size)
    w.ops.walk(&l, work)
    work.n_inputs = MAX_INPUTS
    while work.n_inputs > 0 and l.input[work.n_inputs - 1].reads.n == 0:
        work.n_inputs -= 1
    work.n_counters = l.n_counters + 1               # of the LM head
    work.counters = <pn_counter *>carve(&l.m, work.n_counters * sizeof(pn_counter))
    work.caches = <pn_llama_kv_cache **>carve(&l.m, n_tok * sizeof(pn_llama_kv_cache *))
    work.pos = <int *>carve(&l.m, n_tok * sizeof(int))
    work.delta = layout_floats(&l, l.c.n_embd)
    if l.moe.moe != NULL:
        work.moe = <pn_moe_work *>carve(&l.m, sizeof(pn_moe_work))
        moe_layout(work.moe if memory != NULL else &moe, &l.m, &l.moe, n_tok, l.n_ranks)
    if n_tok > 1:
        place_stream(&work.shared, &l, work.n_inputs, True)
    work.ranks = <pn_rank *>carve(&l.m, l.n_ranks * sizeof(pn_rank))
    for r in range(l.n_ranks):
        if memory != NULL:
            rank = &work.ranks[r]
        place_stream(&rank.single, &l, work.n_inputs, False)
        rank.mixer = <uint8_t *>carve(&l.m, l.mixer)
        rank.panel = <uint8_t *>carve(&l.m, l.panel if n_tok > 1 else 0)
        rank.gated = <uint8_t *>carve(&l.m, l.gated if n_tok > 1 else 0)
    return l.m.used


cdef size_t work_need(const pn_model *model, int n_tok, int n_out) noexcept nogil:
    cdef uint64_t room[WORK_WORDS]
    return place(model, <pn_work *>room, NULL, n_tok, n_out)


cdef pn_work *work_place(const pn_model *model, uint8_t *memory, int n_tok, int n_out) noexcept nogil:
    place(model, <pn_work *>memory, memory, n_tok, n_out)
    return <pn_work *>memory


cdef pn_work *work_grown(pn_model *model, int n_tok, int n_out) noexcept nogil:
    cdef pn_arch_weights *w = <pn_arch_weights *>model.weights
    cdef void *memory
    if w.work != NULL:
        if w.work.n_tok >= n_tok and w.work.n_out >= n_out and w.work.n_ranks == w.n_threads:
            return w.work
        n_tok = max(n_tok, w.work.n_tok)
        n_out = max(n_out, w.work.n_out)
    pn_fork_hold()
    pn_pages_free(w.work, w.work_bytes)
    w.work = NULL
    w.work_bytes = work_need(model, n_tok, n_out)
    memory = pn_pages_new(w.work_bytes)
    if memory != NULL:
        w.work = work_place(model, <uint8_t *>memory, n_tok, n_out)
    else:
        pn_set_no_memory(b"no memory for the %zu bytes of %d tokens of work buffers", w.work_bytes, n_tok)
        w.work_bytes = 0
    pn_fork_release()
    return w.work


cdef void work_begin(pn_work *work, int n_tok, int n_out) noexcept nogil:
    cdef int i
    if n_tok == 1:                       # streams of single tokens are begun where they are placed
        return
    for i in range(work.n_inputs):
        input_begin(&work.shared.input[i], n_out if i == IN_HEAD else n_tok)
    for i in range(work.n_counters):
        pn_counter_zero(&work.counters[i])
