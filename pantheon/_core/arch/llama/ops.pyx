"""The transformer family: Llama 2/3, Mistral, Mixtral, Qwen2, Qwen3 and their mixtures of experts, BitNet b1.58.

x = embedding; per layer x += out(attention(norm(x))), x += down(silu(gate(norm(x))) * up(norm(x))), or the same of the
layer's experts (moe.pyx); logits = head(norm(x)). BitNet norms what out and down read once more, and has relu(gate)^2
in place of silu.

One layer function serves the single token, the prefill chunk and the batch. All ranks of a run execute it together and
meet at barriers. With several tokens, ranks split them for norms and quantisation; a single token is normed and
quantised by every rank for itself, which costs less than a barrier.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from pantheon._core.arch.llama.layers cimport llama_layer, llama_task
from pantheon._core.arch.llama.load cimport llama_load_tensors
from pantheon._core.arch.llama.structs cimport llama_job, pn_llama_model, pn_llama_stream, pn_llama_work
from pantheon._core.arch.llama.work cimport LLAMA_LAYER_COUNTERS, llama_work, llama_work_layout
from pantheon._core.arch.ops cimport pn_arch_ops, pn_run_sizes
from pantheon._core.arch.run cimport (
    logits_view,
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
from pantheon._core.base.arena cimport (
    compute_arena_size,
    pn_arena_alloc,
    pn_arena_begin,
    pn_arena_free,
    pn_arena_new,
    pn_arena_size,
)
from pantheon._core.base.pages cimport pn_pages_free
from pantheon._core.base.pool cimport pn_counter_zero
from pantheon._core.kernels.table cimport pn_kernels_active
from pantheon._core.layers.kvcache cimport kvcache_cost, kvcache_free, kvcache_new, kvcache_reset, pn_llama_kv_cache
from pantheon._core.layers.linear cimport input_begin
from pantheon._core.layers.matrix cimport owned_free
from pantheon._core.layers.rope cimport rope_free
from pantheon._core.load.config cimport config_from_gguf, config_validate, gguf_keys
from pantheon._core.load.config_hf cimport config_from_hf, hf_windows
from pantheon._core.load.source cimport Source, source_check_extra
from pantheon._core.types cimport (
    PN_ARCH_BITNET,
    PN_ARCH_BITNET_25,
    PN_ARCH_BITNET_B158,
    PN_ARCH_PHI2,
    PN_ARCH_QWEN2MOE,
    PN_ARCH_QWEN3MOE,
    PN_ROPE_SCALING_LONGROPE,
    pn_arch,
    pn_config,
    pn_cost,
    pn_kv_type,
    pn_model,
    pn_rope_kind,
    pn_state,
    tm_tensor,
)

cdef extern from "unistd.h" nogil:
    """
    #ifndef _SC_LEVEL3_CACHE_SIZE
    #define _SC_LEVEL3_CACHE_SIZE -1
    #endif
    """
    const int _SC_LEVEL3_CACHE_SIZE
    long sysconf(int name)

cdef enum:
    PREFILL_WINDOW = 512                 # most tokens of one pass

# ---- entry points ----------------------------------------------------------------------------------------------------

cdef void begin_stream(pn_llama_stream *s, int n_tok, int n_out) noexcept nogil:
    input_begin(&s.embd, n_tok)
    input_begin(&s.heads, n_tok)
    input_begin(&s.ff, n_tok)
    input_begin(&s.head, n_out)


cdef void fill(llama_job *job, pn_run *run, pn_llama_work *work) noexcept nogil:
    """Fills everything but the layer and, for several tokens, which sequences they belong to."""
    cdef const pn_config *c = &run.model.config
    cdef llama_layer_fn layer = job.layer
    cdef int i
    memset(job, 0, sizeof(llama_job))
    job.run = run
    job.c = c
    job.w = <pn_llama_model *>run.model.weights
    job.work = work
    job.layer = layer
    job.n_tok = run.n_tok
    job.first_out = run.first_out
    job.attn.n_tok = run.n_tok
    job.attn.n_head = c.n_head
    job.attn.n_kv_head = c.n_kv_head
    job.attn.head_dim = c.head_dim
    job.attn.scale = c.attn_scale
    job.attn.q = work.q
    job.attn.out = work.heads
    for i in range(work.n_ranks):
        begin_stream(&work.ranks[i].single, 1, 1)
    if run.n_tok > 1:
        begin_stream(&work.shared, run.n_tok, run.n_tok - run.first_out)
        for i in range(LLAMA_LAYER_COUNTERS * c.n_layer + 1):
            pn_counter_zero(&work.counters[i])


# A job and what it says of its sequences.
cdef struct llama_pass:
    llama_job job                        # its layer is set by the entry point
    pn_llama_kv_cache *caches[PREFILL_WINDOW]
    int pos[PREFILL_WINDOW]


cdef int begin(void *job, pn_run *run) noexcept nogil:
    cdef llama_pass *p = <llama_pass *>job
    cdef pn_llama_work *work = llama_work(run.model, run.n_tok, run.n_tok - run.first_out)
    if work == NULL:
        return -1
    fill(&p.job, run, work)
    p.job.attn.caches = p.caches
    p.job.attn.pos = p.pos
    return 0


cdef void add(void *job, pn_state *state, int first, int n) noexcept nogil:
    cdef llama_pass *p = <llama_pass *>job
    cdef int i
    for i in range(n):
        p.caches[first + i] = <pn_llama_kv_cache *>state.kv_cache
        p.pos[first + i] = state.pos + i
    p.job.attn.one_sequence = n == p.job.n_tok


cdef void advance(pn_state *state, int n) noexcept nogil:
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    state.pos += n
    kv.high = max(kv.high, state.pos)


cdef pn_run_ops run_ops
run_ops.window = PREFILL_WINDOW
run_ops.task = llama_task
run_ops.begin = begin
run_ops.add = add
run_ops.advance = advance
run_ops.n_ctx = state_reach
run_ops.broken = NULL


cdef tm_tensor *llama_forward(pn_model *model, uint32_t token, pn_state *state, llama_layer_fn layer) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_kv_cache *kv
    cdef pn_llama_work work
    cdef llama_job job
    cdef pn_run run
    cdef void *memory
    cdef tm_tensor *out
    cdef float *logits
    if run_check(&run_ops, model, token, state, 1) != 0 or run_check_files(model) != 0:
        return NULL
    kv = <pn_llama_kv_cache *>state.kv_cache
    if pn_arena_begin(state.arena, arena_bytes(w, &model.config)) != 0:      # the model's threads may have been raised
        return NULL
    memory = pn_arena_alloc(state.arena, llama_work_layout(&work, NULL, w, &model.config, 1, 1) + 64)
    out = <tm_tensor *>pn_arena_alloc(state.arena, sizeof(tm_tensor))
    logits = <float *>pn_arena_alloc(state.arena, model.config.n_vocab * sizeof(float))
    llama_work_layout(&work, <uint8_t *>((<size_t>memory + 63) // 64 * 64), w, &model.config, 1, 1)
    run = run_of(model, &token, 1, 0, logits)
    run.embd_override = state.embd_override
    job.layer = layer
    fill(&job, &run, &work)
    job.attn.caches = &kv
    job.attn.pos = &state.pos
    run_execute(&run_ops, &job, &run)
    advance(state, 1)
    logits_view(out, logits, model.config.n_vocab)
    return out


cdef int llama_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out, bint all,
                       llama_layer_fn layer) noexcept nogil:
    cdef llama_pass p
    p.job.layer = layer
    return run_prefill(&run_ops, &p, model, tokens, n, state, logits_out, all)


cdef int llama_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n, float *logits_out,
                             llama_layer_fn layer) noexcept nogil:
    cdef llama_pass p
    p.job.layer = layer
    return run_batch(&run_ops, &p, model, tokens, states, n, logits_out)


cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return llama_forward(model, token, state, llama_layer)


cdef int pn_llama_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                          bint all) noexcept nogil:
    return llama_prefill(model, tokens, n, state, logits_out, all, llama_layer)


cdef int pn_llama_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                                float *logits_out) noexcept nogil:
    return llama_forward_batch(model, tokens, states, n, logits_out, llama_layer)


# ---- life of models and states ---------------------------------------------------------------------------------------

cdef size_t outer_cache() noexcept nogil:
    """Bytes that the buffers of one prefill pass should fit in: the outermost cache's, or a common size of one."""
    cdef long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE)
    return <size_t>min(max(bytes, 8 << 20), 24 << 20) if bytes > 0 else 24 << 20


cdef int load_weights(pn_model *model, Source f) except -1:
    """Weights for the valid configuration that model.config holds."""
    cdef pn_llama_model *w
    cdef pn_llama_work work
    w = <pn_llama_model *>calloc(1, sizeof(pn_llama_model))
    if w == NULL:
        raise MemoryError("no memory for a model")
    model.weights = w
    f.owned = &w.owned
    w.k = pn_kernels_active()
    w.base.n_threads = 1
    w.sub_norms = model.config.arch in (PN_ARCH_BITNET, PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    w.squared_relu = model.config.arch in (PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    try:
        llama_load_tensors(w, &model.config, f)
        source_check_extra(f, model.config.n_layer, model.config.n_layer)
    except BaseException:
        unload(model)
        raise
    w.base.prefill_window = PREFILL_WINDOW
    # wide passes through experts read each of them for more tokens, which counts for more than the cache
    while (model.config.n_experts == 0 and w.base.prefill_window > 64
           and llama_work_layout(&work, NULL, w, &model.config, w.base.prefill_window, 1) > outer_cache()):
        w.base.prefill_window //= 2
    return 0


cdef int load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    if f.gguf == NULL:
        return pn_llama_load_safetensors(model, self, f)
    config_from_gguf(&model.config, gguf_keys(f), &self.gguf)
    config_validate(&model.config, f.path)
    return load_weights(model, f)


cdef int pn_llama_load_safetensors(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    cdef int i
    config_from_hf(&model.config, f.config)
    config_validate(&model.config, f.config.path)
    load_weights(model, f)
    windows = hf_windows(f.config, model.config.n_layer, model.config.n_ctx)
    for i in range(model.config.n_layer):
        (<pn_llama_model *>model.weights).layers[i].window = windows[i]
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    if w != NULL:
        rope_free(&w.rope)
        rope_free(&w.rope_long)
        owned_free(&w.owned)
        pn_pages_free(w.work_memory, w.work_bytes)
        free(w)
    model.weights = NULL


cdef size_t arena_bytes(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    """Scratch of a single-token forward: the work buffers, the logits and their tensor; a multiple of 16."""
    cdef pn_llama_work work
    cdef size_t need = llama_work_layout(&work, NULL, w, c, 1, 1) + 64 + sizeof(tm_tensor) + 64
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


cdef bint *state_stretched(const pn_state *state) noexcept nogil:
    if state.config.rope_scaling != PN_ROPE_SCALING_LONGROPE:
        return NULL
    return &(<pn_llama_kv_cache *>state.kv_cache).stretched


cdef int state_reach(const pn_state *state) noexcept nogil:
    """Positions that fit and that the rotation is made for."""
    cdef const bint *stretched = state_stretched(state)
    cdef int n_ctx = state_n_ctx(state)
    return n_ctx if stretched == NULL or stretched[0] else min(n_ctx, state.config.rope_orig_ctx)


cdef size_t state_bytes(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).nbytes + pn_arena_size(state.arena)


cdef void cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil:
    cdef const pn_llama_model *w = <const pn_llama_model *>model.weights
    cdef const pn_config *c = &model.config
    cdef pn_llama_work work
    cdef int n_tok, n_out
    kvcache_cost(c, c.n_layer, type, cost)
    cost.window = run_pass(&run_ops, model, sizes, &n_tok, &n_out)
    cost.state_bytes = arena_bytes(w, c)
    cost.scratch_bytes = llama_work_layout(&work, NULL, w, c, n_tok, n_out)


cdef size_t work_bytes(const pn_model *model) noexcept nogil:
    return (<const pn_llama_model *>model.weights).work_bytes


cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(ops))
    ops.name = name
    ops.arch = arch
    ops.gguf.rope_kind = rope_kind
    ops.gguf.layer_norm = arch == PN_ARCH_PHI2
    ops.gguf.experts_raw = ops.gguf.expert_shared = arch == PN_ARCH_QWEN2MOE
    ops.gguf.experts_split_ff = arch in (PN_ARCH_QWEN2MOE, PN_ARCH_QWEN3MOE)
    ops.load = load
    ops.unload = unload
    ops.forward = pn_llama_forward
    ops.prefill = pn_llama_prefill
    ops.forward_batch = pn_llama_forward_batch
    ops.state_new = state_new
    ops.state_stretched = state_stretched
    ops.state_reach = state_reach
    ops.state_reset = state_reset
    ops.state_free = state_free
    ops.state_truncate = state_truncate
    ops.state_snapshot_bytes = NULL
    ops.state_snapshot = NULL
    ops.state_restore = NULL
    ops.state_n_ctx = state_n_ctx
    ops.state_kv_type = state_kv_type
    ops.state_bytes = state_bytes
    ops.cost = cost
    ops.work_bytes = work_bytes
    return ops
