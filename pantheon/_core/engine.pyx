"""The C API of Pantheon (see engine.pxd for the contract): loading, lifecycle of states, step seam.

The registry is in registry.pyx, admission in admit_steps.pyx.
"""
import os

cimport cython
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, strdup

from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights
from pantheon._core.base.pool cimport fw_pool_get
from pantheon._core.base.report cimport pn_set_error
from pantheon._core.files.bounded_json cimport json_file
from pantheon._core.files.cursor cimport byte_cursor, cursor_string
from pantheon._core.files.gguf cimport gguf_close, gguf_find, gguf_get_str, gguf_open
from pantheon._core.files.gguf_file cimport gguf_file, gguf_kv
from pantheon._core.files.mapping cimport pn_mapping_set_room
from pantheon._core.files.safetensors cimport safetensors_close, safetensors_file, safetensors_open
from pantheon._core.kernels.table cimport pn_kernels_check
from pantheon._core.load.config_hf cimport HfConfig, hf_architecture
from pantheon._core.load.source cimport Source, source_gguf, source_safetensors
from pantheon._core.memory.environment cimport environment_warn
from pantheon._core.memory.ladder cimport pn_ladder_have
from pantheon._core.memory.memwatch cimport pn_memwatch_fresh, pn_memwatch_running
from pantheon._core.registry cimport ops_named, ops_numbered, ops_of, ops_of_gguf, ops_of_state, ops_without_config
from pantheon._core.types cimport (
    PN_ABI_VERSION,
    PN_ARCH_COUNT,
    PN_CHAT_NONE,
    PN_CHAT_TEMPLATE,
    PN_KV_DEFAULT,
    PN_KV_Q4_0,
    PN_MODEL_MAX_DIES,
    pn_arch,
    pn_forward_fn,
    pn_kv_type,
    pn_load_opts,
    pn_mem_state,
    pn_model,
    pn_state,
    tm_tensor,
)

from pantheon._core.base.threads import default_threads
from pantheon._core.chat_styles import MARKERS, NAMES, shown_style
from pantheon._core.load.config_hf import read_config
from pantheon._core.registry import HF_CLASSES, architectures
from pantheon.regular_file import read_start


cdef extern from *:
    """
    static inline int pn_add(int *n, int d) { return __atomic_add_fetch(n, d, __ATOMIC_ACQ_REL); }
    static inline int pn_count(const int *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }
    """
    int pn_add(int *n, int d) nogil
    int pn_count(const int *n) nogil


@cython.final
cdef class AbiVersion:
    def __init__(self):
        raise TypeError("this type is there for its size")


cdef enum:
    MAX_THREADS = 256                    # ranks of one run


cdef int pn_abi_version() noexcept nogil:
    return PN_ABI_VERSION


cdef bint given(const void *argument, const char *name) noexcept nogil:
    """Whether a pointer is there; else the error says which is not."""
    if argument == NULL:
        pn_set_error(b"%s is NULL", name)
    return argument != NULL


cdef int require(const void *argument, str name) except -1:
    if argument == NULL:
        raise ValueError(f"{name} is NULL")
    return 0


# ---- loading ---------------------------------------------------------------------------------------------------------

cdef set markers_of(const gguf_file *f, const gguf_kv *tokens):
    """Those markers of chat formats that the string array `tokens` holds."""
    cdef byte_cursor c
    cdef const uint8_t *token
    cdef uint64_t n = 0
    wanted = {text for markers in MARKERS.values() for text in markers}
    cdef bytes starts = bytes({text[0] for text in wanted})
    cdef const char *start = starts
    cdef size_t n_starts = len(starts)
    found = set()
    c.base = f.maps[0].data
    c.size = f.maps[0].size
    c.pos = tokens.data - f.maps[0].data
    for _ in range(tokens.count):
        token = cursor_string(&c, &n)
        if token == NULL:                # the scan at load passed here: somebody writes to the mapped file
            break
        if n > 0 and memchr(start, token[0], n_starts) != NULL and token[:n] in wanted:
            found.add(token[:n])
    return found


cdef int chat_style(const gguf_file *f):
    cdef const gguf_kv *tokens = gguf_find(f, b"tokenizer.ggml.tokens")
    if gguf_find(f, b"tokenizer.chat_template") != NULL:
        return PN_CHAT_TEMPLATE
    if f.tokenizer == NULL or tokens == NULL:
        return PN_CHAT_NONE
    return NAMES.index(shown_style(markers_of(f, tokens)) or "none")


cdef int finish_load(pn_model *model, const pn_arch_ops *ops, Source source) except -1:
    """Weights, and what the row says of every model of its architecture."""
    model.config.arch = ops.arch
    ops.load(model, ops, source)
    model.forward = ops.forward
    model.chat_style = ops.chat_style
    return 0


cdef int load_gguf(pn_model *model, str path) except -1:
    cdef gguf_file *f = gguf_open(path)
    cdef const pn_arch_ops *ops
    try:
        arch = gguf_get_str(f, b"general.architecture")
        if arch is None:
            raise ValueError(f"{path}: key general.architecture is missing")
        ops = ops_of_gguf(f, arch)
        if ops == NULL:
            raise ValueError(f"{path}: architecture {arch[:64]!r} is unknown; known: {', '.join(architectures())}")
        finish_load(model, ops, source_gguf(f, path))
    except BaseException:
        gguf_close(f)
        raise
    (<pn_arch_weights *>model.weights).gguf = f
    if ops.chat_style == PN_CHAT_NONE:
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
    head = read_start(path, 9)
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


cdef int load_safetensors(pn_model *model, const pn_arch_ops *ops, str path, HfConfig config,
                          const pn_load_opts *opts) except -1:
    cdef safetensors_file *f = safetensors_open(path)
    cdef Source source
    try:
        source = source_safetensors(f, path, config)
        source.opts = opts
        finish_load(model, ops, source)
    except BaseException:
        safetensors_close(f)
        raise
    (<pn_arch_weights *>model.weights).safetensors = f
    return 0


cdef int load_hf(pn_model *model, str path, str config_path) except -1:
    cdef HfConfig config = read_config(json_file(config_path, 64, 1 << 20, 16 << 20), config_path, HF_CLASSES)
    load_safetensors(model, ops_named(hf_architecture(config)), path, config, NULL)
    return pn_llama_load_hf_tokenizer(model, os.path.dirname(config_path))


cdef int load_file(pn_model *model, str path, str config_path, str vocab_path, const pn_load_opts *opts) except -1:
    """Branches on the container: safetensors with a config.json, safetensors alone, GGUF."""
    if os.path.isdir(path) and config_path is None and os.path.exists(os.path.join(path, "config.json")):
        config_path = os.path.join(path, "config.json")
    if os.path.isdir(path) and config_path is not None:
        path = hf_weights(path)
    if is_safetensors(path):
        if config_path is not None:
            if vocab_path is not None:
                raise ValueError(f"{path}: vocab_path is for RWKV-X models, which have no config.json")
            return load_hf(model, path, config_path)
        return load_safetensors(model, ops_without_config(), path, None, opts)
    for argument, given in (("config_path", config_path), ("vocab_path", vocab_path)):
        if given is not None:
            raise ValueError(f"{path}: {argument} is for models in safetensors files")
    return load_gguf(model, path)


cdef str path_text(const char *path):
    """The path as str; None for NULL."""
    return None if path == NULL else os.fsdecode(<bytes>path)


cdef int record_dies(pn_model *model, const int *dies, int n_dies) except -1:
    cdef int i
    if dies == NULL and n_dies == 0:
        return 0
    require(dies, "dies")
    if not 0 <= n_dies <= PN_MODEL_MAX_DIES:
        raise ValueError(f"dies: {n_dies} given, at most {PN_MODEL_MAX_DIES} are possible")
    for i in range(n_dies):
        if dies[i] < 0 or dies[i] in [dies[j] for j in range(i)]:
            raise ValueError(f"dies: {[dies[j] for j in range(n_dies)]} are not different numbers from 0 on")
        model.gpu_dies[i] = dies[i]
    model.n_gpu_dies = n_dies
    return 0


cdef uint64_t room_for_files() noexcept nogil:
    """What admission would let new work take. Where nobody watches memory, files are read unasked."""
    cdef pn_mem_state st
    if not pn_memwatch_running():
        return UINT64_MAX
    pn_memwatch_fresh(&st)
    return pn_ladder_have(st.host_avail, st.host_reserved, st.host_total) if st.host_total > 0 else UINT64_MAX


pn_mapping_set_room(room_for_files)


cdef pn_model *pn_load_on(const char *path, const pn_load_opts *opts, const int *dies, int n_dies) except NULL:
    cdef pn_model *model
    pn_kernels_check()
    require(path, "path")
    model = <pn_model *>calloc(1, sizeof(pn_model))
    if model == NULL:
        raise MemoryError("no memory for a model")
    name = os.fsdecode(<bytes>path)
    try:
        model.path = strdup(path)
        if model.path == NULL:
            raise MemoryError(f"{name}: no memory for its path")
        record_dies(model, dies, n_dies)
        load_file(model, name, path_text(opts.config_path if opts != NULL else NULL),
                  path_text(opts.vocab_path if opts != NULL else NULL), opts)
        if opts != NULL and opts.quantize and not ops_of(model).quantizes:
            raise ValueError(f"quantize: {ops_of(model).name.decode()} has no quantisation at load")
        if opts != NULL and opts.quantize and (<pn_arch_weights *>model.weights).gguf != NULL:
            raise ValueError(f"quantize: {name} is a GGUF file, whose types are what they are")
        model.pool = fw_pool_get()
        pn_model_set_threads(model, min(default_threads(), MAX_THREADS))
    except BaseException:
        pn_model_free(model)
        raise
    return model


cdef pn_model *pn_load_ex(const char *path, const pn_load_opts *opts) except NULL:
    return pn_load_on(path, opts, NULL, 0)


cdef pn_model *pn_load(const char *path) except NULL:
    return pn_load_on(path, NULL, NULL, 0)


cdef int pn_model_free(pn_model *model) noexcept:
    cdef gguf_file *f = NULL
    cdef safetensors_file *s = NULL
    if model == NULL:
        return 0
    if model.weights != NULL and pn_count(&(<pn_arch_weights *>model.weights).n_states) > 0:
        pn_set_error(b"%d states of the model were not freed: it stays",
                     pn_count(&(<pn_arch_weights *>model.weights).n_states))
        return -1
    if model.weights != NULL:
        f = (<pn_arch_weights *>model.weights).gguf
        s = (<pn_arch_weights *>model.weights).safetensors
        ops_of(model).unload(model)
    gguf_close(f)
    safetensors_close(s)
    free(model.path)
    free(model)
    return 0


cdef int pn_model_threads(const pn_model *model) noexcept nogil:
    return (<const pn_arch_weights *>model.weights).n_threads if given(model, b"model") else -1


cdef int pn_model_set_threads(pn_model *model, int n_threads) noexcept nogil:
    if not given(model, b"model"):
        return -1
    if not 1 <= n_threads <= MAX_THREADS:
        pn_set_error(b"threads is %d, not in 1..%d", n_threads, MAX_THREADS)
        return -1
    (<pn_arch_weights *>model.weights).n_threads = n_threads if model.pool != NULL else 1
    return 0


cdef const char *pn_arch_name(const pn_model *model) noexcept nogil:
    return ops_of(model).name if given(model, b"model") else NULL


cdef pn_forward_fn pn_get_forward_fn(pn_arch arch) noexcept nogil:
    cdef const pn_arch_ops *ops = ops_numbered(<int>arch)
    if ops == NULL:
        pn_set_error(b"architecture %d is not in 0..%d", <int>arch, <int>PN_ARCH_COUNT - 1)
        return NULL
    return ops.forward


# ---- states ----------------------------------------------------------------------------------------------------------

cdef pn_state *pn_state_new(pn_model *model) except NULL:
    return pn_state_new_ex(model, 0, PN_KV_DEFAULT)


cdef pn_state *pn_state_new_ex(pn_model *model, int n_ctx, pn_kv_type kv_type) except NULL:
    cdef pn_state *state
    require(model, "model")
    if not <int>PN_KV_DEFAULT <= <int>kv_type <= <int>PN_KV_Q4_0:
        raise ValueError(f"kv_type is {<int>kv_type}, not in {<int>PN_KV_DEFAULT}..{<int>PN_KV_Q4_0}")
    environment_warn()
    if n_ctx == 0:
        n_ctx = min(model.config.n_ctx, 4096)
    if not 1 <= n_ctx <= model.config.n_ctx:
        raise ValueError(f"n_ctx is {n_ctx}, not in 1..{model.config.n_ctx}, the model's own context")
    state = <pn_state *>calloc(1, sizeof(pn_state))
    if state == NULL:
        raise MemoryError("no memory for a state")
    state.config = &model.config
    pn_add(&(<pn_arch_weights *>model.weights).n_states, 1)
    try:
        ops_of(model).state_new(model, state, n_ctx, kv_type)
    except BaseException:
        pn_state_free(state)
        raise
    pn_state_set_reach(state, 0)
    return state


cdef int pn_state_set_reach(pn_state *state, int reach) noexcept nogil:
    cdef const pn_arch_ops *ops
    cdef bint *stretched
    cdef bint beyond
    if not given(state, b"state"):
        return -1
    if reach < 0:
        pn_set_error(b"reach is %d, not 0 or a number of positions", reach)
        return -1
    ops = ops_of_state(state)
    stretched = ops.state_stretched(state) if ops.state_stretched != NULL else NULL
    if stretched == NULL:
        return 0
    beyond = (reach if reach > 0 else pn_state_n_ctx(state)) > state.config.rope_orig_ctx
    if state.pos > 0 and beyond != stretched[0]:
        pn_set_error(b"reach %d has another rotation than the %d positions of the state: reset it first", reach,
                     state.pos)
        return -1
    stretched[0] = beyond
    return 0


cdef int pn_state_reach(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_reach(state) if given(state, b"state") else -1


cdef int pn_state_reset(pn_state *state) noexcept nogil:
    if not given(state, b"state"):
        return -1
    ops_of_state(state).state_reset(state)
    state.pos = 0
    return 0


cdef void pn_state_free(pn_state *state) noexcept nogil:
    cdef pn_model *model
    if state != NULL:
        model = <pn_model *>state.config             # its first member
        ops_of_state(state).state_free(state)
        free(state)
        pn_add(&(<pn_arch_weights *>model.weights).n_states, -1)


cdef int pn_state_truncate(pn_state *state, int pos) noexcept nogil:
    if not given(state, b"state"):
        return -1
    if not 0 <= pos <= state.pos:
        pn_set_error(b"cannot truncate to position %d: the state holds %d", pos, state.pos)
        return -1
    return ops_of_state(state).state_truncate(state, pos)


cdef size_t pn_state_snapshot_bytes(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_snapshot_bytes(state) if given(state, b"state") else 0


cdef int pn_state_snapshot(const pn_state *state, void *out) noexcept nogil:
    if not given(state, b"state"):
        return -1
    if pn_state_snapshot_bytes(state) == 0:
        return 0
    return ops_of_state(state).state_snapshot(state, out) if given(out, b"out") else -1


cdef int pn_state_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil:
    if not given(state, b"state"):
        return -1
    if pn_state_snapshot_bytes(state) == 0:
        return pn_state_truncate(state, pos)
    if not given(snapshot, b"snapshot"):
        return -1
    if not 0 <= pos <= state.pos:
        pn_set_error(b"cannot restore position %d: the state holds %d", pos, state.pos)
        return -1
    return ops_of_state(state).state_restore(state, snapshot, pos)


cdef int pn_state_n_ctx(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_n_ctx(state) if given(state, b"state") else -1


cdef pn_kv_type pn_state_kv_type(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_kv_type(state) if given(state, b"state") else PN_KV_DEFAULT


cdef size_t pn_state_bytes(const pn_state *state) noexcept nogil:
    return ops_of_state(state).state_bytes(state) if given(state, b"state") else 0


# ---- forward ---------------------------------------------------------------------------------------------------------

cdef int pn_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                    bint all) noexcept nogil:
    if not (given(model, b"model") and given(tokens, b"tokens") and given(state, b"state")
            and given(logits_out, b"logits_out")):
        return -1
    if n < 1:
        pn_set_error(b"%d tokens: there must be at least 1", n)
        return -1
    return ops_of(model).prefill(model, tokens, n, state, logits_out, all)


cdef int pn_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                          float *logits_out) noexcept nogil:
    cdef int i, j
    if not (given(model, b"model") and given(tokens, b"tokens") and given(states, b"states")
            and given(logits_out, b"logits_out")):
        return -1
    if n < 1:
        pn_set_error(b"%d sequences: there must be at least 1", n)
        return -1
    for i in range(n):
        for j in range(i):
            if states[i] == states[j]:
                pn_set_error(b"states %d and %d are the same: a state takes one token of a batch", j, i)
                return -1
    return ops_of(model).forward_batch(model, tokens, states, n, logits_out)


# Steps that do not block exist where a device runs them; the CPU's forward is the blocking one.

cdef bint has_steps(const pn_model *model) noexcept nogil:
    cdef const pn_arch_ops *ops = ops_of(model)
    return ops.gpu.step_begin != NULL and model.forward == ops.gpu.forward


cdef int pn_forward_step_begin(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    if not (given(model, b"model") and given(state, b"state")):
        return -1
    return ops_of(model).gpu.step_begin(model, token, state) if has_steps(model) else 1


cdef int pn_forward_step_poll(pn_model *model, pn_state *state, tm_tensor **logits_out) noexcept nogil:
    if not (given(model, b"model") and given(state, b"state") and given(logits_out, b"logits_out")):
        return -1
    if has_steps(model):
        return ops_of(model).gpu.step_poll(model, state, logits_out)
    pn_set_error(b"this model has no steps to poll: use forward")
    return -1
