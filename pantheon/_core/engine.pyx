"""The C API of Pantheon (see engine.pxd for the contract): registry, loading, lifecycle of states, step seam."""
import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, getenv, strtol
from libc.string cimport memcmp, memcpy, memset, strdup

from pantheon._core.arch.llama cimport pn_llama_ops
from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights
from pantheon._core.arch.phi cimport pn_phi_ops
from pantheon._core.arch.rwkvx cimport pn_rwkvx_load, pn_rwkvx_ops
from pantheon._core.bounded_json cimport json_file
from pantheon._core.config_hf cimport hf_architecture
from pantheon._core.arch.qwen35moe cimport pn_qwen35moe_ops
from pantheon._core.gguf cimport gguf_close, gguf_file, gguf_find, gguf_get_int, gguf_get_str, gguf_kv, gguf_open
from pantheon._core.memory.admit cimport pn_admit_request
from pantheon._core.memory.cost cimport pn_cost_kv, pn_cost_need
from pantheon._core.memory.ladder cimport pn_ladder_have, pn_ladder_plan_from_state
from pantheon._core.memory.memwatch cimport (
    pn_memwatch_decide_begin,
    pn_memwatch_decide_end,
    pn_memwatch_fresh,
    pn_memwatch_page_bytes,
    pn_memwatch_promise,
    pn_memwatch_running,
    pn_reservation_release,
    pn_reservation_touched,
)
from pantheon._core.memory.state cimport (
    PN_ADMIT_OK,
    PN_MEM_CRITICAL,
    pn_admit_code,
    pn_cost,
    pn_ladder_plan,
    pn_mem_state,
    pn_request,
    pn_reservation,
    pn_verdict,
)
from pantheon._core.pool cimport fw_pool_get
from pantheon._core.report cimport PN_LOG_WARNING, pn_log, pn_set_error, pn_set_no_memory
from pantheon._core.safetensors cimport safetensors_close, safetensors_file, safetensors_open
from pantheon._core.source cimport pn_source, source_gguf
from pantheon._core.types cimport (
    PN_ABI_VERSION,
    PN_ADMIT_CAPPED,
    PN_ADMIT_DENIED,
    PN_ADMIT_FIT,
    PN_ARCH_BITNET,
    PN_ARCH_BITNET_25,
    PN_ARCH_BITNET_B158,
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
    PN_ARCH_QWEN35,
    PN_ARCH_QWEN35MOE,
    PN_ARCH_RWKVX,
    PN_CHAT_CHATML,
    PN_CHAT_LLAMA3,
    PN_CHAT_MISTRAL,
    PN_CHAT_NONE,
    PN_CHAT_PHI3,
    PN_CHAT_TEMPLATE,
    PN_KV_DEFAULT,
    PN_KV_F16,
    PN_KV_Q8_0,
    PN_MODEL_MAX_DIES,
    PN_QWEN35MOE_MAX_SEQ_CAP,
    PN_ROPE_NEOX,
    PN_ROPE_NORM,
    pn_admit_status,
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
registry[9] = pn_llama_ops(b"bitnet", PN_ARCH_BITNET, PN_ROPE_NEOX)
registry[10] = pn_llama_ops(b"bitnet-b1.58", PN_ARCH_BITNET_B158, PN_ROPE_NEOX)
registry[11] = pn_llama_ops(b"bitnet-25", PN_ARCH_BITNET_25, PN_ROPE_NEOX)
registry[12] = pn_qwen35moe_ops(b"qwen35", PN_ARCH_QWEN35)
registry[13] = pn_qwen35moe_ops(b"qwen35moe", PN_ARCH_QWEN35MOE)
registry[14] = pn_rwkvx_ops()


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


cdef const char *pn_arch_name(const pn_model *model) noexcept nogil:
    return ops_of(model).name


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
    cdef pn_source source = source_gguf(f)
    try:
        arch = gguf_get_str(f, b"general.architecture")
        if arch is None:
            raise ValueError(f"{path}: key general.architecture is missing")
        ops = ops_named("mixtral" if arch == "llama" and has_experts(f) else arch)
        if ops == NULL:
            raise ValueError(f"{path}: architecture {arch!r} is unknown; known: {', '.join(architectures())}")
        model.config.arch = ops.arch
        ops.load(model, ops, &source, path)
    except BaseException:
        gguf_close(f)
        raise
    (<pn_arch_weights *>model.weights).gguf = f
    model.forward = ops.forward
    model.tokenizer = f.tokenizer
    model.chat_style = chat_style(f)
    return 0


# ---- Hugging Face folders and safetensors files ----

def hf_weights(folder):
    """The file to open for a Hugging Face folder: the index of a sharded set, else the one safetensors file."""
    for name in ("model.safetensors.index.json", "model.safetensors"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise FileNotFoundError(2, "no model.safetensors and no model.safetensors.index.json in this folder", folder)


def is_safetensors(path):
    """Whether a path is to be read as safetensors: by its name or, for any other name, by its first bytes."""
    if path.endswith((".safetensors", ".safetensors.index.json")):
        return True
    with open(path, "rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32


cdef int pn_llama_load_hf_tokenizer(pn_model *model, str folder) except -1:
    """The tokenizer itself is built by the text layer on first use; here only whether there is a chat template."""
    model.tokenizer = NULL
    model.chat_style = PN_CHAT_NONE
    if os.path.exists(os.path.join(folder, "chat_template.jinja")):
        model.chat_style = PN_CHAT_TEMPLATE
    else:
        path = os.path.join(folder, "tokenizer_config.json")
        if os.path.exists(path):
            settings = json_file(path, 64, 4 << 20, 64 << 20)
            if isinstance(settings, dict) and settings.get("chat_template"):
                model.chat_style = PN_CHAT_TEMPLATE
    return 0


cdef int load_hf(pn_model *model, str path, str config_path) except -1:
    cdef const pn_arch_ops *ops
    cdef safetensors_file *f
    config = json_file(config_path, 64, 1 << 20, 16 << 20)
    if not isinstance(config, dict):
        raise ValueError(f"{config_path}: not a JSON object")
    ops = ops_named(hf_architecture(config, config_path))
    f = safetensors_open(path)
    try:
        ops.load_hf(model, ops, f, config, path, config_path)
    except BaseException:
        safetensors_close(f)
        raise
    (<pn_arch_weights *>model.weights).safetensors = f
    model.forward = ops.forward
    pn_llama_load_hf_tokenizer(model, os.path.dirname(config_path))
    return 0


cdef int load_file(pn_model *model, str path, str config_path, str vocab_path, const pn_load_opts *opts) except -1:
    """Branches on the container: safetensors with a config.json, safetensors alone (RWKV-X), GGUF."""
    if os.path.isdir(path) and config_path is None and os.path.exists(os.path.join(path, "config.json")):
        config_path = os.path.join(path, "config.json")
    if os.path.isdir(path) and config_path is not None:
        path = hf_weights(path)
    if os.path.isfile(path) and is_safetensors(path):
        if config_path is not None:
            if vocab_path is not None:
                raise ValueError(f"{path}: vocab_path belongs to RWKV-X models, which have no config_path")
            return load_hf(model, path, config_path)
        pn_rwkvx_load(model, path, opts)
        model.forward = ops_of(model).forward
        return 0
    if config_path is not None or vocab_path is not None:
        raise ValueError(f"{path}: config_path and vocab_path belong to safetensors models")
    return load_gguf(model, path)


cdef str path_text(const char *path):
    """The path as str; None for NULL."""
    return None if path == NULL else os.fsdecode(<bytes>path)


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
        load_file(model, name, path_text(opts.config_path if opts != NULL else NULL),
                  path_text(opts.vocab_path if opts != NULL else NULL), opts)
        if opts != NULL and opts.quantize and model.config.arch != PN_ARCH_RWKVX:
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
    cdef safetensors_file *s = NULL
    if model == NULL:
        return
    if model.weights != NULL:
        f = (<pn_arch_weights *>model.weights).gguf
        s = (<pn_arch_weights *>model.weights).safetensors
        ops_of(model).unload(model)
    gguf_close(f)
    safetensors_close(s)
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


cdef size_t pn_state_snapshot_bytes(const pn_state *state) noexcept nogil:
    cdef const pn_arch_ops *ops = ops_of_state(state)
    return ops.state_snapshot_bytes(state) if ops.state_snapshot_bytes != NULL else 0


cdef int pn_state_snapshot(const pn_state *state, void *out) noexcept nogil:
    cdef const pn_arch_ops *ops = ops_of_state(state)
    return ops.state_snapshot(state, out) if ops.state_snapshot != NULL else 0


cdef int pn_state_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    cdef const pn_arch_ops *ops = ops_of_state(state)
    return ops.state_restore(state, snapshot, pos) if ops.state_restore != NULL else pn_state_truncate(state, pos)


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


# ---- admission -------------------------------------------------------------------------------------------------------
# The engine's face of memory/: what a request costs this model, and what the machine's state lets it have.

cdef enum:
    DEFAULT_MAX_SEQ = 16384              # QWEN35_MAX_SEQ when it is not set

cdef pn_forward_fn cuda_forward = NULL   # the forward of a GPU-resident model, set where there is a GPU path


cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil:
    return cuda_forward != NULL and model.forward == cuda_forward


cdef int pn_admit_max_window(const pn_model *model) noexcept nogil:
    cdef const char *text = getenv("QWEN35_MAX_SEQ")
    cdef char *end = NULL
    cdef long value = strtol(text, &end, 10) if text != NULL else 0
    if value < 1 or end[0] != 0:
        value = DEFAULT_MAX_SEQ
    return <int>min(value, <long>PN_QWEN35MOE_MAX_SEQ_CAP, <long>model.config.n_ctx)


cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil:
    cdef int worst = -1, i
    for i in range(<int>st.n_dies):
        if worst < 0 or st.die_free[i] < st.die_free[worst]:
            worst = i
    return worst


cdef void pn_model_cost(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, pn_cost *cost) noexcept nogil:
    cdef int most = pn_admit_max_window(model)
    cost_of_pass(model, n_ctx, kv_type, min(window, most) if window > 0 else most, cost)


cdef void cost_of_pass(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, pn_cost *cost) noexcept nogil:
    memset(cost, 0, sizeof(pn_cost))
    cost.n_ctx = (n_ctx + 7) // 8 * 8
    if ops_of(model).cost == NULL:       # its price is not known: requests are taken unchecked
        cost.kv_type = kv_type
        cost.window = window
        return
    ops_of(model).cost(model, kv_type, window, cost)
    cost.page_bytes = pn_memwatch_page_bytes()
    cost.scratch_held = ops_of(model).work_bytes(model)


cdef pn_kv_type open_kv_type(const pn_model *model, const pn_ladder_plan *plan) noexcept nogil:
    """Rung 2 takes f16 down to q8_0, where the model can have that; a smaller default stays."""
    cdef pn_cost cost
    pn_model_cost(model, 0, PN_KV_DEFAULT, 1, &cost)
    if plan.kv_type != PN_KV_Q8_0 or cost.kv_type != PN_KV_F16:
        return PN_KV_DEFAULT
    pn_model_cost(model, 0, PN_KV_Q8_0, 1, &cost)
    return PN_KV_Q8_0 if cost.kv_type == PN_KV_Q8_0 else PN_KV_DEFAULT


cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil:
    cdef pn_mem_state st
    cdef pn_ladder_plan plan
    if not pn_memwatch_running():
        return PN_KV_DEFAULT
    pn_memwatch_fresh(&st)
    pn_ladder_plan_from_state(&st, &plan)
    return open_kv_type(model, &plan)


cdef int price(const pn_model *model, const pn_request *q, pn_verdict *v) noexcept nogil:
    """Fills v.cost and the KV type; returns the positions that the request's state still has."""
    cdef pn_kv_type kv_type = q.kv_type
    cdef int n_ctx = q.n_ctx, pos = 0, n_fed = q.n_prompt if q.n_prompt > 0 else q.n_new
    if q.state != NULL:
        kv_type = pn_state_kv_type(q.state)
        n_ctx = pn_state_n_ctx(q.state)
        pos = q.state.pos
    elif kv_type == PN_KV_DEFAULT:
        kv_type = open_kv_type(model, &v.plan)
        v.kv_lowered = kv_type != PN_KV_DEFAULT
    pn_model_cost(model, n_ctx, kv_type, min(v.prefill_window, max(n_fed, 1)), &v.cost)
    if v.cost.whole_prompt:              # nothing to clamp: the prompt is priced as it is
        v.window_asked = v.prefill_window = max(v.window_asked, n_fed)
        cost_of_pass(model, n_ctx, kv_type, max(n_fed, 1), &v.cost)
    v.kv_type = v.cost.kv_type
    if pos > 0:
        v.cost.held_bytes = pn_cost_kv(&v.cost, pos) + v.cost.state_bytes
    if n_ctx == 0:
        n_ctx = model.config.n_ctx
    return (min(n_ctx, v.cost.max_ctx) if v.cost.max_ctx > 0 else n_ctx) - pos


cdef void decide(const pn_model *model, const pn_request *q, const pn_mem_state *st, pn_verdict *v) noexcept nogil:
    """Steps 3 to 6 of pn_admit. st NULL: nothing is known, and everything fits."""
    cdef pn_mem_state seen
    cdef pn_admit_code code
    cdef int pos = q.state.pos if q.state != NULL else 0
    cdef int asked, fit = 0
    memset(&seen, 0, sizeof(seen))
    if st != NULL:
        seen = st[0]
    v.checked = seen.host_total > 0 and ops_of(model).cost != NULL
    v.die = pn_admit_worst_die(&seen) if pn_admit_gpu_resident(model) else -1
    if v.die >= 0:
        seen.level = max(seen.level, seen.die_level[v.die])
    pn_ladder_plan_from_state(&seen, &v.plan)
    seen.host_avail += q.reclaimable_bytes
    v.window_asked = min(q.window, pn_admit_max_window(model)) if q.window > 0 else pn_admit_max_window(model)
    v.prefill_window = min(v.window_asked, v.plan.prefill_window)
    v.n_tokens = q.n_prompt + q.n_new
    asked = min(v.n_tokens, price(model, q, v))
    v.need_bytes = pn_cost_need(&v.cost, pos + asked)
    v.have_bytes = pn_ladder_have(seen.host_avail, seen.host_reserved, seen.host_total)
    v.fit_tokens = asked
    if v.checked:
        code = pn_admit_request(&seen, &v.cost, pos + asked, v.prefill_window, &fit)
        v.fit_tokens = asked if code == PN_ADMIT_OK else max(0, fit - pos)
    if v.fit_tokens == v.n_tokens:
        v.status = PN_ADMIT_FIT
    elif v.fit_tokens < max(1, q.n_prompt):          # the first new token needs no position of its own
        v.status = PN_ADMIT_DENIED
    else:
        v.status = PN_ADMIT_CAPPED


cdef int check_request(const pn_request *q) noexcept nogil:
    if q.n_prompt < 0 or q.n_new < 0 or q.n_prompt > 2147483647 - q.n_new or q.n_prompt + q.n_new < 1:
        pn_set_error(b"%lld prompt tokens and %lld new ones: not in 0..2147483647, one of them at least 1", q.n_prompt,
                     q.n_new)
        return -1
    return 0


cdef void log_clamp(const pn_verdict *v) noexcept nogil:
    if v.prefill_window < v.window_asked:
        pn_log(PN_LOG_WARNING, b"[ladder] CRITICAL -> prefill window clamped %lld -> %lld"
               if v.plan.level == PN_MEM_CRITICAL else b"[ladder] TIGHT -> prefill window clamped %lld -> %lld",
               v.window_asked, v.prefill_window)


cdef pn_admit_status admit(pn_model *model, const pn_request *q, pn_verdict *v, pn_reservation **out) noexcept nogil:
    """out NULL: only asks."""
    cdef pn_mem_state st
    cdef uint64_t dies[PN_MODEL_MAX_DIES]
    cdef int i, fit
    cdef bint granted
    memset(v, 0, sizeof(pn_verdict))
    if out != NULL:
        out[0] = NULL
    if check_request(q) != 0:
        v.status = PN_ADMIT_DENIED
        return PN_ADMIT_DENIED
    if not pn_memwatch_running():
        decide(model, q, NULL, v)
        return v.status
    if out == NULL:
        pn_memwatch_fresh(&st)
        decide(model, q, &st, v)
    else:
        pn_memwatch_decide_begin(&st)
        decide(model, q, &st, v)
        granted = v.checked and v.status != PN_ADMIT_DENIED
        if granted:
            fit = v.fit_tokens + (q.state.pos if q.state != NULL else 0)
            for i in range(v.cost.n_dies):
                dies[i] = v.cost.die_state_bytes[i] + v.cost.die_token_bytes[i] * <uint64_t>fit
            out[0] = pn_memwatch_promise(pn_cost_need(&v.cost, fit), dies, v.cost.n_dies)
            if out[0] == NULL:
                v.status = PN_ADMIT_DENIED
        pn_memwatch_decide_end()
        if granted and out[0] == NULL:
            pn_set_no_memory(b"no memory for a reservation", 0, 0)
    log_clamp(v)
    return v.status


cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil:
    cdef pn_request q
    cdef pn_verdict v
    memset(&q, 0, sizeof(q))
    q.n_new = n_tokens
    if not pn_memwatch_running():
        if fit_tokens_out != NULL:
            fit_tokens_out[0] = n_tokens
        return PN_ADMIT_FIT
    admit(model, &q, &v, NULL)
    if fit_tokens_out != NULL:
        fit_tokens_out[0] = v.fit_tokens
    return v.status


cdef pn_admit_status pn_admit_ask(pn_model *model, const pn_request *request, pn_verdict *v) noexcept nogil:
    return admit(model, request, v, NULL)


cdef pn_admit_status pn_admit_reserve(pn_model *model, const pn_request *request, pn_verdict *v,
                                      pn_reservation **out) noexcept nogil:
    return admit(model, request, v, out)


cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil:
    pn_reservation_release(reservation)


cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil:
    pn_reservation_touched(reservation, pn_cost_need(&v.cost, pos))
