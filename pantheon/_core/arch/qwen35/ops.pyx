"""Qwen3.5: Gated DeltaNet layers with a gated attention layer in between, dense (`qwen35`) or with experts
(`qwen35moe`): entry points and registry row.

A run that is stopped between two layers leaves the recurrent states of its sequences at different positions: they are
marked broken, and refused until they are reset or restored.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.ops cimport pn_arch_ops, pn_run_sizes
from pantheon._core.arch.qwen35.layers cimport qwen_job, qwen_task
from pantheon._core.arch.qwen35.load cimport qwen35moe_hf_config, qwen35moe_load_config, qwen35moe_load_tensors
from pantheon._core.arch.qwen35.state cimport (
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
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_state, pn_qwen35moe_work
from pantheon._core.arch.qwen35.work cimport qwen35moe_work, qwen35moe_work_begin, qwen35moe_work_need
from pantheon._core.arch.run cimport (
    pn_run,
    pn_run_ops,
    run_batch,
    run_check,
    run_check_files,
    run_execute,
    run_of,
    run_pass,
    run_prefill,
)
from pantheon._core.base.pages cimport pn_pages_free
from pantheon._core.files.gguf cimport gguf_close, gguf_open
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.gguf_values cimport path_of
from pantheon._core.kernels.table cimport pn_kernels_active
from pantheon._core.layers.deltanet cimport pn_deltanet_run
from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.matrix cimport owned_free
from pantheon._core.layers.rope cimport rope_free
from pantheon._core.load.source cimport Source, source_check_extra, source_gguf
from pantheon._core.types cimport (
    PN_MODEL_MAX_DIES,
    pn_arch,
    pn_config,
    pn_cost,
    pn_kv_type,
    pn_model,
    pn_state,
    tm_tensor,
)

cdef enum:
    PREFILL_WINDOW = 512                 # most tokens of one pass: many, as experts see few of them

# A job and what it says of its sequences.
cdef struct qwen_pass:
    qwen_job job
    pn_llama_kv_cache *caches[PREFILL_WINDOW]
    int pos[PREFILL_WINDOW]
    pn_deltanet_run runs[PREFILL_WINDOW]

# ---- entry points ----------------------------------------------------------------------------------------------------

cdef inline pn_qwen35moe_state *of(const pn_state *state) noexcept nogil:
    return <pn_qwen35moe_state *>state.kv_cache


cdef int begin(void *job, pn_run *run) noexcept nogil:
    cdef qwen_pass *p = <qwen_pass *>job
    cdef qwen_job *j = &p.job
    cdef const pn_config *c = &run.model.config
    cdef pn_qwen35moe_work *work = qwen35moe_work(run.model, run.n_tok, run.n_tok - run.first_out)
    if work == NULL:
        return -1
    memset(j, 0, sizeof(qwen_job))
    j.run = run
    j.c = c
    j.w = <pn_qwen35moe_model *>run.model.weights
    j.work = work
    j.n_tok = run.n_tok
    j.attn.n_tok = run.n_tok
    j.attn.n_head = c.n_head
    j.attn.n_kv_head = c.n_kv_head
    j.attn.head_dim = c.head_dim
    j.attn.scale = c.attn_scale
    j.attn.window = c.sliding_window
    j.attn.q = work.q
    j.attn.out = work.heads
    j.attn.caches = p.caches
    j.attn.pos = p.pos
    j.delta.dims = &j.w.dims
    j.delta.runs = p.runs
    j.delta.qkv = work.qkv
    j.delta.z = work.z
    j.delta.beta = work.beta
    j.delta.alpha = work.alpha
    qwen35moe_work_begin(work, run.n_tok, run.n_tok - run.first_out)
    return 0


cdef void add(void *job, pn_state *state, int first, int n) noexcept nogil:
    """The recurrent part of the state is about to move."""
    cdef qwen_pass *p = <qwen_pass *>job
    cdef pn_deltanet_run *run = &p.runs[p.job.delta.n_runs]
    cdef int i
    for i in range(n):
        p.caches[first + i] = of(state).kv
        p.pos[first + i] = state.pos + i
    p.job.attn.one_sequence = n == p.job.n_tok
    run.state = &of(state).recurrent
    run.first = first
    run.n = n
    p.job.delta.n_runs += 1
    of(state).used = True
    of(state).broken = True


cdef void advance(pn_state *state, int n) noexcept nogil:
    state.pos += n
    of(state).kv.high = max(of(state).kv.high, state.pos)
    of(state).broken = False


cdef bint broken(const pn_state *state) noexcept nogil:
    return of(state).broken


cdef pn_run_ops run_ops
run_ops.window = PREFILL_WINDOW
run_ops.task = qwen_task
run_ops.begin = begin
run_ops.add = add
run_ops.advance = advance
run_ops.n_ctx = state_n_ctx
run_ops.broken = broken


cdef tm_tensor *pn_qwen35moe_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    cdef qwen_pass p
    cdef pn_run run
    if run_check(&run_ops, model, token, state, 1) != 0:
        return NULL
    run = run_of(model, &token, 1, 0, of(state).logits)
    run.embd_override = state.embd_override
    if run_check_files(model) != 0 or begin(&p, &run) != 0:
        return NULL
    add(&p, state, 0, 1)
    run_execute(&run_ops, &p, &run)
    advance(state, 1)
    return &of(state).logits_view


cdef int prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                 bint all) noexcept nogil:
    cdef qwen_pass p
    return run_prefill(&run_ops, &p, model, tokens, n, state, logits_out, all)


cdef int forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                       float *logits_out) noexcept nogil:
    cdef qwen_pass p
    return run_batch(&run_ops, &p, model, tokens, states, n, logits_out)


# ---- life of a model -------------------------------------------------------------------------------------------------

cdef pn_qwen35moe_model *new_model() except NULL:
    cdef pn_qwen35moe_model *w = <pn_qwen35moe_model *>calloc(1, sizeof(pn_qwen35moe_model))
    if w == NULL:
        raise MemoryError("no memory for a model")
    w.k = pn_kernels_active()
    w.base.prefill_window = PREFILL_WINDOW
    w.base.n_threads = 1
    return w


cdef pn_qwen35moe_model *load_model(Source f, pn_config *config) except NULL:
    cdef pn_qwen35moe_model *w = new_model()
    cdef int n_blocks
    f.owned = &w.owned
    try:
        if f.gguf != NULL:
            qwen35moe_load_config(w, config, f)
        else:
            qwen35moe_hf_config(w, config, f)
        n_blocks = config.n_layer + w.n_mtp
        qwen35moe_load_tensors(w, config, f)
        source_check_extra(f, config.n_layer, n_blocks)
    except BaseException:
        pn_qwen35moe_free(w)
        raise
    return w


cdef pn_qwen35moe_model *pn_qwen35moe_load(gguf_file *gguf, pn_config *config) except NULL:
    return load_model(source_gguf(gguf, path_of(gguf.maps[0])), config)


cdef void pn_qwen35moe_free(pn_qwen35moe_model *w) noexcept nogil:
    if w != NULL:
        rope_free(&w.rope)
        owned_free(&w.owned)
        pn_pages_free(w.work_memory, w.work_bytes)
        free(w)


cdef void pn_qwen35moe_model_set_dies(pn_qwen35moe_model *w, const int *dies, int n_dies) noexcept nogil:
    w.n_gpu_dies = max(0, min(n_dies, <int>PN_MODEL_MAX_DIES))
    memcpy(w.gpu_dies, dies, w.n_gpu_dies * sizeof(int))


cdef int load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    cdef pn_qwen35moe_model *w = load_model(f, &model.config)
    model.weights = w
    pn_qwen35moe_model_set_dies(w, model.gpu_dies, model.n_gpu_dies)
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    pn_qwen35moe_free(<pn_qwen35moe_model *>model.weights)
    model.weights = NULL


cdef void cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil:
    cdef int n_tok, n_out
    qwen35moe_state_cost(model, type, cost)
    cost.window = run_pass(&run_ops, model, sizes, &n_tok, &n_out)
    cost.scratch_bytes = qwen35moe_work_need(model, n_tok, n_out)


cdef size_t work_bytes(const pn_model *model) noexcept nogil:
    return (<const pn_qwen35moe_model *>model.weights).work_bytes


cdef pn_arch_ops pn_qwen35moe_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(ops))
    ops.name = name
    ops.arch = arch
    ops.load = load
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
