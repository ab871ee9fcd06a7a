"""The C API of Pantheon (see engine.pxd for the contract): registry, loading, lifecycle of states, step seam."""
import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, strdup

from pantheon._core.arch.llama cimport pn_llama_ops
from pantheon._core.arch.phi cimport pn_phi_ops
from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights
from pantheon._core.gguf cimport gguf_close, gguf_file, gguf_find, gguf_get_int, gguf_get_str, gguf_kv, gguf_open
from pantheon._core.pool cimport fw_pool_get
from pantheon._core.report cimport pn_set_error
from pantheon._core.types cimport (
    PN_ABI_VERSION,
    PN_ARCH_COUNT,
    PN_ARCH_LLAMA,
    PN_ARCH_MISTRAL,
    PN_ARCH_MIXTRAL,
    PN_ARCH_PHI2,
    PN_ARCH_PHI3,
    PN_ARCH_QWEN2,
    PN_ARCH_QWEN2MOE,
    PN_ARCH_QWEN3,
    PN_ARCH_QWEN3MOE,
    PN_CHAT_CHATML,
    PN_CHAT_LLAMA3,
    PN_CHAT_MISTRAL,
    PN_CHAT_NONE,
    PN_CHAT_PHI3,
    PN_CHAT_TEMPLATE,
    PN_KV_DEFAULT,
    PN_MODEL_MAX_DIES,
    PN_ROPE_NEOX,
    PN_ROPE_NORM,
    pn_arch,
    pn_forward_fn,
    pn_kv_type,
    pn_load_opts,
    pn_model,
    pn_state,
    tm_tensor,
)

from pantheon._core.threads import default_threads

# ---- registry: one line per architecture -----------------------------------------------------------------------------

cdef pn_arch_ops registry[PN_ARCH_COUNT]
registry[0] = pn_llama_ops(b"llama", PN_ARCH_LLAMA, PN_ROPE_NORM)
registry[1] = pn_llama_ops(b"mistral", PN_ARCH_MISTRAL, PN_ROPE_NORM)
registry[2] = pn_llama_ops(b"qwen2", PN_ARCH_QWEN2, PN_ROPE_NEOX)
registry[3] = pn_llama_ops(b"qwen3", PN_ARCH_QWEN3, PN_ROPE_NEOX)
registry[4] = pn_llama_ops(b"mixtral", PN_ARCH_MIXTRAL, PN_ROPE_NORM)
registry[5] = pn_llama_ops(b"qwen2moe", PN_ARCH_QWEN2MOE, PN_ROPE_NEOX)
registry[6] = pn_llama_ops(b"qwen3moe", PN_ARCH_QWEN3MOE, PN_ROPE_NEOX)
registry[7] = pn_phi_ops(b"phi2", PN_ARCH_PHI2)
registry[8] = pn_phi_ops(b"phi3", PN_ARCH_PHI3)


cdef inline int row(pn_arch arch) noexcept nogil:
    return <int>arch


cdef const pn_arch_ops *ops_named(str name) noexcept:
    cdef int i
    for i in range(PN_ARCH_COUNT):
        if registry[i].name.decode() == name:
            return &registry[i]
    return NULL


cdef inline const pn_arch_ops *ops_of(const pn_model *model) noexcept nogil:
    return &registry[row(model.config.arch)]


cdef inline const pn_arch_ops *ops_of_state(const pn_state *state) noexcept nogil:
    return &registry[row(state.config.arch)]


cdef int pn_abi_version() noexcept nogil:
    return PN_ABI_VERSION


cdef pn_forward_fn pn_get_forward_fn(pn_arch arch) noexcept nogil:
    return registry[row(arch)].forward if 0 <= row(arch) < PN_ARCH_COUNT else NULL


def architectures():
    """Names of the architectures that this version runs."""
    cdef int i
    return [registry[i].name.decode() for i in range(<int>PN_ARCH_COUNT)]


# ---- loading ---------------------------------------------------------------------------------------------------------

# Control tokens that give a chat format away when the file has no template, most telling first.
cdef list STYLE_TOKENS = [(b"<|im_start|>", PN_CHAT_CHATML), (b"<|start_header_id|>", PN_CHAT_LLAMA3),
                          (b"[INST]", PN_CHAT_MISTRAL), (b"<|assistant|>", PN_CHAT_PHI3)]


cdef bint has_token(const gguf_kv *tokens, bytes text) noexcept:
    """True when the string array `tokens` holds exactly this text. Lengths were checked when the file was opened."""
    cdef const uint8_t *p = tokens.data
    cdef const char *wanted = text
    cdef uint64_t n, length = len(text)
    for _ in range(tokens.count):
        memcpy(&n, p, 8)
        p += 8
        if n == length and memcmp(p, wanted, n) == 0:
            return True
        p += n
    return False


cdef int chat_style(const gguf_file *f) noexcept:
    cdef const gguf_kv *tokens = gguf_find(f, b"tokenizer.ggml.tokens")
    if gguf_find(f, b"tokenizer.chat_template") != NULL:
        return PN_CHAT_TEMPLATE
    if f.tokenizer == NULL or tokens == NULL:
        return PN_CHAT_NONE
    for text, style in STYLE_TOKENS:
        if has_token(tokens, text):
            return style
    return PN_CHAT_NONE


cdef bint has_experts(const gguf_file *f) except -1:
    """Files of the architecture llama are Mixtral when they have experts."""
    cdef int64_t n = 0
    return gguf_get_int(f, b"llama.expert_count", 0, &n) and n > 0


cdef int load_gguf(pn_model *model, str path) except -1:
    cdef gguf_file *f = gguf_open(path)
    cdef const pn_arch_ops *ops
    try:
        arch = gguf_get_str(f, b"general.architecture")
        if arch is None:
            raise ValueError(f"{path}: key general.architecture is missing")
        ops = ops_named("mixtral" if arch == "llama" and has_experts(f) else arch)
        if ops == NULL:
            raise ValueError(f"{path}: architecture {arch!r} is unknown; known: {', '.join(architectures())}")
        model.config.arch = ops.arch
        ops.load(model, ops, f, path)
    except BaseException:
        gguf_close(f)
        raise
    (<pn_arch_weights *>model.weights).gguf = f
    model.forward = ops.forward
    model.tokenizer = f.tokenizer
    model.chat_style = chat_style(f)
    return 0


cdef int record_dies(pn_model *model, const int *dies, int n_dies) except -1:
    cdef int i
    if dies == NULL:
        return 0
    if not 0 <= n_dies <= PN_MODEL_MAX_DIES:
        raise ValueError(f"dies: {n_dies} given, at most {PN_MODEL_MAX_DIES} are possible")
    for i in range(n_dies):
        if dies[i] < 0 or dies[i] in [dies[j] for j in range(i)]:
            raise ValueError(f"dies: {[dies[j] for j in range(n_dies)]} are not different numbers from 0 on")
        model.gpu_dies[i] = dies[i]
    model.n_gpu_dies = n_dies
    return 0


cdef pn_model *pn_load_on(const char *path, const pn_load_opts *opts, const int *dies, int n_dies) except NULL:
    cdef pn_model *model = <pn_model *>calloc(1, sizeof(pn_model))
    if model == NULL:
        raise MemoryError()
    name = os.fsdecode(<bytes>path)
    try:
        model.path = strdup(path)
        if model.path == NULL:
            raise MemoryError()
        record_dies(model, dies, n_dies)
        if opts != NULL and (opts.config_path != NULL or opts.vocab_path != NULL):
            raise ValueError(f"{name}: config_path and vocab_path belong to safetensors models, "
                             "which this version does not read")
        load_gguf(model, name)
        if opts != NULL and opts.quantize:
            raise ValueError(f"quantize: {ops_of(model).name.decode()} has no quantisation at load")
        model.pool = fw_pool_get()
        pn_model_set_threads(model, default_threads())
    except BaseException:
        pn_model_free(model)
        raise
    return model


cdef pn_model *pn_load_ex(const char *path, const pn_load_opts *opts) except NULL:
    return pn_load_on(path, opts, NULL, 0)


cdef pn_model *pn_load(const char *path) except NULL:
    return pn_load_on(path, NULL, NULL, 0)


cdef void pn_model_free(pn_model *model) noexcept:
    cdef gguf_file *f = NULL
    if model == NULL:
        return
    if model.weights != NULL:
        f = (<pn_arch_weights *>model.weights).gguf
        ops_of(model).unload(model)
    if f != NULL:
        gguf_close(f)
    free(model.path)
    free(model)


cdef int pn_model_threads(const pn_model *model) noexcept nogil:
    return (<const pn_arch_weights *>model.weights).n_threads


cdef void pn_model_set_threads(pn_model *model, int n_threads) noexcept nogil:
    (<pn_arch_weights *>model.weights).n_threads = max(1, min(n_threads, 256)) if model.pool != NULL else 1


# ---- states ----------------------------------------------------------------------------------------------------------

cdef pn_state *pn_state_new(pn_model *model) except NULL:
    return pn_state_new_ex(model, 0, PN_KV_DEFAULT)


cdef pn_state *pn_state_new_ex(pn_model *model, int n_ctx, pn_kv_type kv_type) except NULL:
    cdef pn_state *state
    if n_ctx == 0:
        n_ctx = min(model.config.n_ctx, 4096)
    if not 1 <= n_ctx <= model.config.n_ctx:
        raise ValueError(f"n_ctx is {n_ctx}, not in 1..{model.config.n_ctx}, the model's own context")
    state = <pn_state *>calloc(1, sizeof(pn_state))
    if state == NULL:
        raise MemoryError()
    state.config = &model.config
    try:
        ops_of(model).state_new(model, state, n_ctx, kv_type)
    except BaseException:
        pn_state_free(state)
        raise
    return state


cdef void pn_state_reset(pn_state *state) noexcept nogil:
    ops_of_state(state).state_reset(state)
    state.pos = 0


cdef void pn_state_free(pn_state *state) noexcept nogil:
    if state != NULL:
        ops_of_state(state).state_free(state)
        free(state)


cdef int pn_state_truncate(pn_state *state, int pos) noexcept nogil:
    if not 0 <= pos <= state.pos:
        pn_set_error(b"cannot truncate to position %lld: the state holds %lld", pos, state.pos)
        return -1
    return ops_of_state(state).state_truncate(state, pos)


cdef int pn_state_n_ctx(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_n_ctx(state)


cdef pn_kv_type pn_state_kv_type(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_kv_type(state)


cdef size_t pn_state_bytes(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_bytes(state)


# ---- forward ---------------------------------------------------------------------------------------------------------

cdef int pn_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                    bint all) noexcept nogil:
    return ops_of(model).prefill(model, tokens, n, state, logits_out, all)


cdef int pn_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                          float *logits_out) noexcept nogil:
    return ops_of(model).forward_batch(model, tokens, states, n, logits_out)


# Steps that do not block exist where a device runs them; the CPU's forward is the blocking one.

cdef int pn_forward_step_begin(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return 1


cdef int pn_forward_step_poll(pn_model *model, pn_state *state, tm_tensor **logits_out) noexcept nogil:
    pn_set_error(b"this model has no steps to poll: use forward", 0, 0)
    return -1
