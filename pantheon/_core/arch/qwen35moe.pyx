"""Qwen3.5: Gated DeltaNet layers with a gated attention layer in between, dense (`qwen35`) or with experts
(`qwen35moe`): entry points and registry row.

A run that is stopped between two layers leaves the recurrent states of its sequences at different positions: they are
marked broken, and refused until they are reset or restored.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.qwen35moe_layers cimport qwen_job, qwen_task
from pantheon._core.arch.qwen35moe_load cimport qwen35moe_hf_config, qwen35moe_load_config, qwen35moe_load_tensors
from pantheon._core.arch.qwen35moe_state cimport (
    qwen35moe_state_cost,
    state_bytes,
    state_free,
    state_kv_type,
    state_n_ctx,
    state_new,
    state_reset,
    state_restore,
    state_snapshot,
    state_snapshot_bytes,
    state_truncate,
)
from pantheon._core.arch.qwen35moe_work cimport qwen35moe_work, qwen35moe_work_begin, qwen35moe_work_need
from pantheon._core.config_hf cimport hf_ternary_rule, hf_text, hf_tied
from pantheon._core.deltanet cimport pn_deltanet_run
from pantheon._core.gguf cimport gguf_close, gguf_file, gguf_get_str, gguf_open
from pantheon._core.gguf_values cimport path_of
from pantheon._core.kernels.table cimport pn_kernels_active
from pantheon._core.kvcache cimport pn_llama_kv_cache
from pantheon._core.memory.state cimport pn_cost
from pantheon._core.pool cimport fw_pool_run
from pantheon._core.report cimport pn_set_error
from pantheon._core.rope cimport rope_free
from pantheon._core.safetensors cimport safetensors_file
from pantheon._core.source cimport (
    PN_NAMES_QWEN35,
    PN_TERNARY_NONE,
    pn_source,
    source_check_extra,
    source_gguf,
    source_safetensors,
)
from pantheon._core.tensor cimport owned_free
from pantheon._core.types cimport (
    PN_MODEL_MAX_DIES,
    PN_ROPE_NEOX,
    pn_arch,
    pn_config,
    pn_kv_type,
    pn_model,
    pn_state,
    tm_tensor,
)

cdef enum:
    PREFILL_WINDOW = 512                 # most tokens of one pass: many, as experts see few of them

# What a run says of its sequences, on the caller's stack.
cdef struct qwen_sequences:
    pn_llama_kv_cache *caches[PREFILL_WINDOW]
    int pos[PREFILL_WINDOW]
    pn_deltanet_run runs[PREFILL_WINDOW]

# ---- entry points ----------------------------------------------------------------------------------------------------

cdef inline pn_qwen35moe_state *of(pn_state *state) noexcept nogil:
    return <pn_qwen35moe_state *>state.kv_cache


cdef void begin(qwen_job *job, pn_model *model, pn_qwen35moe_work *work, qwen_sequences *seqs, int n_tok,
                int first_out) noexcept nogil:
    """Fills what all kinds of run share."""
    memset(job, 0, sizeof(qwen_job))
    job.c = &model.config
    job.w = <pn_qwen35moe_model *>model.weights
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
    job.attn.caches = seqs.caches
    job.attn.pos = seqs.pos
    job.delta.dims = &job.w.dims
    job.delta.runs = seqs.runs
    job.delta.qkv = work.qkv
    job.delta.z = work.z
    job.delta.beta = work.beta
    job.delta.alpha = work.alpha
    qwen35moe_work_begin(work, n_tok, n_tok - first_out)


cdef void add_run(qwen_job *job, qwen_sequences *seqs, pn_state *state, int first, int n) noexcept nogil:
    """n tokens from `first` on continue `state`, whose recurrent part is about to move."""
    cdef int i
    for i in range(n):
        seqs.caches[first + i] = of(state).kv
        seqs.pos[first + i] = state.pos + i
    seqs.runs[job.delta.n_runs].state = &of(state).recurrent
    seqs.runs[job.delta.n_runs].first = first
    seqs.runs[job.delta.n_runs].n = n
    job.delta.n_runs += 1
    of(state).used = True
    of(state).broken = True


cdef void advance(pn_state *state, int n) noexcept nogil:
    state.pos += n
    of(state).kv.high = max(of(state).kv.high, state.pos)
    of(state).broken = False


cdef int run(qwen_job *job) noexcept nogil:
    fw_pool_run(job.pool, qwen_task, job, job.work.n_ranks)
    if job.stop:
        pn_set_error(b"interrupted", 0, 0)
        return -1
    return 0


cdef int check(pn_model *model, uint32_t token, pn_state *state, int n) noexcept nogil:
    """Refuses a token outside the vocabulary, positions outside the context, and a broken state."""
    if token >= <uint32_t>model.config.n_vocab:
        pn_set_error(b"token %lld is not below n_vocab %lld", token, model.config.n_vocab)
        return -1
    if n > of(state).kv.n_ctx - state.pos:
        pn_set_error(b"%lld more positions do not fit: n_ctx is %lld", n, of(state).kv.n_ctx)
        return -1
    if of(state).broken:
        pn_set_error(b"the state was interrupted inside a chunk: reset it or restore a checkpoint", 0, 0)
        return -1
    return 0


cdef tm_tensor *pn_qwen35moe_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    cdef qwen_sequences seqs
    cdef qwen_job job
    cdef pn_qwen35moe_work *work
    if check(model, token, state, 1) != 0:
        return NULL
    work = qwen35moe_work(model, 1, 1)
    if work == NULL:
        return NULL
    begin(&job, model, work, &seqs, 1, 0)
    add_run(&job, &seqs, state, 0, 1)
    job.tokens = &token
    job.embd_override = state.embd_override
    job.logits = of(state).logits
    run(&job)
    advance(state, 1)
    return &of(state).logits_view


cdef int prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                 bint all) noexcept nogil:
    cdef pn_qwen35moe_model *w = <pn_qwen35moe_model *>model.weights
    cdef qwen_sequences seqs
    cdef qwen_job job
    cdef pn_qwen35moe_work *work
    cdef int window = min(max(w.base.prefill_window, 1), <int>PREFILL_WINDOW), first = 0, n_tok, i
    for i in range(n):
        if check(model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(window, n - first)
        work = qwen35moe_work(model, n_tok, n_tok if all else 1)
        if work == NULL:
            return -1
        begin(&job, model, work, &seqs, n_tok, 0 if all else n_tok - 1)
        add_run(&job, &seqs, state, 0, n_tok)
        job.tokens = tokens + first
        job.logits = logits_out + (<size_t>first * model.config.n_vocab if all else 0)
        job.attn.one_sequence = True
        if run(&job) != 0:
            return -1
        advance(state, n_tok)
        first += n_tok
    return 0


cdef int forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                       float *logits_out) noexcept nogil:
    cdef qwen_sequences seqs
    cdef qwen_job job
    cdef pn_qwen35moe_work *work
    cdef int first = 0, n_tok, i
    for i in range(n):
        if check(model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(<int>PREFILL_WINDOW, n - first)
        work = qwen35moe_work(model, n_tok, n_tok)
        if work == NULL:
            return -1
        begin(&job, model, work, &seqs, n_tok, 0)
        for i in range(n_tok):
            add_run(&job, &seqs, states[first + i], i, 1)
        job.tokens = tokens + first
        job.logits = logits_out + <size_t>first * model.config.n_vocab
        if run(&job) != 0:
            return -1
        for i in range(n_tok):
            advance(states[first + i], 1)
        first += n_tok
    return 0


# ---- life of a model -------------------------------------------------------------------------------------------------

cdef pn_qwen35moe_model *new_model() except NULL:
    cdef pn_qwen35moe_model *w = <pn_qwen35moe_model *>calloc(1, sizeof(pn_qwen35moe_model))
    if w == NULL:
        raise MemoryError()
    w.k = pn_kernels_active()
    w.base.prefill_window = PREFILL_WINDOW
    w.base.n_threads = 1
    return w


cdef int load_tensors(pn_qwen35moe_model *w, const pn_config *config, const pn_source *f, str path) except -1:
    cdef pn_source source = f[0]
    cdef set asked = set()
    cdef int n_blocks = config.n_layer + w.n_mtp
    source.asked = <PyObject *>asked
    qwen35moe_load_tensors(w, config, &source, path)
    return source_check_extra(&source, path, config.n_layer, n_blocks)


cdef pn_qwen35moe_model *pn_qwen35moe_load(gguf_file *gguf, pn_config *config) except NULL:
    cdef pn_qwen35moe_model *w = new_model()
    cdef pn_source source = source_gguf(gguf)
    config.rope_kind = PN_ROPE_NEOX
    try:
        path = path_of(gguf.maps[0])
        qwen35moe_load_config(w, config, gguf, gguf_get_str(gguf, b"general.architecture"), path)
        load_tensors(w, config, &source, path)
    except BaseException:
        pn_qwen35moe_free(w)
        raise
    return w


cdef void pn_qwen35moe_free(pn_qwen35moe_model *w) noexcept nogil:
    if w != NULL:
        rope_free(&w.rope)
        owned_free(&w.owned)
        free(w.work_memory)
        free(w)


cdef void pn_qwen35moe_model_set_dies(pn_qwen35moe_model *w, const int *dies, int n_dies) noexcept nogil:
    w.n_gpu_dies = max(0, min(n_dies, <int>PN_MODEL_MAX_DIES))
    memcpy(w.gpu_dies, dies, w.n_gpu_dies * sizeof(int))


cdef int load(pn_model *model, const pn_arch_ops *self, const pn_source *f, str path) except -1:
    cdef pn_qwen35moe_model *w = pn_qwen35moe_load(<gguf_file *>f.gguf, &model.config)
    model.weights = w
    pn_qwen35moe_model_set_dies(w, model.gpu_dies, model.n_gpu_dies)
    return 0


cdef int load_hf(pn_model *model, const pn_arch_ops *self, const safetensors_file *f, dict config, str path,
                 str config_path) except -1:
    cdef pn_qwen35moe_model *w = new_model()
    cdef pn_source source = source_safetensors(f)
    config = hf_text(config, config_path)
    model.config.arch = self.arch
    source.names = PN_NAMES_QWEN35
    source.tied = hf_tied(config, config_path)
    try:
        if hf_ternary_rule(config, config_path) != PN_TERNARY_NONE:
            raise ValueError(f"{config_path}: key quantization_config is not supported for this model class")
        qwen35moe_hf_config(w, &model.config, config, config_path)
        load_tensors(w, &model.config, &source, path)
    except BaseException:
        pn_qwen35moe_free(w)
        raise
    model.weights = w
    pn_qwen35moe_model_set_dies(w, model.gpu_dies, model.n_gpu_dies)
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    pn_qwen35moe_free(<pn_qwen35moe_model *>model.weights)
    model.weights = NULL


cdef void cost(const pn_model *model, pn_kv_type type, int window, pn_cost *cost) noexcept nogil:
    cdef const pn_qwen35moe_model *w = <const pn_qwen35moe_model *>model.weights
    qwen35moe_state_cost(model, type, cost)
    cost.window = max(1, min(window, min(w.base.prefill_window, <int>PREFILL_WINDOW)))
    cost.scratch_bytes = qwen35moe_work_need(model, cost.window)
    cost.logits_bytes = model.config.n_vocab * sizeof(float)


cdef size_t work_bytes(const pn_model *model) noexcept nogil:
    return (<const pn_qwen35moe_model *>model.weights).work_bytes


cdef pn_arch_ops pn_qwen35moe_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(ops))
    ops.name = name
    ops.arch = arch
    ops.rope_kind = PN_ROPE_NEOX
    ops.load = load
    ops.load_hf = load_hf
    ops.unload = unload
    ops.forward = pn_qwen35moe_forward
    ops.prefill = prefill
    ops.forward_batch = forward_batch
    ops.state_new = state_new
    ops.state_reset = state_reset
    ops.state_free = state_free
    ops.state_truncate = state_truncate
    ops.state_snapshot_bytes = state_snapshot_bytes
    ops.state_snapshot = state_snapshot
    ops.state_restore = state_restore
    ops.state_n_ctx = state_n_ctx
    ops.state_kv_type = state_kv_type
    ops.state_bytes = state_bytes
    ops.cost = cost
    ops.work_bytes = work_bytes
    return ops


# ---- test hook -------------------------------------------------------------------------------------------------------

def probe(str path, dies=()):
    """What pn_qwen35moe_load and pn_qwen35moe_model_set_dies record of a file, as a dict."""
    cdef gguf_file *f = gguf_open(path)
    cdef pn_qwen35moe_model *w = NULL
    cdef pn_config config
    cdef int numbers[PN_MODEL_MAX_DIES + 1]
    cdef int i, n_dies = min(len(dies), <int>PN_MODEL_MAX_DIES + 1)
    memset(&config, 0, sizeof(config))
    for i in range(n_dies):
        numbers[i] = dies[i]
    try:
        w = pn_qwen35moe_load(f, &config)
        pn_qwen35moe_model_set_dies(w, numbers, n_dies)
        return {
            "n_layer": config.n_layer, "recurrent": [bool(w.layers[i].recurrent) for i in range(config.n_layer)],
            "slots": [w.layers[i].slot for i in range(config.n_layer)],
            "k_heads": (w.dims.n_k_head, w.dims.k_dim), "v_heads": (w.dims.n_v_head, w.dims.v_dim),
            "taps": w.dims.taps, "sections": [w.sections[i] for i in range(3)],
            "dies": [w.gpu_dies[i] for i in range(w.n_gpu_dies)],
            "mtp": [{"eh_proj": (w.mtp[i].eh_proj.m[0].rows, w.mtp[i].eh_proj.m[0].cols),
                     "experts": w.mtp[i].layer.moe.n_experts, "recurrent": bool(w.mtp[i].layer.recurrent),
                     "q_rows": w.mtp[i].layer.qkv.m[0].rows, "own_embd": w.mtp[i].embd.data != w.embd.data,
                     "hnorm": [w.mtp[i].hnorm[j] for j in range(config.n_embd)]} for i in range(w.n_mtp)],
        }
    finally:
        pn_qwen35moe_free(w)
        gguf_close(f)
