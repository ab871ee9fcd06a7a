"""The frame of a run (see run.pxd for the contract)."""
from libc.string cimport memcpy, memset

from pantheon._core.arch.ops cimport pn_arch_weights, pn_run_sizes
from pantheon._core.base.fork cimport pn_forks
from pantheon._core.base.pages cimport pn_pages_free, pn_pages_new
from pantheon._core.base.pool cimport fw_pool_run
from pantheon._core.base.report cimport pn_interrupted, pn_set_error, pn_set_file_error, pn_set_no_memory
from pantheon._core.files.mapping cimport pn_mapping, pn_mappings_cut
from pantheon._core.kernels.table cimport PN_F32
from pantheon._core.layers.linear cimport team_barrier


cdef int run_pass(const pn_run_ops *ops, const pn_model *model, const pn_run_sizes *sizes, int *n_tok,
                  int *n_out) noexcept nogil:
    cdef int widest = min(max((<const pn_arch_weights *>model.weights).prefill_window, 1), ops.window)
    cdef int tokens = max(1, min(sizes.window, widest))
    cdef int rows = max(1, min(sizes.batch, ops.window))
    n_tok[0] = max(tokens, rows)
    n_out[0] = max(rows, tokens if sizes.all_logits else 1)
    return tokens


cdef int run_check(const pn_run_ops *ops, const pn_model *model, uint32_t token, const pn_state *state,
                   int n) noexcept nogil:
    if state == NULL:
        pn_set_error(b"state is NULL")
        return -1
    if state.config != &model.config:
        pn_set_error(b"the state belongs to another model")
        return -1
    if not 0 <= state.pos <= ops.n_ctx(state):
        pn_set_error(b"position %d of the state is not in 0..%d", state.pos, ops.n_ctx(state))
        return -1
    if token >= <uint32_t>model.config.n_vocab:
        pn_set_error(b"token %u is not below n_vocab %d", token, model.config.n_vocab)
        return -1
    if n > ops.n_ctx(state) - state.pos:
        pn_set_error(b"%d more positions do not fit: n_ctx is %d", n, ops.n_ctx(state))
        return -1
    if ops.broken != NULL and ops.broken(state):
        pn_set_error(b"a call was interrupted and left the state between positions: reset it or restore a checkpoint")
        return -1
    return 0


cdef int run_check_files(const pn_model *model) noexcept nogil:
    cdef const pn_arch_weights *w = <const pn_arch_weights *>model.weights
    cdef const pn_mapping *m = NULL
    if w.gguf != NULL:
        m = pn_mappings_cut(w.gguf.maps, w.gguf.n_maps)
    elif w.safetensors != NULL:
        m = pn_mappings_cut(w.safetensors.maps, w.safetensors.n_maps)
    if m == NULL:
        return 0
    pn_set_file_error(m.path, b"the file was cut short after it was opened with %zu bytes", m.size)
    return -1


cdef pn_run run_of(pn_model *model, const uint32_t *tokens, int n_tok, int first_out, float *logits) noexcept nogil:
    cdef pn_run run
    memset(&run, 0, sizeof(run))
    run.model = model
    run.tokens = tokens
    run.n_tok = n_tok
    run.first_out = first_out
    run.logits = logits
    return run


cdef int run_execute(const pn_run_ops *ops, void *job, pn_run *run) noexcept nogil:
    fw_pool_run(run.model.pool, ops.task, job, (<const pn_arch_weights *>run.model.weights).n_threads)
    if run.stop:
        pn_set_error(b"interrupted")
        return -1
    return 0


cdef int run_prefill(const pn_run_ops *ops, void *job, pn_model *model, const uint32_t *tokens, int n, pn_state *state,
                     float *logits_out, bint all) noexcept nogil:
    cdef int window = min(max((<const pn_arch_weights *>model.weights).prefill_window, 1), ops.window)
    cdef int first = 0, n_tok, i
    cdef pn_run run
    for i in range(n):
        if run_check(ops, model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(window, n - first)
        run = run_of(model, tokens + first, n_tok, 0 if all else n_tok - 1,
                     logits_out + (<size_t>first * model.config.n_vocab if all else 0))
        if run_check_files(model) != 0 or ops.begin(job, &run) != 0:
            return -1
        ops.add(job, state, 0, n_tok)
        if run_execute(ops, job, &run) != 0:
            return -1
        ops.advance(state, n_tok)
        first += n_tok
    return 0


cdef int run_batch(const pn_run_ops *ops, void *job, pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                   float *logits_out) noexcept nogil:
    cdef int first = 0, n_tok, i
    cdef pn_run run
    for i in range(n):
        if run_check(ops, model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(ops.window, n - first)
        run = run_of(model, tokens + first, n_tok, 0, logits_out + <size_t>first * model.config.n_vocab)
        if run_check_files(model) != 0 or ops.begin(job, &run) != 0:
            return -1
        for i in range(n_tok):
            ops.add(job, states[first + i], i, 1)
        if run_execute(ops, job, &run) != 0:
            return -1
        for i in range(n_tok):
            ops.advance(states[first + i], 1)
        first += n_tok
    return 0


cdef pn_team run_team(const pn_run *run, const pn_kernels *k, pn_counter *counters, uint8_t *panel, int rank,
                      int n) noexcept nogil:
    cdef pn_team team
    team.k = k
    team.pool = run.model.pool
    team.rank = rank
    team.n = n
    team.counters = counters
    team.next_counter = 0
    team.panel = panel
    return team


cdef bint run_stopped(pn_run *run, const pn_team *team) noexcept nogil:
    cdef int forks = pn_forks()
    if team.rank == 0 and pn_interrupted():
        run.stop = True
    if team.n > 1 and forks != pn_forks():           # a signal handler forked: the other ranks are not in this process
        run.stop = True
        return True
    team_barrier(team)
    return run.stop


cdef void *run_memory(void **memory, size_t *bytes, size_t need, int n_tok) noexcept nogil:
    pn_pages_free(memory[0], bytes[0])
    memory[0] = pn_pages_new(need)
    bytes[0] = need
    if memory[0] == NULL:
        bytes[0] = 0
        pn_set_no_memory(b"no memory for the %zu bytes of %d tokens of work buffers", need, n_tok)
    return memory[0]


cdef void logits_view(tm_tensor *t, float *logits, int n_vocab) noexcept nogil:
    memset(t, 0, sizeof(tm_tensor))
    t.data = logits
    t.type = PN_F32
    t.ne[0] = n_vocab
    t.ne[1] = t.ne[2] = t.ne[3] = 1
    t.nb[0] = sizeof(float)
    t.nb[1] = t.nb[2] = t.nb[3] = n_vocab * sizeof(float)
    memcpy(t.name, b"logits", 7)
