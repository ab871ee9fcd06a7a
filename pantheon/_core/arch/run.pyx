"""The frame of an architecture (see run.pxd for the contract)."""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.sequence cimport (
    sequence_bytes,
    sequence_cost,
    sequence_free,
    sequence_keeps,
    sequence_kv_type,
    sequence_n_ctx,
    sequence_new,
    sequence_of,
    sequence_reset,
    sequence_restore,
    sequence_snapshot,
    sequence_snapshot_bytes,
    sequence_truncate,
    sequence_work,
)
from pantheon._core.arch.structs cimport IN_HEAD, RUN_WINDOW, WORK_WORDS, pn_sequence, pn_work
from pantheon._core.arch.work cimport work_begin, work_need, work_grown
from pantheon._core.base.fork cimport pn_forks
from pantheon._core.base.pages cimport pn_pages_free
from pantheon._core.base.pool cimport fw_pool_run
from pantheon._core.base.report cimport pn_interrupted, pn_set_error, pn_set_file_error
from pantheon._core.files.mapping cimport pn_mapping, pn_mappings_cut
from pantheon._core.kernels.table cimport pn_kernels_active
from pantheon._core.layers.linear cimport group_product, input_prepare, team_barrier, team_range, team_tokens
from pantheon._core.types cimport pn_config


cdef inline const pn_arch_weights *weights_of(const pn_model *model) noexcept nogil:
    return <const pn_arch_weights *>model.weights


# ---- the row and the weights -----------------------------------------------------------------------------------------

cdef pn_arch_ops run_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(ops))
    ops.name = name
    ops.arch = arch
    ops.window = RUN_WINDOW
    ops.task = run_task
    ops.forward = run_forward
    ops.prefill = run_prefill
    ops.forward_batch = run_batch
    ops.cost = run_cost
    ops.state_size = sizeof(pn_sequence)
    ops.keeps = sequence_keeps
    ops.state_new = sequence_new
    ops.state_reach = sequence_n_ctx
    ops.state_reset = sequence_reset
    ops.state_free = sequence_free
    ops.state_truncate = sequence_truncate
    ops.state_snapshot_bytes = sequence_snapshot_bytes
    ops.state_snapshot = sequence_snapshot
    ops.state_restore = sequence_restore
    ops.state_n_ctx = sequence_n_ctx
    ops.state_kv_type = sequence_kv_type
    ops.state_bytes = sequence_bytes
    return ops


cdef void *weights_new(const pn_arch_ops *ops, size_t size) except NULL:
    cdef pn_arch_weights *w
    if ops.work_size > 8 * <size_t>WORK_WORDS:
        raise SystemError(f"{ops.name.decode()}: a work struct of {ops.work_size} bytes, more than WORK_WORDS")
    w = <pn_arch_weights *>calloc(1, size)
    if w == NULL:
        raise MemoryError("no memory for a model")
    w.ops = ops
    w.k = pn_kernels_active()
    w.n_threads = 1
    w.prefill_window = ops.window
    return w


cdef void weights_free(void *weights) noexcept nogil:
    cdef pn_arch_weights *w = <pn_arch_weights *>weights
    if w != NULL:
        pn_pages_free(w.work, w.work_bytes)
        free(w)


# ---- before a run ----------------------------------------------------------------------------------------------------

cdef int run_window(const pn_model *model) noexcept nogil:
    return min(max(weights_of(model).prefill_window, 1), weights_of(model).ops.window)


cdef int run_pass(const pn_model *model, const pn_run_sizes *sizes, int *n_tok, int *n_out) noexcept nogil:
    cdef int tokens = max(1, min(sizes.window, run_window(model)))
    cdef int rows = max(1, min(sizes.batch, weights_of(model).ops.window))
    n_tok[0] = max(tokens, rows)
    n_out[0] = max(rows, tokens if sizes.all_logits else 1)
    return tokens


cdef void run_cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil:
    cdef int n_tok, n_out
    sequence_cost(model, type, cost)
    cost.window = run_pass(model, sizes, &n_tok, &n_out)
    cost.scratch_bytes = work_need(model, n_tok, n_out)


cdef int run_check(const pn_model *model, uint32_t token, const pn_state *state, int n) noexcept nogil:
    cdef int n_ctx
    if state == NULL:
        pn_set_error(b"state is NULL")
        return -1
    if state.config != &model.config:
        pn_set_error(b"the state belongs to another model")
        return -1
    n_ctx = weights_of(model).ops.state_reach(state)
    if not 0 <= state.pos <= n_ctx:
        pn_set_error(b"position %d of the state is not in 0..%d", state.pos, n_ctx)
        return -1
    if token >= <uint32_t>model.config.n_vocab:
        pn_set_error(b"token %u is not below n_vocab %d", token, model.config.n_vocab)
        return -1
    if n > n_ctx - state.pos:
        pn_set_error(b"%d more positions do not fit: n_ctx is %d", n, n_ctx)
        return -1
    if sequence_of(state).broken:
        pn_set_error(b"a call was interrupted and left the state between positions: reset it or restore a checkpoint")
        return -1
    return 0


cdef int run_check_files(const pn_model *model) noexcept nogil:
    cdef const pn_arch_weights *w = weights_of(model)
    cdef const pn_mapping *m = NULL
    if w.gguf != NULL:
        m = pn_mappings_cut(w.gguf.maps, w.gguf.n_maps)
    elif w.safetensors != NULL:
        m = pn_mappings_cut(w.safetensors.maps, w.safetensors.n_maps)
    if m == NULL:
        return 0
    pn_set_file_error(m.path, b"the file was cut short after it was opened with %zu bytes", m.size)
    return -1


# ---- runs ------------------------------------------------------------------------------------------------------------

cdef pn_run run_of(pn_model *model, const uint32_t *tokens, int n_tok, int first_out, float *logits) noexcept nogil:
    cdef pn_run run
    memset(&run, 0, sizeof(run))
    run.model = model
    run.tokens = tokens
    run.n_tok = n_tok
    run.first_out = first_out
    run.logits = logits
    return run


cdef int begin(pn_run *run, pn_work *work) noexcept nogil:
    """Gives the run its buffers; 0, or -1 where there are none."""
    run.work = work
    if work == NULL:
        return -1
    work_begin(work, run.n_tok, run.n_tok - run.first_out)
    return 0


cdef void add(pn_run *run, pn_state *state, int first, int n) noexcept nogil:
    """The run's tokens from `first` on are the next n of this state."""
    cdef pn_sequence *s = sequence_of(state)
    cdef const pn_arch_ops *ops = weights_of(run.model).ops
    cdef int i
    for i in range(n):
        run.work.caches[first + i] = &s.kv
        run.work.pos[first + i] = state.pos + i
    run.one_sequence = n == run.n_tok
    if s.recurrent_bytes > 0:
        s.used = s.broken = True
    if ops.add != NULL:
        ops.add(run, state, first, n)


cdef int run_execute(pn_run *run) noexcept nogil:
    fw_pool_run(run.model.pool, weights_of(run.model).ops.task, run, weights_of(run.model).n_threads)
    if run.stop:
        pn_set_error(b"interrupted")
        return -1
    return 0


cdef void run_advance(pn_state *state, int n) noexcept nogil:
    cdef pn_sequence *s = sequence_of(state)
    state.pos += n
    s.kv.high = max(s.kv.high, state.pos)
    s.broken = False


cdef tm_tensor *run_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    cdef pn_run run
    if run_check(model, token, state, 1) != 0 or run_check_files(model) != 0:
        return NULL
    run = run_of(model, &token, 1, 0, NULL)
    run.embd_override = state.embd_override
    if begin(&run, sequence_work(model, state)) != 0:
        return NULL
    run.logits = sequence_of(state).logits
    add(&run, state, 0, 1)
    run_execute(&run)
    run_advance(state, 1)
    return &sequence_of(state).logits_view


cdef int run_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                     bint all) noexcept nogil:
    cdef int first = 0, n_tok, i
    cdef pn_run run
    for i in range(n):
        if run_check(model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(run_window(model), n - first)
        run = run_of(model, tokens + first, n_tok, 0 if all else n_tok - 1,
                     logits_out + (<size_t>first * model.config.n_vocab if all else 0))
        if run_check_files(model) != 0 or begin(&run, work_grown(model, n_tok, n_tok - run.first_out)) != 0:
            return -1
        add(&run, state, 0, n_tok)
        if run_execute(&run) != 0:
            return -1
        run_advance(state, n_tok)
        first += n_tok
    return 0


cdef int run_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n, float *logits_out) noexcept nogil:
    cdef int first = 0, n_tok, i
    cdef pn_run run
    for i in range(n):
        if run_check(model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(weights_of(model).ops.window, n - first)
        run = run_of(model, tokens + first, n_tok, 0, logits_out + <size_t>first * model.config.n_vocab)
        if run_check_files(model) != 0 or begin(&run, work_grown(model, n_tok, n_tok)) != 0:
            return -1
        for i in range(n_tok):
            add(&run, states[first + i], i, 1)
        if run_execute(&run) != 0:
            return -1
        for i in range(n_tok):
            run_advance(states[first + i], 1)
        first += n_tok
    return 0


# ---- inside a run ----------------------------------------------------------------------------------------------------

cdef void run_view(pn_pass *p, pn_run *run, int rank, int n) noexcept nogil:
    cdef const pn_config *c = &run.model.config
    cdef pn_work *work = run.work
    memset(p, 0, sizeof(pn_pass))
    p.run = run
    p.c = c
    p.k = weights_of(run.model).k
    p.team.k = p.k
    p.team.pool = run.model.pool
    p.team.rank = rank
    p.team.n = n
    p.team.counters = work.counters
    p.team.panel = work.ranks[rank].panel
    p.s = &work.ranks[rank].single if run.n_tok == 1 else &work.shared
    p.n_tok = run.n_tok
    p.first_out = run.first_out
    p.t1 = 1
    if run.n_tok > 1:
        team_tokens(&p.team, run.n_tok, &p.t0, &p.t1)
    p.attn.n_tok = run.n_tok
    p.attn.one_sequence = run.one_sequence
    p.attn.n_head = c.n_head
    p.attn.n_kv_head = c.n_kv_head
    p.attn.head_dim = c.head_dim
    p.attn.scale = c.attn_scale
    p.attn.window = c.sliding_window
    p.attn.caches = work.caches
    p.attn.pos = work.pos


cdef void run_task(void *arg, int rank, int n) noexcept nogil:
    cdef pn_run *run = <pn_run *>arg
    cdef const pn_arch_ops *ops = weights_of(run.model).ops
    cdef pn_pass p
    cdef int i
    run_view(&p, run, rank, n)
    ops.enter(&p)
    if run.n_tok > 1:
        team_barrier(&p.team)
    for i in range(p.c.n_layer):
        ops.layer(&p, i)
        if run.n_tok > 1 and run_stopped(run, &p.team):
            return
    ops.leave(&p)


cdef bint run_stopped(pn_run *run, const pn_team *team) noexcept nogil:
    cdef int forks = pn_forks()
    if team.rank == 0 and pn_interrupted():
        run.stop = True
    if team.n > 1 and forks != pn_forks():           # a signal handler forked: the other ranks are not in this process
        run.stop = True
        return True
    team_barrier(team)
    return run.stop


cdef void run_embed(pn_pass *p, const pn_matrix *embd) noexcept nogil:
    cdef size_t n = p.c.n_embd
    cdef int t
    for t in range(p.t0, p.t1):
        if p.run.embd_override != NULL:
            memcpy(p.s.x + t * n, p.run.embd_override, n * sizeof(float))
        else:
            embd.ops.dequant(embd.data + p.run.tokens[t] * embd.row_bytes, p.s.x + t * n, embd.cols)


cdef void run_add(pn_pass *p, const float *delta, const float *bias) noexcept nogil:
    cdef size_t n = p.c.n_embd
    cdef int t
    for t in range(p.t0, p.t1):
        p.k.add(p.s.x + t * n, delta + t * n, p.c.n_embd)
        if bias != NULL:
            p.k.add(p.s.x + t * n, bias, p.c.n_embd)


cdef inline void norm(const pn_pass *p, const float *x, const float *weight, const float *bias,
                      float *y) noexcept nogil:
    if bias != NULL:
        p.k.layer_norm(x, weight, bias, p.c.norm_eps, p.c.n_embd, y)
    else:
        p.k.rms_norm(x, weight, p.c.norm_eps, p.c.n_embd, y)


cdef void run_norm(pn_pass *p, const float *weight, const float *bias) noexcept nogil:
    cdef size_t n = p.c.n_embd
    cdef int t
    for t in range(p.t0, p.t1):
        norm(p, p.s.x + t * n, weight, bias, p.s.normed + t * n)


cdef void run_logits(pn_pass *p, const pn_group *head, const float *weight, const float *bias,
                     const float *head_bias) noexcept nogil:
    cdef int n_out = p.n_tok - p.first_out, o, o0 = 0, o1 = 1, r0 = 0, r1 = p.c.n_vocab
    cdef size_t n = p.c.n_embd
    cdef float *y[1]
    cdef size_t ldy[1]
    if p.n_tok > 1:
        team_tokens(&p.team, n_out, &o0, &o1)
    for o in range(o0, o1):
        norm(p, p.s.x + (p.first_out + o) * n, weight, bias, p.s.normed + o * n)
    input_prepare(&p.team, &p.s.input[IN_HEAD], head, o0, o1)
    if p.n_tok > 1:
        team_barrier(&p.team)
    y[0], ldy[0] = p.run.logits, p.c.n_vocab
    group_product(&p.team, head, &p.s.input[IN_HEAD], y, ldy)
    if head_bias == NULL:
        return
    if n_out > 1:
        team_barrier(&p.team)
    else:
        o0, o1 = 0, 1
        team_range(&p.team, p.c.n_vocab, 8, &r0, &r1)        # the rows that this rank computed
    for o in range(o0, o1):
        p.k.add(p.run.logits + o * ldy[0] + r0, head_bias + r0, r1 - r0)
