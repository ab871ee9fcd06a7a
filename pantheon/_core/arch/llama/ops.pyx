"""Entry points of the transformer family: loading, what its states have of their own, and its registry rows."""
from libc.stdint cimport uint32_t

from pantheon._core.arch.llama.layers cimport llama_enter, llama_layer, llama_leave, llama_walk
from pantheon._core.arch.llama.load cimport llama_load_tensors
from pantheon._core.arch.llama.structs cimport pn_llama_model, pn_llama_work
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.run cimport run_forward, run_ops, weights_free, weights_new
from pantheon._core.arch.sequence cimport sequence_n_ctx, sequence_of
from pantheon._core.arch.work cimport work_need
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


cdef size_t outer_cache() noexcept nogil:
    """Bytes that the buffers of one prefill pass should fit in: the outermost cache's, or a common size of one."""
    cdef long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE)
    return <size_t>min(max(bytes, 8 << 20), 24 << 20) if bytes > 0 else 24 << 20


cdef int load_weights(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    """Weights for the valid configuration that model.config holds."""
    cdef pn_llama_model *w = <pn_llama_model *>weights_new(self, sizeof(pn_llama_model))
    model.weights = w
    f.owned = &w.owned
    w.sub_norms = self.arch in (PN_ARCH_BITNET, PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    w.squared_relu = self.arch in (PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    try:
        llama_load_tensors(w, &model.config, f)
        source_check_extra(f, model.config.n_layer, model.config.n_layer)
    except BaseException:
        unload(model)
        raise
    # wide passes through experts read each of them for more tokens, which counts for more than the cache
    while (model.config.n_experts == 0 and w.base.prefill_window > 64
           and work_need(model, w.base.prefill_window, 1) > outer_cache()):
        w.base.prefill_window //= 2
    return 0


cdef int load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    if f.gguf == NULL:
        return pn_llama_load_safetensors(model, self, f)
    config_from_gguf(&model.config, gguf_keys(f), &self.gguf)
    config_validate(&model.config, f.path)
    return load_weights(model, self, f)


cdef int pn_llama_load_safetensors(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    cdef int i
    config_from_hf(&model.config, f.config)
    config_validate(&model.config, f.config.path)
    load_weights(model, self, f)
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
        weights_free(w)
    model.weights = NULL


cdef bint *state_stretched(const pn_state *state) noexcept nogil:
    if state.config.rope_scaling != PN_ROPE_SCALING_LONGROPE:
        return NULL
    return &sequence_of(state).kv.stretched


cdef int state_reach(const pn_state *state) noexcept nogil:
    """Positions that fit and that the rotation is made for."""
    cdef const bint *stretched = state_stretched(state)
    cdef int n_ctx = sequence_n_ctx(state)
    return n_ctx if stretched == NULL or stretched[0] else min(n_ctx, state.config.rope_orig_ctx)


cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return run_forward(model, token, state)


cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil:
    cdef pn_arch_ops ops = run_ops(name, arch)
    ops.gguf.rope_kind = rope_kind
    ops.gguf.layer_norm = arch == PN_ARCH_PHI2
    ops.gguf.experts_raw = ops.gguf.expert_shared = arch == PN_ARCH_QWEN2MOE
    ops.gguf.experts_split_ff = arch in (PN_ARCH_QWEN2MOE, PN_ARCH_QWEN3MOE)
    ops.load = load
    ops.unload = unload
    ops.work_size = sizeof(pn_llama_work)
    ops.walk = llama_walk
    ops.enter = llama_enter
    ops.layer = llama_layer
    ops.leave = llama_leave
    ops.forward = pn_llama_forward
    ops.state_stretched = state_stretched
    ops.state_reach = state_reach
    return ops
