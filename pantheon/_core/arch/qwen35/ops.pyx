"""Qwen3.5: Gated DeltaNet layers with a gated attention layer in between, dense (`qwen35`) or with experts
(`qwen35moe`): entry points and registry row.

A run that is stopped between two layers leaves the recurrent states of its sequences at different positions: they are
marked broken, and refused until they are reset or restored.
"""
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.qwen35.layers cimport qwen_add, qwen_enter, qwen_layer, qwen_leave, qwen_walk
from pantheon._core.arch.qwen35.load cimport qwen35moe_hf_config, qwen35moe_load_config, qwen35moe_load_tensors
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_work
from pantheon._core.arch.run cimport run_forward, run_ops, weights_free, weights_new
from pantheon._core.arch.sequence cimport sequence_new
from pantheon._core.arch.structs cimport pn_kept
from pantheon._core.base.report cimport pn_log
from pantheon._core.files.gguf cimport gguf_close, gguf_open
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.gguf_values cimport path_of
from pantheon._core.layers.deltanet cimport deltanet_conv_size, deltanet_s_size
from pantheon._core.layers.matrix cimport owned_free
from pantheon._core.layers.rope cimport rope_free
from pantheon._core.load.source cimport Source, source_check_extra, source_gguf
from pantheon._core.memory.environment cimport environment_max_seq, pn_admit_kv_q4
from pantheon._core.types cimport (
    PN_ARCH_QWEN35,
    PN_ARCH_QWEN35MOE,
    PN_KV_DEFAULT,
    PN_KV_Q4_0,
    PN_LOG_WARNING,
    PN_MODEL_MAX_DIES,
    pn_arch,
    pn_config,
    pn_kv_type,
    pn_model,
    pn_state,
    tm_tensor,
)

# ---- life of a model -------------------------------------------------------------------------------------------------

cdef pn_qwen35moe_model *load_model(const pn_arch_ops *self, Source f, pn_config *config) except NULL:
    cdef pn_qwen35moe_model *w = <pn_qwen35moe_model *>weights_new(self, sizeof(pn_qwen35moe_model))
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
    return load_model(&row, source_gguf(gguf, path_of(gguf.maps[0])), config)


cdef void pn_qwen35moe_free(pn_qwen35moe_model *w) noexcept nogil:
    if w != NULL:
        rope_free(&w.rope)
        owned_free(&w.owned)
        weights_free(w)


cdef void pn_qwen35moe_model_set_dies(pn_qwen35moe_model *w, const int *dies, int n_dies) noexcept nogil:
    w.n_gpu_dies = max(0, min(n_dies, <int>PN_MODEL_MAX_DIES))
    memcpy(w.gpu_dies, dies, w.n_gpu_dies * sizeof(int))


cdef int load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    cdef pn_qwen35moe_model *w = load_model(self, f, &model.config)
    model.weights = w
    pn_qwen35moe_model_set_dies(w, model.gpu_dies, model.n_gpu_dies)
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    pn_qwen35moe_free(<pn_qwen35moe_model *>model.weights)
    model.weights = NULL


# ---- what a sequence keeps -------------------------------------------------------------------------------------------

cdef int chosen_n_ctx(const pn_model *model, int n_ctx) noexcept nogil:
    return min(n_ctx, environment_max_seq()) if model.config.arch == PN_ARCH_QWEN35MOE else n_ctx


cdef void keeps(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil:
    """Keys and values of the attention layers, convolutions and heads of the recurrent ones."""
    cdef const pn_qwen35moe_model *w = <const pn_qwen35moe_model *>model.weights
    kept.n_ctx = chosen_n_ctx(model, n_ctx)
    kept.kv_layers = w.n_attention
    kept.kv_rows = kept.n_ctx
    kept.kv_type = type
    if type == PN_KV_DEFAULT and model.config.arch == PN_ARCH_QWEN35MOE and pn_admit_kv_q4():
        kept.kv_type = PN_KV_Q4_0
    kept.recurrent = w.n_recurrent * (deltanet_conv_size(&w.dims) + deltanet_s_size(&w.dims))
    kept.arena = False


cdef int state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    if chosen_n_ctx(model, n_ctx) < n_ctx:
        pn_log(PN_LOG_WARNING, b"n_ctx %d is clamped to %d by QWEN35_MAX_SEQ", n_ctx, chosen_n_ctx(model, n_ctx))
    return sequence_new(model, state, n_ctx, type)


# ---- registry --------------------------------------------------------------------------------------------------------

cdef tm_tensor *pn_qwen35moe_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return run_forward(model, token, state)


cdef pn_arch_ops pn_qwen35moe_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops = run_ops(name, arch)
    ops.load = load
    ops.unload = unload
    ops.work_size = sizeof(pn_qwen35moe_work)
    ops.walk = qwen_walk
    ops.add = qwen_add
    ops.enter = qwen_enter
    ops.layer = qwen_layer
    ops.leave = qwen_leave
    ops.forward = pn_qwen35moe_forward
    ops.keeps = keeps
    ops.state_new = state_new
    return ops


cdef pn_arch_ops row = pn_qwen35moe_ops(b"qwen35", PN_ARCH_QWEN35)       # of weights without a model


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
