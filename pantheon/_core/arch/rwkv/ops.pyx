"""RWKV-X: RWKV-7 blocks and attention blocks over remembered tokens (see ops.pxd).

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
    run_check,
    run_check_files,
    run_embed,
    run_execute,
    run_of,
    run_ops,
    run_pass,
    run_stopped,
    run_view,
    run_window,
)
from pantheon._core.arch.rwkv.attn cimport rwkvx_attention, rwkvx_select
from pantheon._core.arch.rwkv.load cimport rwkvx_load, rwkvx_unload
from pantheon._core.arch.rwkv.rwkv7 cimport rwkv7_block
from pantheon._core.arch.rwkv.state cimport (
    rx_keep_count,
    rx_keeps,
    rx_of,
    rx_restore,
    rx_snapshot,
    rx_snapshot_bytes,
    rx_state_cost,
    rx_state_new,
    rx_state_reset,
    rx_state_truncate,
)
from pantheon._core.arch.rwkv.structs cimport (
    IN_MIX,
    RX_COUNTERS,
    RX_WINDOW,
    pn_rwkvx_model,
    rx_job,
    rx_prompt,
    rx_state,
    rx_view,
    rx_work,
)
from pantheon._core.arch.rwkv.work cimport rx_prompt_need, rx_prompt_new, rx_walk
from pantheon._core.arch.structs cimport IN_HEAD, pn_pass, pn_run, pn_stream, pn_work
from pantheon._core.arch.work cimport work_grown, work_need
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

cdef void embed(rx_job *job, pn_pass *p) noexcept nogil:
    """Normed rows of the embedding table, for this rank's tokens."""
    cdef int t
    cdef size_t n = job.c.n_embd
    run_embed(p, &job.w.embd)
    for t in range(p.t0, p.t1):
        p.k.layer_norm(p.s.x + t * n, job.w.ln0_w, job.w.ln0_b, job.c.norm_eps, job.c.n_embd, p.s.x + t * n)


cdef void begin_attention(rx_job *job, int w0, int n_tok) noexcept nogil:
    """Which positions of which cache each token of the window sees. An empty memory is one row of zeros, whose
    attention is the zero vector."""
    cdef int t
    job.attn.n_tok = n_tok
    for t in range(n_tok):
        if job.prompt != NULL:
            job.work.base.caches[t], job.work.base.pos[t] = &job.prompt.kv, w0 + t
        elif job.run.one_sequence:
            job.work.base.caches[t], job.work.base.pos[t] = &rx_of(job.states[0]).base.kv, job.states[0].pos + w0 + t
        elif job.remember:
            job.work.base.caches[t], job.work.base.pos[t] = &rx_of(job.states[t]).base.kv, job.states[t].pos
        else:
            job.work.base.caches[t] = &rx_of(job.states[t]).base.kv
            job.work.base.pos[t] = max(rx_of(job.states[t]).kept, 1) - 1


cdef void begin_window(rx_job *job, pn_team *team, rx_view *v, int w0) noexcept nogil:
    """Sets the view up; of several ranks the first also sets up what they share."""
    cdef int i
    cdef size_t n = job.c.n_embd
    v.w0 = w0
    v.n_tok = min(<int>RX_WINDOW, job.n_tok - w0)
    v.x = v.s.x + w0 * n
    v.v_first = job.v_first + w0 * n
    v.t0 = 0
    v.t1 = 1
    if not job.shared:
        return
    team_tokens(team, v.n_tok, &v.t0, &v.t1)
    team.next_counter = 0
    team_barrier(team)
    if team.rank == 0:
        for i in range(IN_MIX, job.work.base.n_inputs):
            input_begin(&v.s.input[i], v.n_tok)
        for i in range(RX_COUNTERS):
            pn_counter_zero(&team.counters[i])
        if job.w.n_attn > 0:
            begin_attention(job, w0, v.n_tok)
    team_barrier(team)


cdef void run_block(rx_job *job, pn_team *team, pn_stream *s, int b, bint is_attention) noexcept nogil:
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


cdef void logits(rx_job *job, pn_team *team, pn_stream *s) noexcept nogil:
    cdef int first = job.run.first_out, n_out, o, o0 = 0, o1 = 1
    cdef size_t n = job.c.n_embd
    cdef const float *x
    cdef float *y[1]
    cdef size_t ldy[1]
    ldy[0] = job.c.n_vocab
    while first < job.n_tok:
        n_out = min(<int>RX_WINDOW, job.n_tok - first)
        x = s.x + first * n
        if job.shared:
            team_tokens(team, n_out, &o0, &o1)
            team.next_counter = 0
            team_barrier(team)
            if team.rank == 0:
                input_begin(&s.input[IN_HEAD], n_out)
                pn_counter_zero(&team.counters[0])
            team_barrier(team)
        for o in range(o0, o1):
            job.w.base.k.layer_norm(x + o * n, job.w.ln_out_w, job.w.ln_out_b, job.c.norm_eps, job.c.n_embd,
                                    s.normed + o * n)
        input_prepare(team, &s.input[IN_HEAD], &job.w.head, o0, o1)
        if job.shared:
            team_barrier(team)
        y[0] = job.run.logits + <size_t>(first - job.run.first_out) * job.c.n_vocab
        group_product(team, &job.w.head, &s.input[IN_HEAD], y, ldy)
        first += n_out


cdef void rwkvx_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef rx_job *job = <rx_job *>arg
    cdef pn_stream s
    cdef pn_pass p
    cdef int b
    run_view(&p, &job.run, rank, n)
    s = p.s[0]
    if job.x != NULL:
        s.x = job.x
    p.s = &s
    embed(job, &p)
    for b in range(job.w.n_blocks):
        run_block(job, &p.team, &s, b, False)
        if job.w.n_attn > 0 and (b + 1) % job.w.interval == 0:
            if job.prompt != NULL:
                rwkvx_select(job, &p.team, b)
            run_block(job, &p.team, &s, b // job.w.interval, True)
        if job.shared and run_stopped(&job.run, &p.team):
            return
    logits(job, &p.team, &s)


# ---- entry points ----------------------------------------------------------------------------------------------------

cdef int begin(rx_job *job, const pn_run *run, pn_state **states) noexcept nogil:
    """Fills what all kinds of run share; 0, or -1 where there are no buffers or the file was cut short."""
    cdef int n_out = min(run.n_tok - run.first_out, <int>RX_WINDOW)
    cdef pn_work *work = work_grown(run.model, min(run.n_tok, <int>RX_WINDOW), n_out)
    if work == NULL or run_check_files(run.model) != 0:
        return -1
    memset(job, 0, sizeof(rx_job))
    job.run = run[0]
    job.run.work = work
    job.c = &run.model.config
    job.w = <pn_rwkvx_model *>run.model.weights
    job.work = <rx_work *>work
    job.n_tok = run.n_tok
    job.shared = run.n_tok > 1
    job.states = states
    job.v_first = job.work.v_first
    job.remember = job.w.full
    job.attn.n_head = job.c.n_head
    job.attn.n_kv_head = job.c.n_head
    job.attn.head_dim = PN_RWKV_HEAD
    job.attn.scale = job.c.attn_scale
    job.attn.q = job.work.r
    job.attn.out = job.work.y
    job.attn.caches = work.caches
    job.attn.pos = work.pos
    return 0


cdef int execute(rx_job *job, int n_states, int n) noexcept nogil:
    """Runs the job, whose states take n tokens each; 0, or -1 when it was interrupted."""
    cdef rx_state *st
    cdef int i
    for i in range(n_states):
        rx_of(job.states[i]).base.used = rx_of(job.states[i]).base.broken = True
    if run_execute(&job.run) != 0:
        return -1
    for i in range(n_states):
        st = rx_of(job.states[i])
        st.base.broken = False
        job.states[i].pos += n
        if job.w.full:
            st.base.kv.high = max(st.base.kv.high, job.states[i].pos)
    return 0


cdef int run_tokens(pn_model *model, const uint32_t *tokens, const float *embd_override, pn_state **states, int n,
                    float *out) noexcept nogil:
    """One token into each of n states, n up to RX_WINDOW."""
    cdef pn_run run = run_of(model, tokens, n, 0, out)
    cdef rx_job job
    run.embd_override = embd_override
    if begin(&job, &run, states) != 0:
        return -1
    if n == 1 and job.w.n_attn > 0:
        begin_attention(&job, 0, 1)
    return execute(&job, n, 1)


cdef tm_tensor *pn_rwkvx_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    if (run_check(model, token, state, 1) != 0
            or run_tokens(model, &token, state.embd_override, &state, 1, rx_of(state).base.logits) != 0):
        return NULL
    return &rx_of(state).base.logits_view


cdef int run_prompt(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out, bint all,
                    bint selects) noexcept nogil:
    """n tokens of one sequence in one run, two or more."""
    cdef rx_state *st = rx_of(state)
    cdef pn_run run = run_of(model, tokens, n, 0 if all else n - 1, logits_out)
    cdef rx_prompt prompt
    cdef rx_job job
    cdef void *memory
    cdef int status
    run.one_sequence = True
    if begin(&job, &run, &state) != 0:
        return -1
    memory = rx_prompt_new(&prompt, &job.x, &job.v_first, st, &model.config, n, selects)
    if memory == NULL:
        return -1
    job.attn.one_sequence = True
    if selects:
        prompt.keep = rx_keep_count(state, n)
        job.prompt = &prompt
        job.remember = True
    status = execute(&job, 1, n)
    free(memory)
    if status == 0 and selects:
        st.kept = prompt.keep
        st.base.kv.high = max(st.base.kv.high, prompt.keep)
    return status


cdef int pn_rwkvx_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                          bint all) noexcept nogil:
    cdef bint selects = whole_prompts(model)
    cdef int window = n if selects else run_window(model)
    cdef int first = 0, n_tok, i, status
    cdef float *out
    for i in range(n):
        if run_check(model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(window, n - first)
        out = logits_out + (<size_t>first * model.config.n_vocab if all else 0)
        if n_tok == 1:
            status = run_tokens(model, tokens + first, NULL, &state, 1, out)
        else:
            status = run_prompt(model, tokens + first, n_tok, state, out, all, selects)
        if status != 0:
            return -1
        first += n_tok
    return 0


cdef int pn_rwkvx_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                                float *logits_out) noexcept nogil:
    cdef int first = 0, n_tok, i
    for i in range(n):
        if run_check(model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(<int>RX_WINDOW, n - first)
        if run_tokens(model, tokens + first, NULL, states + first, n_tok,
                      logits_out + <size_t>first * model.config.n_vocab) != 0:
            return -1
        first += n_tok
    return 0


# ---- registry --------------------------------------------------------------------------------------------------------

cdef int pn_rwkvx_load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    return rwkvx_load(model, self, f)


cdef const char *vocab_path(const pn_model *model) noexcept nogil:
    return (<const pn_rwkvx_model *>model.weights).vocab_path


cdef bint whole_prompts(const pn_model *model) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>model.weights
    return w.n_attn > 0 and not w.full


cdef void cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil:
    cdef bint selects = whole_prompts(model)
    cdef int n_tok, n_out
    rx_state_cost(model, type, cost)
    cost.window = run_pass(model, sizes, &n_tok, &n_out)
    cost.whole_prompt = selects
    if selects:
        cost.window = max(1, sizes.window)
        n_tok = max(n_tok, min(cost.window, <int>RX_WINDOW))
        n_out = max(n_out, min(cost.window, <int>RX_WINDOW) if sizes.all_logits else 1)
    cost.scratch_bytes = work_need(model, n_tok, n_out)
    if cost.window > 1:
        cost.scratch_bytes += rx_prompt_need(model, cost.kv_type, cost.window, selects)


cdef pn_arch_ops pn_rwkvx_ops() noexcept nogil:
    cdef pn_arch_ops ops = run_ops(b"rwkvx", PN_ARCH_RWKVX)
    ops.chat_style = PN_CHAT_RWKV
    ops.quantizes = True
    ops.load = pn_rwkvx_load
    ops.vocab_path = vocab_path
    ops.whole_prompts = whole_prompts
    ops.unload = rwkvx_unload
    ops.window = RX_WINDOW
    ops.work_size = sizeof(rx_work)
    ops.walk = rx_walk
    ops.task = rwkvx_task
    ops.forward = pn_rwkvx_forward
    ops.prefill = pn_rwkvx_prefill
    ops.forward_batch = pn_rwkvx_forward_batch
    ops.cost = cost
    ops.state_size = sizeof(rx_state)
    ops.keeps = rx_keeps
    ops.state_new = rx_state_new
    ops.state_reset = rx_state_reset
    ops.state_truncate = rx_state_truncate
    ops.state_snapshot_bytes = rx_snapshot_bytes
    ops.state_snapshot = rx_snapshot
    ops.state_restore = rx_restore
    return ops
