"""RWKV-X: RWKV-7 blocks and attention blocks over remembered tokens (see rwkvx.pxd).

x = norm(embedding); every block adds to x; logits = head(norm(x)). After `interval` RWKV-7 blocks comes an attention
block, which has no notion of position.

Memory mode: a prompt (a prefill of several tokens) attends causally to itself; then it leaves in memory the tokens that
the state of the RWKV-7 block before restores worst, in place of what was there. A single token attends to that memory
and adds nothing. So a prompt is one call, worked through block by block in windows of RX_WINDOW tokens, and the result
of two calls is not that of one. Full mode, and a model without attention blocks: every token is remembered, and any cut
of a prompt gives the same bits.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from pantheon._core.arch.ops cimport pn_arch_ops, pn_run_sizes
from pantheon._core.arch.run cimport (
    pn_run,
    pn_run_ops,
    run_batch,
    run_check,
    run_check_files,
    run_embed,
    run_execute,
    run_of,
    run_pass,
    run_stopped,
    run_team,
)
from pantheon._core.arch.rwkv.attn cimport rwkvx_attention, rwkvx_select
from pantheon._core.arch.rwkv.load cimport rwkvx_load, rwkvx_unload
from pantheon._core.arch.rwkv.rwkv7 cimport rwkv7_block
from pantheon._core.arch.rwkv.state cimport (
    rx_keep_count,
    rx_restore,
    rx_snapshot,
    rx_snapshot_bytes,
    rx_state_bytes,
    rx_state_cost,
    rx_state_free,
    rx_state_kv_type,
    rx_state_n_ctx,
    rx_state_new,
    rx_state_reset,
    rx_state_truncate,
)
from pantheon._core.arch.rwkv.structs cimport (
    RX_COUNTERS,
    RX_LORAS,
    RX_MIXES,
    RX_WINDOW,
    pn_rwkvx_model,
    rx_job,
    rx_prompt,
    rx_state,
    rx_stream,
    rx_view,
    rx_work,
)
from pantheon._core.arch.rwkv.work cimport rx_prompt_need, rx_prompt_new, rx_work_need, rx_work_shared, rx_work_single
from pantheon._core.base.pool cimport pn_counter_zero
from pantheon._core.kernels.table cimport PN_RWKV_HEAD
from pantheon._core.layers.linear cimport (
    group_product,
    input_begin,
    input_prepare,
    pn_team,
    team_barrier,
    team_tokens,
)
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport PN_ARCH_RWKVX, PN_CHAT_RWKV, pn_cost, pn_kv_type, pn_model, pn_state, tm_tensor

# ---- one run ---------------------------------------------------------------------------------------------------------

cdef void embed(rx_job *job, pn_team *team, rx_stream *s) noexcept nogil:
    """Normed rows of the embedding table, for this rank's tokens."""
    cdef int t, t0 = 0, t1 = 1
    cdef size_t n = job.c.n_embd
    cdef float *x = job.x if job.shared else s.x
    if job.shared:
        team_tokens(team, job.n_tok, &t0, &t1)
    for t in range(t0, t1):
        run_embed(job.run, &job.w.embd, t, x + t * n)
        job.w.k.layer_norm(x + t * n, job.w.ln0_w, job.w.ln0_b, job.c.norm_eps, job.c.n_embd, x + t * n)


cdef void begin_inputs(rx_stream *s, int n_tok) noexcept nogil:
    cdef int i
    for i in range(RX_MIXES):
        input_begin(&s.mix[i], n_tok)
    for i in range(RX_LORAS):
        input_begin(&s.low[i], n_tok)
    input_begin(&s.heads, n_tok)
    input_begin(&s.ff, n_tok)


cdef void begin_attention(rx_job *job, int w0, int n_tok) noexcept nogil:
    """Which positions of which cache each token of the window sees. An empty memory is one row of zeros, whose
    attention is the zero vector."""
    cdef int t
    job.attn.n_tok = n_tok
    for t in range(n_tok):
        if job.prompt != NULL:
            job.work.caches[t], job.work.pos[t] = &job.prompt.kv, w0 + t
        elif job.one_sequence:
            job.work.caches[t], job.work.pos[t] = job.states[0].kv, job.pos + w0 + t
        elif job.remember:
            job.work.caches[t], job.work.pos[t] = job.states[t].kv, job.positions[t]
        else:
            job.work.caches[t], job.work.pos[t] = job.states[t].kv, max(job.states[t].kept, 1) - 1


cdef void begin_window(rx_job *job, pn_team *team, rx_view *v, int w0) noexcept nogil:
    """Sets the view up; of several ranks the first also sets up what they share."""
    cdef int i
    cdef size_t n = job.c.n_embd
    v.w0 = w0
    v.n_tok = min(<int>RX_WINDOW, job.n_tok - w0)
    v.x = job.x + w0 * n if job.shared else v.s.x
    v.v_first = job.v_first + w0 * n
    v.t0 = 0
    v.t1 = 1
    if not job.shared:
        return
    team_tokens(team, v.n_tok, &v.t0, &v.t1)
    team.next_counter = 0
    team_barrier(team)
    if team.rank == 0:
        begin_inputs(v.s, v.n_tok)
        for i in range(RX_COUNTERS):
            pn_counter_zero(&team.counters[i])
        if job.w.n_attn > 0:
            begin_attention(job, w0, v.n_tok)
    team_barrier(team)


cdef void run_block(rx_job *job, pn_team *team, rx_stream *s, int b, bint is_attention) noexcept nogil:
    """One block for all tokens of the run."""
    cdef rx_view v
    cdef int w0 = 0
    v.s = s
    while w0 < job.n_tok:
        begin_window(job, team, &v, w0)
        if is_attention:
            rwkvx_attention(job, team, &v, b)
        else:
            rwkv7_block(job, team, &v, b)
        w0 += RX_WINDOW


cdef void logits(rx_job *job, pn_team *team, rx_stream *s) noexcept nogil:
    cdef int first = job.run.first_out, n_out, o, o0 = 0, o1 = 1
    cdef size_t n = job.c.n_embd
    cdef const float *x
    cdef float *y[1]
    cdef size_t ldy[1]
    ldy[0] = job.c.n_vocab
    while first < job.n_tok:
        n_out = min(<int>RX_WINDOW, job.n_tok - first)
        x = job.x + first * n if job.shared else s.x
        if job.shared:
            team_tokens(team, n_out, &o0, &o1)
            team.next_counter = 0
            team_barrier(team)
            if team.rank == 0:
                input_begin(&s.head, n_out)
                pn_counter_zero(&team.counters[0])
            team_barrier(team)
        for o in range(o0, o1):
            job.w.k.layer_norm(x + o * n, job.w.ln_out_w, job.w.ln_out_b, job.c.norm_eps, job.c.n_embd,
                               s.normed + o * n)
        input_prepare(team, &s.head, &job.w.head, o0, o1)
        if job.shared:
            team_barrier(team)
        y[0] = job.run.logits + <size_t>(first - job.run.first_out) * job.c.n_vocab
        group_product(team, &job.w.head, &s.head, y, ldy)
        first += n_out


cdef void rwkvx_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef rx_job *job = <rx_job *>arg
    cdef rx_stream *s = &job.work.shared if job.shared else &job.work.ranks[rank].single
    cdef pn_team team = run_team(job.run, job.w.k, job.work.counters, job.work.ranks[rank].panel, rank, n)
    cdef int b
    embed(job, &team, s)
    for b in range(job.w.n_blocks):
        run_block(job, &team, s, b, False)
        if job.w.n_attn > 0 and (b + 1) % job.w.interval == 0:
            if job.prompt != NULL:
                rwkvx_select(job, &team, b)
            run_block(job, &team, s, b // job.w.interval, True)
        if job.shared and run_stopped(job.run, &team):
            return
    logits(job, &team, s)


# ---- entry points ----------------------------------------------------------------------------------------------------

cdef void fill(rx_job *job, pn_run *run, rx_work *work) noexcept nogil:
    """What all kinds of run share."""
    memset(job, 0, sizeof(rx_job))
    job.run = run
    job.c = &run.model.config
    job.w = <pn_rwkvx_model *>run.model.weights
    job.work = work
    job.n_tok = run.n_tok
    job.x = work.x
    job.v_first = work.v_first
    job.remember = job.w.full
    job.attn.n_head = job.c.n_head
    job.attn.n_kv_head = job.c.n_head
    job.attn.head_dim = PN_RWKV_HEAD
    job.attn.scale = job.c.attn_scale
    job.attn.q = work.r
    job.attn.out = work.y
    job.attn.caches = work.caches
    job.attn.pos = work.pos


# A job of one token each of several sequences. Prompts are not cut by the frame: see run_prompt.
cdef struct rx_pass:
    rx_job job
    rx_state *states[RX_WINDOW]
    int positions[RX_WINDOW]


cdef int begin(void *job, pn_run *run) noexcept nogil:
    cdef rx_pass *p = <rx_pass *>job
    cdef rx_work *work = rx_work_shared(run.model, run.n_tok, run.n_tok)
    if work == NULL:
        return -1
    fill(&p.job, run, work)
    p.job.shared = True
    p.job.states = p.states
    p.job.positions = p.positions
    return 0


cdef void add(void *job, pn_state *state, int first, int n) noexcept nogil:
    cdef rx_pass *p = <rx_pass *>job
    p.states[first] = <rx_state *>state.kv_cache
    p.positions[first] = state.pos
    p.states[first].broken = True


cdef void advance(pn_state *state, int n) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    state.pos += n
    st.broken = False
    if st.kv != NULL and st.w.full:
        st.kv.high = max(st.kv.high, state.pos)


cdef bint broken(const pn_state *state) noexcept nogil:
    return (<const rx_state *>state.kv_cache).broken


cdef pn_run_ops run_ops
run_ops.window = RX_WINDOW
run_ops.task = rwkvx_task
run_ops.begin = begin
run_ops.add = add
run_ops.advance = advance
run_ops.n_ctx = rx_state_n_ctx
run_ops.broken = broken


cdef int run_single(pn_model *model, uint32_t token, const float *embd_override, pn_state *state,
                    float *out) noexcept nogil:
    cdef rx_state *st = <rx_state *>state.kv_cache
    cdef rx_work *work = rx_work_single(st, &model.config)
    cdef pn_run run = run_of(model, &token, 1, 0, out)
    cdef rx_job job
    cdef int i
    if work == NULL or run_check_files(model) != 0:
        return -1
    run.embd_override = embd_override
    fill(&job, &run, work)
    job.states = &st
    job.positions = &state.pos
    for i in range(work.n_ranks):
        begin_inputs(&work.ranks[i].single, 1)
        input_begin(&work.ranks[i].single.head, 1)
    if job.w.n_attn > 0:
        begin_attention(&job, 0, 1)
    run_execute(&run_ops, &job, &run)
    advance(state, 1)
    return 0


cdef tm_tensor *pn_rwkvx_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    cdef rx_state *st
    if run_check(&run_ops, model, token, state, 1) != 0:
        return NULL
    st = <rx_state *>state.kv_cache
    if run_single(model, token, state.embd_override, state, st.logits) != 0:
        return NULL
    return &st.out


cdef int run_prompt(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out, bint all,
                    bint selects) noexcept nogil:
    """n tokens of one sequence in one run."""
    cdef rx_state *st = <rx_state *>state.kv_cache
    cdef int n_tok = min(n, <int>RX_WINDOW), status
    cdef rx_work *work = rx_work_shared(model, n_tok, n_tok if all else 1)
    cdef pn_run run = run_of(model, tokens, n, 0 if all else n - 1, logits_out)
    cdef rx_prompt prompt
    cdef rx_job job
    cdef void *memory
    if work == NULL or run_check_files(model) != 0:
        return -1
    fill(&job, &run, work)
    memory = rx_prompt_new(&prompt, &job.x, &job.v_first, st, &model.config, n, selects)
    if memory == NULL:
        return -1
    job.shared = True
    job.one_sequence = True
    job.attn.one_sequence = True
    job.states = &st
    job.pos = state.pos
    if selects:
        prompt.keep = rx_keep_count(state, n)
        job.prompt = &prompt
        job.remember = True
    st.broken = True
    status = run_execute(&run_ops, &job, &run)
    free(memory)
    if status != 0:
        return -1
    if selects:
        st.kept = prompt.keep
        st.kv.high = max(st.kv.high, prompt.keep)
    advance(state, n)
    return 0


cdef int pn_rwkvx_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                          bint all) noexcept nogil:
    cdef pn_rwkvx_model *w = <pn_rwkvx_model *>model.weights
    cdef bint selects = w.n_attn > 0 and not w.full
    cdef int window, first = 0, n_tok, i
    for i in range(n):
        if run_check(&run_ops, model, tokens[i], state, n) != 0:
            return -1
    if n == 1 and selects:
        return run_single(model, tokens[0], NULL, state, logits_out)
    window = n if selects else min(max(w.base.prefill_window, 1), <int>RX_WINDOW)
    while first < n:
        n_tok = min(window, n - first)
        if run_prompt(model, tokens + first, n_tok, state,
                      logits_out + (<size_t>first * model.config.n_vocab if all else 0), all, selects) != 0:
            return -1
        first += n_tok
    return 0


cdef int pn_rwkvx_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                                float *logits_out) noexcept nogil:
    cdef rx_pass p
    return run_batch(&run_ops, &p, model, tokens, states, n, logits_out)


# ---- registry --------------------------------------------------------------------------------------------------------

cdef int pn_rwkvx_load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    return rwkvx_load(model, f)


cdef const char *vocab_path(const pn_model *model) noexcept nogil:
    return (<const pn_rwkvx_model *>model.weights).vocab_path


cdef bint whole_prompts(const pn_model *model) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    return w.n_attn > 0 and not w.full


cdef void cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil:
    cdef bint selects = whole_prompts(model)
    cdef int n_tok, n_out
    rx_state_cost(model, type, cost)
    cost.window = run_pass(&run_ops, model, sizes, &n_tok, &n_out)
    cost.whole_prompt = selects
    if selects:
        cost.window = max(1, sizes.window)
        n_tok = max(n_tok, min(cost.window, <int>RX_WINDOW))
        n_out = max(n_out, min(cost.window, <int>RX_WINDOW) if sizes.all_logits else 1)
    cost.scratch_bytes = (rx_work_need(model, n_tok, n_out, False)
                          + rx_prompt_need(model, cost.kv_type, cost.window, selects))


cdef size_t work_bytes(const pn_model *model) noexcept nogil:
    return (<const pn_rwkvx_model *>model.weights).work_bytes


cdef pn_arch_ops pn_rwkvx_ops() noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(pn_arch_ops))
    ops.name = b"rwkvx"
    ops.arch = PN_ARCH_RWKVX
    ops.chat_style = PN_CHAT_RWKV
    ops.quantizes = True
    ops.load = pn_rwkvx_load
    ops.vocab_path = vocab_path
    ops.whole_prompts = whole_prompts
    ops.unload = rwkvx_unload
    ops.forward = pn_rwkvx_forward
    ops.prefill = pn_rwkvx_prefill
    ops.forward_batch = pn_rwkvx_forward_batch
    ops.state_new = rx_state_new
    ops.state_reset = rx_state_reset
    ops.state_free = rx_state_free
    ops.state_truncate = rx_state_truncate
    ops.state_n_ctx = rx_state_n_ctx
    ops.state_kv_type = rx_state_kv_type
    ops.state_bytes = rx_state_bytes
    ops.state_snapshot_bytes = rx_snapshot_bytes
    ops.state_snapshot = rx_snapshot
    ops.state_restore = rx_restore
    ops.cost = cost
    ops.work_bytes = work_bytes
    return ops
