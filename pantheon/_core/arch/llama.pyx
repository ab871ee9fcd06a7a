"""The dense transformer family: Llama 2/3, Mistral, Qwen2, Qwen3.

x = embedding; per layer x += out(attention(norm(x))), x += down(silu(gate(norm(x))) * up(norm(x)));
logits = head(norm(x)).

One layer function serves the single token, the prefill chunk and the batch. All ranks of a run execute it together and
meet at barriers. With several tokens, ranks split them for norms and quantisation; a single token is normed and
quantised by every rank for itself, which costs less than a barrier.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.llama_load cimport llama_load_tensors
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arena cimport (
    compute_arena_size,
    pn_arena_alloc,
    pn_arena_free,
    pn_arena_new,
    pn_arena_reset,
    pn_arena_size,
)
from pantheon._core.attention cimport attention, attention_heads, attention_scratch, pn_attn_step
from pantheon._core.config cimport config_from_gguf, config_validate
from pantheon._core.gguf cimport gguf_file
from pantheon._core.kernels.table cimport PN_F32, pn_kernels_active
from pantheon._core.kvcache cimport (
    kvcache_cost,
    kvcache_free,
    kvcache_k,
    kvcache_new,
    kvcache_reset,
    kvcache_v,
    pn_llama_kv_cache,
)
from pantheon._core.linear cimport (
    TOKENS_ALIGN,
    group_panel_bytes,
    group_prefetch,
    group_product,
    input_begin,
    input_layout,
    input_prepare,
    pn_group,
    pn_team,
    team_barrier,
    team_range,
)
from pantheon._core.memory.state cimport pn_cost
from pantheon._core.pool cimport fw_pool_run, pn_counter, pn_counter_zero
from pantheon._core.report cimport pn_interrupted, pn_set_error, pn_set_no_memory
from pantheon._core.rope cimport rope_angles, rope_free
from pantheon._core.tensor cimport owned_free
from pantheon._core.types cimport (
    PN_ROPE_NEOX,
    fw_pool,
    pn_arch,
    pn_config,
    pn_kv_type,
    pn_model,
    pn_rope_kind,
    pn_state,
    tm_tensor,
)

cdef enum:
    PREFILL_WINDOW = 256                 # most tokens of one pass: their buffers stay within the outer caches

cdef struct llama_job:                   # one run
    const pn_config *c
    pn_llama_model *w
    pn_llama_work *work
    fw_pool *pool
    int n_tok
    const uint32_t *tokens               # (n_tok,)
    const float *embd_override           # (n_embd,) or NULL: in place of the only token's row
    int first_out                        # logits are wanted for tokens first_out.. to the last
    float *logits                        # (n_tok - first_out, n_vocab)
    pn_attn_step attn
    bint stop                            # set by rank 0 when the caller wants to stop

# ---- layer -----------------------------------------------------------------------------------------------------------

cdef void add_bias(llama_job *job, float *x, const float *bias, int n) noexcept nogil:
    if bias != NULL:
        job.w.k.add(x, bias, n)


cdef void embed(llama_job *job, pn_llama_stream *s, int t0, int t1) noexcept nogil:
    """Rows of the embedding table and rotation angles of tokens [t0, t1)."""
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        if job.embd_override != NULL:
            memcpy(s.x + t * n, job.embd_override, n * sizeof(float))
        else:
            job.w.embd.ops.dequant(job.w.embd.data + job.tokens[t] * job.w.embd.row_bytes, s.x + t * n, n)
        rope_angles(&job.w.rope, job.attn.pos[t], s.angles + <size_t>t * 2 * job.w.rope.n_pair)


cdef void norm_and_prepare(llama_job *job, const pn_team *team, pn_llama_stream *s, const float *norm,
                           const pn_group *g, int t0, int t1) noexcept nogil:
    """Norm of the residual stream and the forms of it that g reads, for tokens [t0, t1)."""
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        job.w.k.rms_norm(s.x + t * n, norm, job.c.norm_eps, job.c.n_embd, s.normed + t * n)
    input_prepare(team, &s.embd, g, t0, t1)


cdef void add_delta(llama_job *job, pn_llama_stream *s, const float *bias, int t0, int t1) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        job.w.k.add(s.x + t * n, job.work.delta + t * n, job.c.n_embd)
        add_bias(job, s.x + t * n, bias, job.c.n_embd)


cdef void rotate_heads(llama_job *job, float *x, const float *norm, const float *cs, int h0, int h1) noexcept nogil:
    """Per-head norm and rotation of heads [h0, h1) of one token's q or k."""
    cdef int h, dim = job.c.head_dim
    if norm != NULL:
        for h in range(h0, h1):
            job.w.k.rms_norm(x + h * dim, norm, job.c.norm_eps, dim, x + h * dim)
    if job.c.rope_kind == PN_ROPE_NEOX:
        job.w.k.rope_neox(x + h0 * dim, h1 - h0, dim, cs, job.w.rope.n_pair)
    else:
        job.w.k.rope_norm(x + h0 * dim, h1 - h0, dim, cs, job.w.rope.n_pair)


cdef void rotate_and_store(llama_job *job, pn_team *team, pn_llama_stream *s, const pn_llama_layer *layer, int l,
                           int t0, int t1) noexcept nogil:
    """Biases, head norms and rotation of q and k; k and v go into the caches. A single token is split by heads."""
    cdef const pn_config *c = job.c
    cdef int dim = c.head_dim, q0 = 0, q1 = c.n_head, k0 = 0, k1 = c.n_kv_head, t, h, pos
    cdef float *q
    cdef float *k
    cdef float *v
    cdef pn_llama_kv_cache *kv
    if job.n_tok == 1:
        attention_heads(team, c.n_head, &q0, &q1)
        team_range(team, c.n_kv_head, 1, &k0, &k1)
    for t in range(t0, t1):
        q = job.work.q + <size_t>t * c.n_head * dim
        k = job.work.k + <size_t>t * c.n_kv_head * dim
        v = job.work.v + <size_t>t * c.n_kv_head * dim
        kv = job.attn.caches[t]
        pos = job.attn.pos[t]
        if layer.q_bias != NULL:
            job.w.k.add(q + q0 * dim, layer.q_bias + q0 * dim, (q1 - q0) * dim)
        if layer.k_bias != NULL:
            job.w.k.add(k + k0 * dim, layer.k_bias + k0 * dim, (k1 - k0) * dim)
        if layer.v_bias != NULL:
            job.w.k.add(v + k0 * dim, layer.v_bias + k0 * dim, (k1 - k0) * dim)
        rotate_heads(job, q, layer.q_norm, s.angles + <size_t>t * 2 * job.w.rope.n_pair, q0, q1)
        rotate_heads(job, k, layer.k_norm, s.angles + <size_t>t * 2 * job.w.rope.n_pair, k0, k1)
        for h in range(k0, k1):
            kv.ops.store_k(kvcache_k(kv, l, h), pos, dim, k + h * dim)
            kv.ops.store_v(kvcache_v(kv, l, h), pos, dim, v + h * dim)


cdef void gated(llama_job *job, const pn_llama_layer *layer, int t0, int t1, int r0, int r1) noexcept nogil:
    """gate = silu(gate) * up for tokens [t0, t1), features [r0, r1)."""
    cdef int t
    cdef float *gate
    cdef float *up
    for t in range(t0, t1):
        gate = job.work.gate + <size_t>t * job.c.n_ff
        up = job.work.up + <size_t>t * job.c.n_ff
        if layer.gate_bias != NULL:
            job.w.k.add(gate + r0, layer.gate_bias + r0, r1 - r0)
        if layer.up_bias != NULL:
            job.w.k.add(up + r0, layer.up_bias + r0, r1 - r0)
        job.w.k.silu_mul(gate + r0, up + r0, r1 - r0)


cdef void llama_layer(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    """Layer l; on entry the residual stream is whole and its norm is prepared for qkv, on exit so for the next
    layer."""
    cdef const pn_config *c = job.c
    cdef pn_llama_layer *layer = &job.w.layers[l]
    cdef pn_llama_work *work = job.work
    cdef bint several = job.n_tok > 1
    cdef int r0 = 0, r1 = c.n_ff
    cdef float *y[3]
    cdef size_t ldy[3]

    y[0], y[1], y[2] = work.q, work.k, work.v
    ldy[0], ldy[1] = <size_t>c.n_head * c.head_dim, <size_t>c.n_kv_head * c.head_dim
    ldy[2] = ldy[1]
    group_product(team, &layer.qkv, &s.embd, y, ldy)
    team_barrier(team)
    rotate_and_store(job, team, s, layer, l, t0, t1)
    team_barrier(team)
    attention(team, &job.attn, l, work.ranks[team.rank].attention)
    if not several:
        group_prefetch(team, &layer.out)
    team_barrier(team)

    input_prepare(team, &s.heads, &layer.out, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = work.delta, c.n_embd
    group_product(team, &layer.out, &s.heads, y, ldy)
    if not several:
        group_prefetch(team, &layer.gate_up)
    team_barrier(team)

    add_delta(job, s, layer.out_bias, t0, t1)
    norm_and_prepare(job, team, s, layer.ffn_norm, &layer.gate_up, t0, t1)
    if several:
        team_barrier(team)
    y[0], y[1] = work.gate, work.up
    ldy[0], ldy[1] = c.n_ff, c.n_ff
    group_product(team, &layer.gate_up, &s.embd, y, ldy)
    if several:
        team_barrier(team)
    else:
        team_range(team, c.n_ff, 8, &r0, &r1)        # the rows that this rank computed
    gated(job, layer, t0, t1, r0, r1)
    if not several:
        group_prefetch(team, &layer.down)
        team_barrier(team)
    input_prepare(team, &s.ff, &layer.down, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = work.delta, c.n_embd
    group_product(team, &layer.down, &s.ff, y, ldy)
    if not several:
        group_prefetch(team, &job.w.layers[l + 1].qkv if l + 1 < c.n_layer else &job.w.head)
    team_barrier(team)
    add_delta(job, s, layer.down_bias, t0, t1)
    if l + 1 < c.n_layer:
        norm_and_prepare(job, team, s, job.w.layers[l + 1].attn_norm, &job.w.layers[l + 1].qkv, t0, t1)
    if several:
        team_barrier(team)


cdef void logits(llama_job *job, pn_team *team, pn_llama_stream *s) noexcept nogil:
    cdef int n_out = job.n_tok - job.first_out
    cdef int o, o0 = 0, o1 = 1
    cdef size_t n = job.c.n_embd
    cdef float *y[1]
    cdef size_t ldy[1]
    if job.n_tok > 1:
        team_range(team, n_out, TOKENS_ALIGN, &o0, &o1)
    for o in range(o0, o1):
        job.w.k.rms_norm(s.x + (job.first_out + o) * n, job.w.output_norm, job.c.norm_eps, job.c.n_embd,
                         s.normed + o * n)
    input_prepare(team, &s.head, &job.w.head, o0, o1)
    if job.n_tok > 1:
        team_barrier(team)
    y[0], ldy[0] = job.logits, job.c.n_vocab
    group_product(team, &job.w.head, &s.head, y, ldy)


cdef void llama_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef llama_job *job = <llama_job *>arg
    cdef pn_llama_work *work = job.work
    cdef pn_llama_stream *s = &work.ranks[rank].single if job.n_tok == 1 else &work.shared
    cdef pn_team team
    cdef int t0 = 0, t1 = 1, i
    team.k = job.w.k
    team.pool = job.pool
    team.rank = rank
    team.n = n
    team.counters = work.counters
    team.next_counter = 0
    team.panel = work.ranks[rank].panel
    if job.n_tok > 1:
        team_range(&team, job.n_tok, TOKENS_ALIGN, &t0, &t1)
    embed(job, s, t0, t1)
    norm_and_prepare(job, &team, s, job.w.layers[0].attn_norm, &job.w.layers[0].qkv, t0, t1)
    if job.n_tok > 1:
        team_barrier(&team)
    for i in range(job.c.n_layer):
        llama_layer(job, &team, s, i, t0, t1)
        if job.n_tok > 1:
            if rank == 0 and pn_interrupted():
                job.stop = True
            team_barrier(&team)
            if job.stop:
                return
    logits(job, &team, s)


# ---- work buffers ----------------------------------------------------------------------------------------------------

cdef struct carver:
    uint8_t *base                        # NULL: only counts
    size_t used


cdef inline void *carve(carver *m, size_t n) noexcept nogil:
    cdef void *p = m.base + m.used if m.base != NULL else NULL
    m.used += (n + 63) // 64 * 64
    return p


cdef inline uint8_t *rest(carver *m) noexcept nogil:
    return m.base + m.used if m.base != NULL else NULL


cdef void layout_inputs(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    """Inputs are sized for the widest need of any layer; layers of one model mix types."""
    cdef const pn_group *groups[2048]
    cdef int i
    for i in range(c.n_layer):
        groups[2 * i] = &w.layers[i].qkv
        groups[2 * i + 1] = &w.layers[i].gate_up
    m.used += input_layout(&s.embd, rest(m), s.normed, groups, 2 * c.n_layer, n_tok)
    for i in range(c.n_layer):
        groups[i] = &w.layers[i].out
    m.used += input_layout(&s.heads, rest(m), heads, groups, c.n_layer, n_tok)
    for i in range(c.n_layer):
        groups[i] = &w.layers[i].down
    m.used += input_layout(&s.ff, rest(m), gate, groups, c.n_layer, n_tok)
    groups[0] = &w.head
    m.used += input_layout(&s.head, rest(m), s.normed, groups, 1, n_out)


cdef void layout_stream(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    s.x = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.normed = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.angles = <float *>carve(m, <size_t>n_tok * 2 * w.rope.n_pair * sizeof(float))
    layout_inputs(s, m, w, c, heads, gate, n_tok, n_out)


cdef size_t panel_bytes(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    cdef size_t most = group_panel_bytes(&w.head)
    cdef int i
    for i in range(c.n_layer):
        most = max(most, group_panel_bytes(&w.layers[i].qkv))
        most = max(most, group_panel_bytes(&w.layers[i].out))
        most = max(most, group_panel_bytes(&w.layers[i].gate_up))
        most = max(most, group_panel_bytes(&w.layers[i].down))
    return most


cdef size_t work_layout(pn_llama_work *work, uint8_t *base, const pn_llama_model *w, const pn_config *c, int n_tok,
                        int n_out) noexcept nogil:
    """Buffers of a run of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns the bytes."""
    cdef carver m
    cdef size_t q = <size_t>n_tok * c.n_head * c.head_dim * sizeof(float)
    cdef size_t kv = <size_t>n_tok * c.n_kv_head * c.head_dim * sizeof(float)
    cdef size_t ff = <size_t>n_tok * c.n_ff * sizeof(float)
    cdef pn_llama_rank scratch
    cdef pn_llama_rank *rank = &scratch
    cdef int r
    m.base = base
    m.used = 0
    work.n_tok = n_tok
    work.n_out = n_out
    work.n_ranks = w.base.n_threads
    work.ranks = <pn_llama_rank *>carve(&m, work.n_ranks * sizeof(pn_llama_rank))
    work.counters = <pn_counter *>carve(&m, (5 * c.n_layer + 1) * sizeof(pn_counter))
    work.q = <float *>carve(&m, q)
    work.k = <float *>carve(&m, kv)
    work.v = <float *>carve(&m, kv)
    work.heads = <float *>carve(&m, q)
    work.gate = <float *>carve(&m, ff)
    work.up = <float *>carve(&m, ff)
    work.delta = <float *>carve(&m, <size_t>n_tok * c.n_embd * sizeof(float))
    if n_tok > 1:
        layout_stream(&work.shared, &m, w, c, work.heads, work.gate, n_tok, n_out)
    for r in range(work.n_ranks):
        if base != NULL:
            rank = &work.ranks[r]
        layout_stream(&rank.single, &m, w, c, work.heads, work.gate, 1, 1)
        rank.attention = <uint8_t *>carve(&m, attention_scratch(c.n_head, c.n_kv_head, c.head_dim))
        rank.panel = <uint8_t *>carve(&m, panel_bytes(w, c) if n_tok > 1 else 0)
    return m.used


cdef pn_llama_work *work_of(pn_model *model, int n_tok, int n_out) noexcept nogil:
    """The model's buffers of prefill and batch, grown to n_tok tokens and n_out logits; NULL when there is no
    memory."""
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_work *work = &w.work
    cdef size_t need
    if work.n_tok >= n_tok and work.n_out >= n_out and work.n_ranks == w.base.n_threads:
        return work
    n_tok = max(n_tok, work.n_tok)
    n_out = max(n_out, work.n_out)
    need = work_layout(work, NULL, w, &model.config, n_tok, n_out)
    free(w.work_memory)
    w.work_memory = calloc(1, need + 64)
    w.work_bytes = need + 64
    if w.work_memory == NULL:
        memset(work, 0, sizeof(pn_llama_work))
        w.work_bytes = 0
        pn_set_no_memory(b"no memory for the %lld bytes of %lld tokens of work buffers", need, n_tok)
        return NULL
    work_layout(work, <uint8_t *>((<size_t>w.work_memory + 63) // 64 * 64), w, &model.config, n_tok, n_out)
    return work


# ---- entry points ----------------------------------------------------------------------------------------------------

cdef void begin(llama_job *job, pn_model *model, pn_llama_work *work, int n_tok, int first_out) noexcept nogil:
    """Fills what all kinds of run share."""
    cdef int i
    cdef pn_llama_stream *s
    memset(job, 0, sizeof(llama_job))
    job.c = &model.config
    job.w = <pn_llama_model *>model.weights
    job.work = work
    job.pool = model.pool
    job.n_tok = n_tok
    job.first_out = first_out
    job.attn.n_tok = n_tok
    job.attn.n_head = model.config.n_head
    job.attn.n_kv_head = model.config.n_kv_head
    job.attn.head_dim = model.config.head_dim
    job.attn.scale = model.config.attn_scale
    job.attn.window = model.config.sliding_window
    job.attn.q = work.q
    job.attn.out = work.heads
    for i in range(work.n_ranks if n_tok == 1 else 1):
        s = &work.ranks[i].single if n_tok == 1 else &work.shared
        input_begin(&s.embd, n_tok)
        input_begin(&s.heads, n_tok)
        input_begin(&s.ff, n_tok)
        input_begin(&s.head, n_tok - first_out)
    if n_tok > 1:
        for i in range(5 * model.config.n_layer + 1):
            pn_counter_zero(&work.counters[i])


cdef int run(llama_job *job) noexcept nogil:
    fw_pool_run(job.pool, llama_task, job, job.work.n_ranks)
    if job.stop:
        pn_set_error(b"interrupted", 0, 0)
        return -1
    return 0


cdef int check(pn_model *model, uint32_t token, const pn_state *state, int n) noexcept nogil:
    """Refuses a token outside the vocabulary and positions outside the context."""
    cdef const pn_llama_kv_cache *kv = <const pn_llama_kv_cache *>state.kv_cache
    if token >= <uint32_t>model.config.n_vocab:
        pn_set_error(b"token %lld is not below n_vocab %lld", token, model.config.n_vocab)
        return -1
    if n > kv.n_ctx - state.pos:
        pn_set_error(b"%lld more positions do not fit: n_ctx is %lld", n, kv.n_ctx)
        return -1
    return 0


cdef void advance(pn_state *state, int n) noexcept nogil:
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    state.pos += n
    kv.high = max(kv.high, state.pos)


cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    cdef pn_llama_work work
    cdef llama_job job
    cdef size_t need = work_layout(&work, NULL, w, &model.config, 1, 1)
    cdef void *memory
    cdef tm_tensor *out
    cdef float *values
    if check(model, token, state, 1) != 0:
        return NULL
    pn_arena_reset(state.arena)
    memory = pn_arena_alloc(state.arena, need + 64)
    out = <tm_tensor *>pn_arena_alloc(state.arena, sizeof(tm_tensor))
    values = <float *>pn_arena_alloc(state.arena, model.config.n_vocab * sizeof(float))
    if memory == NULL or out == NULL or values == NULL:
        pn_set_error(b"the arena of %lld bytes is too small for a forward", pn_arena_size(state.arena), 0)
        return NULL
    work_layout(&work, <uint8_t *>((<size_t>memory + 63) // 64 * 64), w, &model.config, 1, 1)
    begin(&job, model, &work, 1, 0)
    job.tokens = &token
    job.embd_override = state.embd_override
    job.logits = values
    job.attn.caches = &kv
    job.attn.pos = &state.pos
    run(&job)
    advance(state, 1)
    memset(out, 0, sizeof(tm_tensor))
    out.data = values
    out.type = PN_F32
    out.ne[0] = model.config.n_vocab
    out.ne[1] = out.ne[2] = out.ne[3] = 1
    out.nb[0] = sizeof(float)
    out.nb[1] = out.nb[2] = out.nb[3] = out.ne[0] * sizeof(float)
    memcpy(out.name, b"logits", 7)
    return out


cdef int pn_llama_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                          bint all) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    cdef pn_llama_kv_cache *caches[PREFILL_WINDOW]
    cdef int pos[PREFILL_WINDOW]
    cdef int window = min(max(w.base.prefill_window, 1), <int>PREFILL_WINDOW)
    cdef int first = 0, n_tok, i
    cdef pn_llama_work *work
    cdef llama_job job
    for i in range(n):
        if check(model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(window, n - first)
        work = work_of(model, n_tok, n_tok if all else 1)
        if work == NULL:
            return -1
        for i in range(n_tok):
            caches[i] = kv
            pos[i] = state.pos + i
        begin(&job, model, work, n_tok, 0 if all else n_tok - 1)
        job.tokens = tokens + first
        job.logits = logits_out + (<size_t>first * model.config.n_vocab if all else 0)
        job.attn.one_sequence = True
        job.attn.caches = caches
        job.attn.pos = pos
        if run(&job) != 0:
            return -1
        advance(state, n_tok)
        first += n_tok
    return 0


cdef int pn_llama_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                                float *logits_out) noexcept nogil:
    cdef pn_llama_kv_cache *caches[PREFILL_WINDOW]
    cdef int pos[PREFILL_WINDOW]
    cdef int first = 0, n_tok, i
    cdef pn_llama_work *work
    cdef llama_job job
    for i in range(n):
        if check(model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(<int>PREFILL_WINDOW, n - first)
        work = work_of(model, n_tok, n_tok)
        if work == NULL:
            return -1
        for i in range(n_tok):
            caches[i] = <pn_llama_kv_cache *>states[first + i].kv_cache
            pos[i] = states[first + i].pos
        begin(&job, model, work, n_tok, 0)
        job.tokens = tokens + first
        job.logits = logits_out + <size_t>first * model.config.n_vocab
        job.attn.caches = caches
        job.attn.pos = pos
        if run(&job) != 0:
            return -1
        for i in range(n_tok):
            advance(states[first + i], 1)
        first += n_tok
    return 0


# ---- life of models and states ---------------------------------------------------------------------------------------

cdef int load(pn_model *model, const pn_arch_ops *self, gguf_file *f, str path) except -1:
    cdef pn_llama_model *w
    model.config.rope_kind = self.rope_kind
    config_from_gguf(&model.config, f, self.name.decode(), path)
    config_validate(&model.config, path)
    if model.config.n_experts > 0:
        raise ValueError(f"{path}: {self.name.decode()} with {model.config.n_experts} experts is not supported")
    w = <pn_llama_model *>calloc(1, sizeof(pn_llama_model))
    if w == NULL:
        raise MemoryError()
    model.weights = w
    w.k = pn_kernels_active()
    w.base.prefill_window = PREFILL_WINDOW
    try:
        llama_load_tensors(w, &model.config, f, path)
    except BaseException:
        unload(model)
        raise
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    if w != NULL:
        rope_free(&w.rope)
        owned_free(&w.owned)
        free(w.work_memory)
        free(w)
    model.weights = NULL


cdef size_t arena_bytes(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    """Scratch of a single-token forward: the work buffers, the logits and their tensor; a multiple of 16."""
    cdef pn_llama_work work
    cdef size_t need = work_layout(&work, NULL, w, c, 1, 1) + 64 + sizeof(tm_tensor) + 64
    need += c.n_vocab * sizeof(float)
    return (max(compute_arena_size(c), need) + 15) // 16 * 16


cdef int state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    state.kv_cache = kvcache_new(&model.config, n_ctx, type)
    state.arena = pn_arena_new(arena_bytes(w, &model.config))
    return 0


cdef void state_reset(pn_state *state) noexcept nogil:
    kvcache_reset(<pn_llama_kv_cache *>state.kv_cache)


cdef void state_free(pn_state *state) noexcept nogil:
    kvcache_free(<pn_llama_kv_cache *>state.kv_cache)
    pn_arena_free(state.arena)


cdef int state_truncate(pn_state *state, int pos) noexcept nogil:
    state.pos = pos                      # what lies behind is never read again before it is overwritten
    return 0


cdef int state_n_ctx(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).n_ctx


cdef pn_kv_type state_kv_type(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).type


cdef size_t state_bytes(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).nbytes + pn_arena_size(state.arena)


cdef void cost(const pn_model *model, pn_kv_type type, int window, pn_cost *cost) noexcept nogil:
    cdef const pn_llama_model *w = <const pn_llama_model *>model.weights
    cdef const pn_config *c = &model.config
    cdef pn_llama_work work
    kvcache_cost(c, c.n_layer, type, cost)
    cost.window = max(1, min(window, min(w.base.prefill_window, <int>PREFILL_WINDOW)))
    cost.state_bytes = arena_bytes(w, c)
    cost.scratch_bytes = work_layout(&work, NULL, w, c, cost.window, 1) + 64
    cost.logits_bytes = c.n_vocab * sizeof(float)


cdef size_t work_bytes(const pn_model *model) noexcept nogil:
    return (<const pn_llama_model *>model.weights).work_bytes


cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil:
    cdef pn_arch_ops ops
    ops.name = name
    ops.arch = arch
    ops.rope_kind = rope_kind
    ops.load = load
    ops.unload = unload
    ops.forward = pn_llama_forward
    ops.prefill = pn_llama_prefill
    ops.forward_batch = pn_llama_forward_batch
    ops.state_new = state_new
    ops.state_reset = state_reset
    ops.state_free = state_free
    ops.state_truncate = state_truncate
    ops.state_n_ctx = state_n_ctx
    ops.state_kv_type = state_kv_type
    ops.state_bytes = state_bytes
    ops.cost = cost
    ops.work_bytes = work_bytes
    return ops
