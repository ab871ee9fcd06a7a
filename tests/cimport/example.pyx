# cython: language_level=3
"""A Cython extension that drives Pantheon's C API: load, prompt, generate greedily, without the GIL.

The example of docs/cython.md; the test suite builds it against the installed package.
"""
cimport pantheon
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from pantheon cimport pn_load, pn_model, pn_sampling_params, pn_state, tm_tensor

if pantheon.pn_abi_version() != pantheon.PN_ABI_VERSION:
    raise ImportError("this extension was compiled against another version of pantheon")


def greedy(str path, list prompt, int n):
    """The n tokens that greedily continue prompt, a list of token ids."""
    cdef pn_model *model = pn_load(path.encode())
    cdef pn_state *state = NULL
    cdef uint32_t *tokens = <uint32_t *>malloc((len(prompt) + n) * sizeof(uint32_t))
    cdef float *logits = <float *>malloc(model.config.n_vocab * sizeof(float))
    cdef int n_prompt = len(prompt), i
    cdef bint failed
    try:
        if tokens == NULL or logits == NULL:
            raise MemoryError()
        for i in range(n_prompt):
            tokens[i] = prompt[i]
        state = pantheon.pn_state_new(model)
        with nogil:
            failed = run(model, state, tokens, n_prompt, n, logits) != 0
        if failed:
            raise RuntimeError(pantheon.pn_last_error().decode())
        return [tokens[n_prompt + i] for i in range(n)]
    finally:
        pantheon.pn_state_free(state)
        pantheon.pn_model_free(model)
        free(tokens)
        free(logits)


cdef int run(pn_model *model, pn_state *state, uint32_t *tokens, int n_prompt, int n, float *logits) noexcept nogil:
    """Appends n tokens to tokens (n_prompt + n,); logits is (n_vocab,) scratch. 0, or -1 with pn_last_error()."""
    cdef pn_sampling_params params
    cdef tm_tensor *out
    cdef int i
    pantheon.pn_sampling_defaults(&params, 1)
    params.temperature = 0
    if pantheon.pn_prefill(model, tokens, n_prompt, state, logits, False) != 0:
        return -1
    tokens[n_prompt] = pantheon.pn_sample_next_token(logits, model.config.n_vocab, &params, NULL, 0)
    for i in range(n_prompt, n_prompt + n - 1):
        out = model.forward(model, tokens[i], state)
        if out == NULL:
            return -1
        tokens[i + 1] = pantheon.pn_sample_next_token(<float *>out.data, model.config.n_vocab, &params, NULL, 0)
    return 0


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
