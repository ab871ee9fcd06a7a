# cython: language_level=3
"""Calls of the C API as another extension makes them: good ones, then careless ones."""
cimport pantheon
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from pantheon cimport pn_load, pn_model, pn_sampling_params, pn_state, tm_tensor


def facts(str path):
    """Fields of the public structs, read through the .pxd files."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pn_state *state = pantheon.pn_state_new(model)
    cdef tm_tensor *out = NULL
    found = {
        "n_embd": model.config.n_embd, "pos": state.pos, "config": state.config == &model.config,
        "arena": state.arena != NULL, "tokenizer": model.tokenizer != NULL, "vision": model.vision == NULL,
        "path": model.path.decode(), "dies": model.n_gpu_dies, "override": state.embd_override == NULL,
        "forward": model.forward == pantheon.pn_get_forward_fn(model.config.arch),
        "no such arch": pantheon.pn_get_forward_fn(<pantheon.pn_arch>99) == NULL,
        "begin": pantheon.pn_forward_step_begin(model, 1, state),
        "poll": pantheon.pn_forward_step_poll(model, state, &out),
        "refused": model.forward(model, 0xFFFFFFFF, state) == NULL and pantheon.pn_last_error().decode(),
    }
    pantheon.pn_state_free(state)
    pantheon.pn_model_free(model)
    return found


def placed(str path, list dies):
    """Loads with explicit die placement; the dies that the model recorded."""
    cdef int numbers[16]
    cdef int i
    for i in range(len(dies)):
        numbers[i] = dies[i]
    cdef pn_model *model = pantheon.pn_load_on(path.encode(), NULL, numbers, len(dies))
    recorded = [model.gpu_dies[i] for i in range(model.n_gpu_dies)]
    pantheon.pn_model_free(model)
    return recorded


def load_with(str path, bint quantize=False, str config_path=None):
    """pn_load_ex with options; raises what it raises."""
    cdef pantheon.pn_load_opts opts
    cdef bytes config = b"" if config_path is None else config_path.encode()
    opts.vocab_path = NULL
    opts.config_path = NULL
    if config_path is not None:
        opts.config_path = config
    opts.quantize = quantize
    pantheon.pn_model_free(pantheon.pn_load_ex(path.encode(), &opts))


def admission(str path, int n_tokens):
    """pn_admit of n_tokens, and what a reservation of as many holds until it is released."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pantheon.pn_request request
    cdef pantheon.pn_verdict verdict
    cdef pantheon.pn_reservation *reservation = NULL
    cdef pantheon.pn_mem_state before, held, after
    cdef pantheon.pn_admit_status unchecked, status
    cdef int fit = -1
    memset(&request, 0, sizeof(request))             # all that is not asked for
    request.n_prompt = n_tokens
    with nogil:
        pantheon.pn_memwatch_stop()
        unchecked = pantheon.pn_admit(model, n_tokens, &fit)
        pantheon.pn_memwatch_start(250)
        status = pantheon.pn_admit(model, n_tokens, &fit)
        pantheon.pn_memwatch_read(&before)
        pantheon.pn_admit_reserve(model, &request, &verdict, &reservation)
        pantheon.pn_memwatch_read(&held)
        pantheon.pn_admit_release(reservation)
        pantheon.pn_memwatch_read(&after)
    facts = {
        "unchecked": <int>unchecked, "status": <int>status, "fit": fit, "need": verdict.need_bytes,
        "held": held.host_reserved - before.host_reserved, "after": after.host_reserved - before.host_reserved,
        "window": pantheon.pn_admit_max_window(model), "resident": pantheon.pn_admit_gpu_resident(model),
        "worst die": pantheon.pn_admit_worst_die(&after), "kv_q4": pantheon.pn_admit_kv_q4(),
    }
    pantheon.pn_model_free(model)
    return facts


def refused(str path, int n_prompt, int n_new, int n_ctx, int window):
    """Why a reservation of these numbers is none; "" when there is nothing wrong with them."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pantheon.pn_request request
    cdef pantheon.pn_verdict verdict
    cdef pantheon.pn_reservation *reservation = NULL
    memset(&request, 0, sizeof(request))
    request.n_prompt, request.n_new, request.n_ctx, request.window = n_prompt, n_new, n_ctx, window
    status = pantheon.pn_admit_reserve(model, &request, &verdict, &reservation)
    text = pantheon.pn_last_error().decode() if status == pantheon.PN_ADMIT_DENIED and reservation == NULL else ""
    pantheon.pn_admit_release(reservation)
    pantheon.pn_model_free(model)
    return text


def price(str path, int n_prompt, int n_new, int window, int kv_type):
    """pn_cost_of as a dict; its error's text where it fails."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pantheon.pn_cost cost
    try:
        if pantheon.pn_cost_of(model, n_prompt, n_new, window, <pantheon.pn_kv_type>kv_type, &cost) != 0:
            return pantheon.pn_last_error().decode()
        return {"kv_bytes": cost.kv_bytes, "state_bytes": cost.state_bytes, "scratch_bytes": cost.scratch_bytes,
                "logits_bytes": cost.logits_bytes, "window": cost.window, "kv_type": <int>cost.kv_type,
                "dies": cost.n_dies, "total": pantheon.pn_cost_total(&cost, n_prompt + n_new),
                "kv": pantheon.pn_cost_kv(&cost, n_prompt + n_new),
                "need": pantheon.pn_cost_need(&cost, n_prompt + n_new),
                "fit": pantheon.pn_cost_fit(&cost, pantheon.pn_cost_need(&cost, n_prompt), n_prompt + n_new),
                "die": pantheon.pn_cost_die(&cost, 0, 1)}
    finally:
        pantheon.pn_model_free(model)


def limited(limit, bint start):
    """memwatch after a stop, pn_memwatch_set_limit (unless None) and a start: what these said, running, host_total."""
    cdef pantheon.pn_mem_state st
    cdef uint64_t bytes = limit or 0
    cdef int is_set = 0, started = 0
    with nogil:
        pantheon.pn_memwatch_stop()
    if limit is not None:
        is_set = pantheon.pn_memwatch_set_limit(bytes)
    if start:
        started = pantheon.pn_memwatch_start(250)
    running = pantheon.pn_memwatch_running()
    text = pantheon.pn_last_error().decode()
    pantheon.pn_memwatch_set_dies(NULL)
    pantheon.pn_admit(NULL, 1, NULL)
    pantheon.pn_memwatch_read(&st)
    return is_set, started, bool(running), st.host_total, text


# ---- careless ones ---------------------------------------------------------------------------------------------------

cdef void record(list seen, str name, result) except *:
    """The call's result and text, and another text in its place."""
    seen.append((name, result, pantheon.pn_last_error().decode()))
    pantheon.pn_get_forward_fn(<pantheon.pn_arch>-7)


def careless_states(str path, str other_path):
    """Calls that nobody should make, of a model, a state of it and another's: (name, result, text) of each."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pn_model *other = pn_load(other_path.encode())
    cdef pn_state *state = pantheon.pn_state_new(model)
    cdef pn_state *foreign = pantheon.pn_state_new(other)
    cdef pn_state *states[3]
    cdef uint32_t tokens[3]
    cdef float *logits = <float *>malloc(3 * max(model.config.n_vocab, other.config.n_vocab) * sizeof(float))
    cdef tm_tensor *out = NULL
    cdef void *snapshot = malloc(pantheon.pn_state_snapshot_bytes(state) + 1)
    cdef list seen = []
    cdef int pos
    tokens[0] = tokens[1] = tokens[2] = 5
    states[0] = states[1] = states[2] = state
    pantheon.pn_get_forward_fn(<pantheon.pn_arch>-7)
    record(seen, "free the model first", pantheon.pn_model_free(model))
    record(seen, "threads of none", pantheon.pn_model_threads(NULL))
    record(seen, "threads for none", pantheon.pn_model_set_threads(NULL, 2))
    record(seen, "0 threads", pantheon.pn_model_set_threads(model, 0))
    record(seen, "-5 threads", pantheon.pn_model_set_threads(model, -5))
    record(seen, "257 threads", pantheon.pn_model_set_threads(model, 257))
    record(seen, "name of none", 0 if pantheon.pn_arch_name(NULL) == NULL else 1)
    record(seen, "forward of no architecture", 0 if pantheon.pn_get_forward_fn(pantheon.PN_ARCH_COUNT) == NULL else 1)
    record(seen, "forward, no state", 0 if model.forward(model, 5, NULL) == NULL else 1)
    record(seen, "forward, another's state", 0 if model.forward(model, 5, foreign) == NULL else 1)
    record(seen, "forward, no such token", 0 if model.forward(model, 0xFFFFFFFF, state) == NULL else 1)
    record(seen, "prefill, no model", pantheon.pn_prefill(NULL, tokens, 1, state, logits, False))
    record(seen, "prefill, no tokens", pantheon.pn_prefill(model, NULL, 1, state, logits, False))
    record(seen, "prefill, no state", pantheon.pn_prefill(model, tokens, 1, NULL, logits, False))
    record(seen, "prefill, no logits", pantheon.pn_prefill(model, tokens, 1, state, NULL, False))
    record(seen, "prefill, 0 tokens", pantheon.pn_prefill(model, tokens, 0, state, logits, False))
    record(seen, "prefill, -1 tokens", pantheon.pn_prefill(model, tokens, -1, state, logits, True))
    record(seen, "prefill, another's state", pantheon.pn_prefill(model, tokens, 3, foreign, logits, False))
    record(seen, "prefill, too many", pantheon.pn_prefill(model, tokens, 2147483647, state, logits, False))
    record(seen, "batch, no model", pantheon.pn_forward_batch(NULL, tokens, states, 1, logits))
    record(seen, "batch, no tokens", pantheon.pn_forward_batch(model, NULL, states, 1, logits))
    record(seen, "batch, no states", pantheon.pn_forward_batch(model, tokens, NULL, 1, logits))
    record(seen, "batch, no logits", pantheon.pn_forward_batch(model, tokens, states, 1, NULL))
    record(seen, "batch, 0", pantheon.pn_forward_batch(model, tokens, states, 0, logits))
    record(seen, "batch, -3", pantheon.pn_forward_batch(model, tokens, states, -3, logits))
    record(seen, "batch, twice", pantheon.pn_forward_batch(model, tokens, states, 2, logits))
    states[1] = NULL
    record(seen, "batch, a state is none", pantheon.pn_forward_batch(model, tokens, states, 2, logits))
    states[1] = foreign
    record(seen, "batch, another's state", pantheon.pn_forward_batch(model, tokens, states, 2, logits))
    states[0], states[1] = foreign, state
    record(seen, "batch, another's first", pantheon.pn_forward_batch(model, tokens, states, 2, logits))
    record(seen, "begin, no model", pantheon.pn_forward_step_begin(NULL, 5, state))
    record(seen, "begin, no state", pantheon.pn_forward_step_begin(model, 5, NULL))
    record(seen, "poll, no model", pantheon.pn_forward_step_poll(NULL, state, &out))
    record(seen, "poll, no state", pantheon.pn_forward_step_poll(model, NULL, &out))
    record(seen, "poll, no result", pantheon.pn_forward_step_poll(model, state, NULL))
    record(seen, "reset of none", pantheon.pn_state_reset(NULL))
    record(seen, "truncate none", pantheon.pn_state_truncate(NULL, 0))
    record(seen, "truncate to -1", pantheon.pn_state_truncate(state, -1))
    record(seen, "truncate beyond", pantheon.pn_state_truncate(state, 1))
    record(seen, "snapshot bytes of none", <int>pantheon.pn_state_snapshot_bytes(NULL))
    record(seen, "snapshot of none", pantheon.pn_state_snapshot(NULL, snapshot))
    record(seen, "restore none", pantheon.pn_state_restore(NULL, snapshot, 0))
    record(seen, "restore to -1", pantheon.pn_state_restore(state, snapshot, -1))
    record(seen, "restore beyond", pantheon.pn_state_restore(state, snapshot, 3))
    record(seen, "n_ctx of none", pantheon.pn_state_n_ctx(NULL))
    record(seen, "kv_type of none", <int>pantheon.pn_state_kv_type(NULL))
    record(seen, "bytes of none", <int>pantheon.pn_state_bytes(NULL))
    pos = state.pos
    state.pos = -4
    record(seen, "a position of -4", 0 if model.forward(model, 5, state) == NULL else 1)
    state.pos = 2147483647
    record(seen, "a position of 2^31 - 1", pantheon.pn_prefill(model, tokens, 1, state, logits, False))
    state.pos = pos
    if pantheon.pn_state_snapshot_bytes(state) > 0:
        record(seen, "snapshot to nowhere", pantheon.pn_state_snapshot(state, NULL))
        record(seen, "restore nothing", pantheon.pn_state_restore(state, NULL, 0))
    assert (state.pos, foreign.pos) == (0, 0)
    for _ in range(3):                               # both are as good as new
        assert model.forward(model, 5, state) != NULL and other.forward(other, 5, foreign) != NULL
    pantheon.pn_state_free(NULL)
    pantheon.pn_state_free(state)
    pantheon.pn_state_free(foreign)
    assert (pantheon.pn_model_free(model), pantheon.pn_model_free(other), pantheon.pn_model_free(NULL)) == (0, 0, 0)
    free(snapshot)
    free(logits)
    return seen


def careless_admission(str path, str other_path):
    """The same of admission and memwatch."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pn_model *other = pn_load(other_path.encode())
    cdef pn_state *foreign = pantheon.pn_state_new(other)
    cdef pantheon.pn_request q
    cdef pantheon.pn_verdict v
    cdef pantheon.pn_cost cost
    cdef pantheon.pn_mem_state st
    cdef pantheon.pn_ladder_plan plan
    cdef pantheon.pn_reservation *r = NULL
    cdef list seen = []
    cdef int fit = 7, on
    memset(&st, 0, sizeof(st))
    memset(&cost, 0, sizeof(cost))
    for on in range(2):
        with nogil:
            if on:
                pantheon.pn_memwatch_start(250)
            else:
                pantheon.pn_memwatch_stop()
        memset(&q, 0, sizeof(q))
        q.n_prompt = 5
        pantheon.pn_get_forward_fn(<pantheon.pn_arch>-7)
        record(seen, "admit, no model", <int>pantheon.pn_admit(NULL, 5, &fit))
        record(seen, "admit 0", <int>pantheon.pn_admit(model, 0, &fit))
        record(seen, "admit -5", <int>pantheon.pn_admit(model, -5, NULL))
        assert fit == 0
        record(seen, "ask, no model", <int>pantheon.pn_admit_ask(NULL, &q, &v))
        record(seen, "ask, no request", <int>pantheon.pn_admit_ask(model, NULL, &v))
        assert v.n_tokens == 0 and v.status == pantheon.PN_ADMIT_DENIED
        record(seen, "ask, no verdict", <int>pantheon.pn_admit_ask(model, &q, NULL))
        record(seen, "reserve, no model", <int>pantheon.pn_admit_reserve(NULL, &q, &v, &r))
        record(seen, "reserve, no verdict", <int>pantheon.pn_admit_reserve(model, &q, NULL, &r))
        record(seen, "reserve, no place for it", <int>pantheon.pn_admit_reserve(model, &q, &v, NULL))
        q.state = foreign
        record(seen, "another's state", <int>pantheon.pn_admit_reserve(model, &q, &v, &r))
        q.state = NULL
        q.kv_type = <pantheon.pn_kv_type>9
        record(seen, "kv_type 9", <int>pantheon.pn_admit_reserve(model, &q, &v, &r))
        q.kv_type, q.batch = pantheon.PN_KV_DEFAULT, -1
        record(seen, "a batch of -1", <int>pantheon.pn_admit_reserve(model, &q, &v, &r))
        q.batch, q.n_checkpoints = 0, -1
        record(seen, "-1 checkpoints", <int>pantheon.pn_admit_reserve(model, &q, &v, &r))
        assert r == NULL
    pantheon.pn_admit_release(NULL)
    q.n_checkpoints = 0
    assert pantheon.pn_admit_reserve(model, &q, &v, &r) == pantheon.PN_ADMIT_FIT and r != NULL
    pantheon.pn_admit_progress(NULL, &v, 3)
    pantheon.pn_get_forward_fn(<pantheon.pn_arch>-7)
    pantheon.pn_admit_progress(r, NULL, 3)
    record(seen, "progress, no verdict", 0)
    pantheon.pn_admit_progress(r, &v, -3)
    record(seen, "progress to -3", 0)
    pantheon.pn_admit_release(r)
    pantheon.pn_admit_progress(r, &v, 3)             # released: nothing happens
    pantheon.pn_admit_release(r)
    record(seen, "cost, no model", pantheon.pn_cost_of(NULL, 5, 5, 0, pantheon.PN_KV_DEFAULT, &cost))
    record(seen, "cost, nowhere to put it", pantheon.pn_cost_of(model, 5, 5, 0, pantheon.PN_KV_DEFAULT, NULL))
    record(seen, "cost, -1 tokens", pantheon.pn_cost_of(model, -1, 5, 0, pantheon.PN_KV_DEFAULT, &cost))
    record(seen, "cost, overflow", pantheon.pn_cost_of(model, 2147483647, 5, 0, pantheon.PN_KV_DEFAULT, &cost))
    record(seen, "cost, beyond the context", pantheon.pn_cost_of(model, 2000000000, 5, 0, pantheon.PN_KV_F16, &cost))
    record(seen, "cost, window -1", pantheon.pn_cost_of(model, 5, 5, -1, pantheon.PN_KV_F16, &cost))
    record(seen, "cost, kv_type 9", pantheon.pn_cost_of(model, 5, 5, 0, <pantheon.pn_kv_type>9, &cost))
    record(seen, "kv of none", <int>pantheon.pn_cost_kv(NULL, 5))
    record(seen, "total of none", <int>pantheon.pn_cost_total(NULL, 5))
    record(seen, "need of none", <int>pantheon.pn_cost_need(NULL, 5))
    record(seen, "die of none", <int>pantheon.pn_cost_die(NULL, 0, 5))
    record(seen, "die 16", <int>pantheon.pn_cost_die(&cost, 16, 5))
    record(seen, "fit of none", pantheon.pn_cost_fit(NULL, 5, 5))
    record(seen, "no state to decide by", <int>pantheon.pn_admit_request(NULL, &cost, 5, 5, &fit))
    record(seen, "no cost to decide by", <int>pantheon.pn_admit_request(&st, NULL, 5, 5, &fit))
    record(seen, "nowhere to put what fits", <int>pantheon.pn_admit_request(&st, &cost, 5, 5, NULL))
    pantheon.pn_ladder_plan_from_state(NULL, &plan)
    record(seen, "plan without a state", <int>plan.prefill_window)
    pantheon.pn_ladder_plan_from_state(&st, NULL)
    record(seen, "plan to nowhere", 0)
    record(seen, "window of none", pantheon.pn_admit_max_window(NULL))
    record(seen, "kv of no model", <int>pantheon.pn_admit_kv_type(NULL))
    record(seen, "no model in GPU memory", <int>pantheon.pn_admit_gpu_resident(NULL))
    record(seen, "worst die of none", pantheon.pn_admit_worst_die(NULL))
    st.n_dies = 1 << 40
    assert 0 <= pantheon.pn_admit_worst_die(&st) < 16
    record(seen, "interval 0", pantheon.pn_memwatch_start(0))
    record(seen, "interval 60001", pantheon.pn_memwatch_start(60001))
    record(seen, "a limit of -1", pantheon.pn_memwatch_set_limit(<uint64_t>-1))
    pantheon.pn_memwatch_read(NULL)
    record(seen, "read to nowhere", 0)
    pantheon.pn_state_free(foreign)
    pantheon.pn_model_free(model)
    pantheon.pn_model_free(other)
    return seen


def careless_sampling():
    """The same of the sampler."""
    cdef pn_sampling_params params
    cdef pantheon.pn_logit_bias bias
    cdef float logits[4]
    cdef uint32_t recent[2]
    cdef list seen = []
    cdef int i
    for i in range(4):
        logits[i] = i
    recent[0], recent[1] = 1, 0xFFFFFFF0
    pantheon.pn_get_forward_fn(<pantheon.pn_arch>-7)
    record(seen, "defaults of none", pantheon.pn_sampling_defaults(NULL, 1))
    record(seen, "reset of none", pantheon.pn_sampling_reset(NULL))
    assert pantheon.pn_sampling_defaults(&params, 1) == 0
    record(seen, "no logits", pantheon.pn_sample_next_token(NULL, 4, &params, NULL, 0))
    record(seen, "no params", pantheon.pn_sample_next_token(logits, 4, NULL, NULL, 0))
    record(seen, "no vocabulary", pantheon.pn_sample_next_token(logits, 0, &params, NULL, 0))
    record(seen, "a vocabulary of -4", pantheon.pn_sample_next_token(logits, -4, &params, NULL, 0))
    record(seen, "-1 recent tokens", pantheon.pn_sample_next_token(logits, 4, &params, recent, -1))
    record(seen, "no recent tokens", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 2))
    params.n_bias = 1
    record(seen, "no bias", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    params.n_bias = -1
    record(seen, "-1 biases", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    bias.token, bias.bias = 4, 1
    params.n_bias, params.bias = 1, &bias
    record(seen, "a bias of token 4", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    params.n_bias, params.n_dry_breaker_ids = 0, 3
    record(seen, "no breakers", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    params.n_dry_breaker_ids, params.mirostat = 0, 7
    record(seen, "mirostat 7", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    params.mirostat = -1
    record(seen, "mirostat -1", pantheon.pn_sample_next_token(logits, 4, &params, NULL, 0))
    params.mirostat = 0
    logits[2] = float("nan")
    record(seen, "a NaN", pantheon.pn_sample_next_token(logits, 4, &params, recent, 2))
    for i in range(4):
        logits[i] = -float("inf")
    record(seen, "nothing to draw", pantheon.pn_sample_next_token(logits, 4, &params, recent, 2))
    logits[3] = 1
    params.penalty_last_n = params.dry_penalty_last_n = params.top_k = params.min_keep = params.n_tokens = -9
    params.dry_multiplier, params.temperature, params.top_p = 1, float("nan"), float("nan")
    assert pantheon.pn_sample_next_token(logits, 4, &params, recent, 2) == 3
    return seen


def careless_loading(str path):
    """The texts of the exceptions."""
    cdef pn_model *model = pn_load(path.encode())
    cdef int dies[20]
    cdef list seen = []
    memset(dies, 0, sizeof(dies))

    def attempt(which):
        try:
            if which == 0:
                pantheon.pn_load(NULL)
            elif which == 1:
                pantheon.pn_load_ex(NULL, NULL)
            elif which == 2:
                pantheon.pn_load_on(path.encode(), NULL, NULL, 2)
            elif which == 3:
                pantheon.pn_load_on(path.encode(), NULL, dies, 17)
            elif which == 4:
                pantheon.pn_load_on(path.encode(), NULL, dies, -1)
            elif which == 5:
                pantheon.pn_state_new(NULL)
            elif which == 6:
                pantheon.pn_state_new_ex(model, 8, <pantheon.pn_kv_type>9)
            elif which == 7:
                pantheon.pn_state_new_ex(model, 8, <pantheon.pn_kv_type>-1)
            elif which == 8:
                pantheon.pn_state_new_ex(model, -8, pantheon.PN_KV_F16)
            elif which == 9:
                pantheon.pn_state_new_ex(model, 2147483647, pantheon.PN_KV_F16)
            else:
                return None
        except ValueError as e:
            return str(e)
        return "no error"

    for i in range(10):
        seen.append(attempt(i))
    assert pantheon.pn_model_free(model) == 0        # no state is left of those that were refused
    return seen


# ---- callbacks that use what called them -----------------------------------------------------------------------------

cdef pantheon.pn_reservation *held_by_source = NULL
cdef pantheon.pn_verdict verdict_of_source
cdef int asked = 0


cdef int curious_source(uint64_t *total, uint64_t *left) noexcept nogil:
    """One die. It needs the GIL and memwatch's lock to find out."""
    global asked
    asked += 1
    with gil:
        pantheon.pn_admit_progress(held_by_source, &verdict_of_source, 1)
        total[0], left[0] = 1 << 30, 1 << 29
    return 1


def dies_from_python(str path):
    """How often a source that takes the GIL and the lock was asked, and what it said of its die."""
    global held_by_source, asked
    cdef pn_model *model = pn_load(path.encode())
    cdef pantheon.pn_request request
    cdef pantheon.pn_mem_state st
    cdef int status
    memset(&request, 0, sizeof(request))
    request.n_prompt = 5
    asked = 0
    with nogil:
        pantheon.pn_memwatch_start(1)
        status = pantheon.pn_admit_reserve(model, &request, &verdict_of_source, &held_by_source)
        pantheon.pn_memwatch_set_dies(curious_source)
        while asked < 20:
            pantheon.pn_memwatch_set_limit(0)        # samples
        pantheon.pn_memwatch_read(&st)
        pantheon.pn_memwatch_set_dies(NULL)
        pantheon.pn_admit_release(held_by_source)
        pantheon.pn_memwatch_start(250)
    pantheon.pn_model_free(model)
    return status, asked, st.n_dies, st.die_total[0], st.die_free[0]
