"""Hyper-parameters and weights of Qwen3.5.

In a GGUF file the converter has already added one to the zero-centred norms, turned A_log into -exp(A_log) and
re-ordered the value heads so that head h reads key head h % n_k_head. Safetensors have them as they were trained: norms
and A_log are changed here, value heads stay in their order (pn_deltanet_dims.grouped).
"""
import math

from libc.math cimport exp

from libc.stdint cimport int64_t
from libc.string cimport memset

from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_layer, pn_qwen35moe_model, pn_qwen35moe_mtp
from pantheon._core.base.report cimport pn_log
from pantheon._core.layers.deltanet cimport DELTANET_MAX_TAPS, deltanet_channels, deltanet_values, pn_deltanet_dims
from pantheon._core.layers.linear cimport group_add, pn_group
from pantheon._core.layers.matrix cimport owned_calloc, pn_matrix
from pantheon._core.layers.rope cimport rope_init
from pantheon._core.load.config cimport GgufKeys, config_from_gguf, config_validate, gguf_keys, pn_gguf_rules
from pantheon._core.load.config_hf cimport HfConfig, config_from_hf, hf_rope
from pantheon._core.load.moe_load cimport moe_load
from pantheon._core.load.source cimport Source, source_name
from pantheon._core.load.tensors cimport matrix_load, table_load, vector_load
from pantheon._core.types cimport PN_LOG_INFO, PN_ROPE_NEOX, pn_config

from pantheon._core.arch.qwen35.hf import SECTIONS

# ---- hyper-parameters ------------------------------------------------------------------------------------------------

cdef list layer_kinds(GgufKeys keys, int n_layer):
    """True for each recurrent layer."""
    value = keys.value("attention.recurrent_layers")
    if value is not None:
        if not isinstance(value, list) or len(value) < n_layer or not all(isinstance(v, bool) for v in value):
            raise ValueError(f"{keys.path}: key {keys.arch}.attention.recurrent_layers is no list of {n_layer} "
                             "booleans")
        return value[:n_layer]
    interval = keys.bounded("full_attention_interval", 1, 1 << 16, 4)
    return [(i + 1) % interval != 0 for i in range(n_layer)]


cdef bint is_sections(object value, const pn_config *c):
    return (isinstance(value, list) and len(value) >= 3
            and all([isinstance(v, int) and 0 <= v <= max(c.rope_dims, 11) for v in value]))


cdef int load_sections(pn_qwen35moe_model *w, const pn_config *c, GgufKeys keys) except -1:
    cdef int i
    value = keys.value("rope.dimension_sections")
    if value is None:
        value = list(SECTIONS)
    if not is_sections(value, c):
        raise ValueError(f"{keys.path}: key {keys.arch}.rope.dimension_sections is no list of 3 or 4 numbers of pairs")
    for i in range(3):
        w.sections[i] = value[i]
    return 0


cdef int qwen35moe_load_config(pn_qwen35moe_model *w, pn_config *c, Source f) except -1:
    cdef GgufKeys keys = gguf_keys(f)
    cdef str arch = keys.arch
    cdef int64_t inner
    cdef pn_gguf_rules rules
    memset(&rules, 0, sizeof(rules))
    rules.rope_kind = PN_ROPE_NEOX
    config_from_gguf(c, keys, &rules)
    w.n_mtp = <int>keys.bounded("nextn_predict_layers", 0, c.n_layer, 0)
    c.n_layer -= w.n_mtp                 # block_count counts them
    config_validate(c, f.path)
    if (c.n_experts > 0) != (arch == "qwen35moe"):
        raise ValueError(f"{f.path}: {arch} with {c.n_experts} experts is not supported")
    w.dims.taps = <int>keys.bounded("ssm.conv_kernel", 2, DELTANET_MAX_TAPS)
    w.dims.k_dim = <int>keys.bounded("ssm.state_size", 1, 1 << 12)
    w.dims.n_k_head = <int>keys.bounded("ssm.group_count", 1, 1 << 12)
    w.dims.n_v_head = <int>keys.bounded("ssm.time_step_rank", 1, 1 << 12)
    inner = keys.bounded("ssm.inner_size", 1, 1 << 20)
    if w.dims.n_v_head % w.dims.n_k_head != 0:
        raise ValueError(f"{f.path}: key {arch}.ssm.time_step_rank is {w.dims.n_v_head}, "
                         f"no multiple of {arch}.ssm.group_count {w.dims.n_k_head}")
    if inner % w.dims.n_v_head != 0 or inner // w.dims.n_v_head > 1 << 12:
        raise ValueError(f"{f.path}: key {arch}.ssm.inner_size is {inner}, which makes no heads of 1..4096 with "
                         f"{arch}.ssm.time_step_rank {w.dims.n_v_head}")
    if w.dims.n_k_head * w.dims.k_dim > 1 << 20:
        raise ValueError(f"{f.path}: key {arch}.ssm.group_count {w.dims.n_k_head} times {arch}.ssm.state_size "
                         f"{w.dims.k_dim} is more than {1 << 20}")
    w.dims.v_dim = <int>(inner // w.dims.n_v_head)
    w.dims.norm_eps = c.norm_eps
    load_sections(w, c, keys)
    return set_layers(w, c, layer_kinds(keys, c.n_layer))


cdef int set_layers(pn_qwen35moe_model *w, const pn_config *c, list recurrent) except -1:
    cdef int i
    w.layers = <pn_qwen35moe_layer *>owned_calloc(&w.owned, c.n_layer * sizeof(pn_qwen35moe_layer))
    for i in range(c.n_layer):
        w.layers[i].recurrent = recurrent[i]
        if w.layers[i].recurrent:
            w.layers[i].slot = w.n_recurrent
            w.n_recurrent += 1
        else:
            w.layers[i].slot = w.n_attention
            w.n_attention += 1
    return 0


cdef list hf_layer_kinds(HfConfig config, int n_layer):
    """True for each recurrent layer."""
    cdef int interval
    value = config.get("layer_types")
    if value is None:
        interval = config.bounded("full_attention_interval", 1, 1 << 16, 4)
        return [(i + 1) % interval != 0 for i in range(n_layer)]
    if (not isinstance(value, list) or len(value) != n_layer
            or not all([kind in ("linear_attention", "full_attention") for kind in value])):
        raise ValueError(f"{config.path}: key layer_types is no list of {n_layer} linear_attention and full_attention")
    return [kind == "linear_attention" for kind in value]


cdef int qwen35moe_hf_config(pn_qwen35moe_model *w, pn_config *c, Source f) except -1:
    cdef HfConfig config = f.config
    cdef pn_deltanet_dims *d = &w.dims
    cdef int i
    config_from_hf(c, config)
    config_validate(c, config.path)
    d.taps = config.bounded("linear_conv_kernel_dim", 2, DELTANET_MAX_TAPS)
    d.n_k_head = config.bounded("linear_num_key_heads", 1, 1 << 12)
    d.k_dim = config.bounded("linear_key_head_dim", 1, min(1 << 12, (1 << 20) // d.n_k_head))
    d.n_v_head = config.bounded("linear_num_value_heads", d.n_k_head, 1 << 12)
    d.v_dim = config.bounded("linear_value_head_dim", 1, min(1 << 12, (1 << 20) // d.n_v_head))
    if d.n_v_head % d.n_k_head != 0:
        raise ValueError(f"{config.path}: key linear_num_value_heads is {d.n_v_head}, no multiple of "
                         f"linear_num_key_heads {d.n_k_head}")
    d.norm_eps = c.norm_eps
    d.grouped = True
    value = hf_rope(config).get("mrope_section") or list(SECTIONS)
    if not is_sections(value, c):
        raise ValueError(f"{config.path}: key mrope_section of the rotation is no list of 3 numbers of pairs")
    for i in range(3):
        w.sections[i] = value[i]
    return set_layers(w, c, hf_layer_kinds(config, c.n_layer))

# ---- tensors ---------------------------------------------------------------------------------------------------------

cdef int add(pn_group *g, Source f, str name, int rows, int cols) except -1:
    cdef pn_matrix m
    matrix_load(&m, f, name, rows, cols, False)
    group_add(g, &m)
    return 0


cdef const float *norm_load(Source f, str name, int n) except NULL:
    """Weights of a norm that safetensors keep around zero."""
    cdef const float *stored = vector_load(f, name, n, False)
    cdef float *copy
    cdef int i
    if f.gguf != NULL:
        return stored
    copy = <float *>owned_calloc(f.owned, n * sizeof(float))
    for i in range(n):
        copy[i] = 1 + stored[i]
    return copy


cdef const float *decay_load(Source f, str name, int n) except NULL:
    """-exp(A_log), which GGUF has and safetensors have the A_log of."""
    cdef const float *stored = vector_load(f, name, n, False)
    cdef float *copy = <float *>owned_calloc(f.owned, n * sizeof(float))
    cdef int i
    for i in range(n):
        copy[i] = stored[i] if f.gguf != NULL else <float>-exp(stored[i])
        if not (math.isfinite(copy[i]) and copy[i] <= 0):
            raise ValueError(f"{f.path}: tensor {source_name(f, name)} holds {stored[i]}, " + (
                "not a finite number up to 0" if f.gguf != NULL else "whose exponential is no number"))
    return copy


cdef int load_recurrent(pn_qwen35moe_model *w, pn_qwen35moe_layer *layer, str b, const pn_config *c,
                        Source f) except -1:
    cdef int channels = deltanet_channels(&w.dims), values = deltanet_values(&w.dims), heads = w.dims.n_v_head
    add(&layer.delta.input, f, b + "attn_qkv.weight", channels, c.n_embd)
    add(&layer.delta.input, f, b + "attn_gate.weight", values, c.n_embd)
    add(&layer.delta.input, f, b + "ssm_beta.weight", heads, c.n_embd)
    add(&layer.delta.input, f, b + "ssm_alpha.weight", heads, c.n_embd)
    layer.delta.conv = table_load(f, b + "ssm_conv1d.weight", channels, w.dims.taps, False)
    layer.delta.a = decay_load(f, b + "ssm_a", heads)
    layer.delta.dt = vector_load(f, b + "ssm_dt.bias", heads, False)
    layer.delta.norm = vector_load(f, b + "ssm_norm.weight", w.dims.v_dim, False)
    return add(&layer.delta.out, f, b + "ssm_out.weight", c.n_embd, values)


cdef int load_attention(pn_qwen35moe_model *w, pn_qwen35moe_layer *layer, str b, const pn_config *c,
                        Source f) except -1:
    cdef int q = c.n_head * c.head_dim, kv = c.n_kv_head * c.head_dim
    add(&layer.qkv, f, b + "attn_q.weight", 2 * q, c.n_embd)
    add(&layer.qkv, f, b + "attn_k.weight", kv, c.n_embd)
    add(&layer.qkv, f, b + "attn_v.weight", kv, c.n_embd)
    layer.q_norm = norm_load(f, b + "attn_q_norm.weight", c.head_dim)
    layer.k_norm = norm_load(f, b + "attn_k_norm.weight", c.head_dim)
    return add(&layer.out, f, b + "attn_output.weight", c.n_embd, q)


cdef int load_layer(pn_qwen35moe_model *w, pn_qwen35moe_layer *layer, int i, const pn_config *c, Source f) except -1:
    b = f"blk.{i}."
    layer.attn_norm = norm_load(f, b + "attn_norm.weight", c.n_embd)
    if layer.recurrent:
        load_recurrent(w, layer, b, c, f)
    else:
        load_attention(w, layer, b, c, f)
    layer.ffn_norm = norm_load(f, b + "post_attention_norm.weight", c.n_embd)
    if c.n_experts > 0:
        return moe_load(&layer.moe, c, f, b)
    add(&layer.gate_up, f, b + "ffn_gate.weight", c.n_ff, c.n_embd)
    add(&layer.gate_up, f, b + "ffn_up.weight", c.n_ff, c.n_embd)
    return add(&layer.down, f, b + "ffn_down.weight", c.n_embd, c.n_ff)


cdef int load_mtp(pn_qwen35moe_model *w, pn_qwen35moe_mtp *mtp, int i, const pn_config *c, Source f) except -1:
    cdef pn_matrix head
    b = f"blk.{i}.nextn."
    add(&mtp.eh_proj, f, b + "eh_proj.weight", c.n_embd, 2 * c.n_embd)
    mtp.enorm = vector_load(f, b + "enorm.weight", c.n_embd, False)
    mtp.hnorm = vector_load(f, b + "hnorm.weight", c.n_embd, False)
    mtp.head_norm = vector_load(f, b + "shared_head_norm.weight", c.n_embd, False)
    if not matrix_load(&mtp.embd, f, b + "embed_tokens.weight", c.n_vocab, c.n_embd, True):
        mtp.embd = w.embd
    if not matrix_load(&head, f, b + "shared_head_head.weight", c.n_vocab, c.n_embd, True):
        head = w.head.m[0]
    group_add(&mtp.head, &head)
    return load_layer(w, &mtp.layer, i, c, f)


cdef int qwen35moe_load_tensors(pn_qwen35moe_model *w, const pn_config *c, Source f) except -1:
    cdef pn_matrix head
    cdef int i, blocks = w.n_mtp
    matrix_load(&w.embd, f, "token_embd.weight", c.n_vocab, c.n_embd, False)
    w.output_norm = norm_load(f, "output_norm.weight", c.n_embd)
    # GGUF ties by leaving the LM head out, Hugging Face says so in the configuration
    if not matrix_load(&head, f, "output.weight", c.n_vocab, c.n_embd, f.gguf != NULL or f.tied):
        head = w.embd
    group_add(&w.head, &head)
    rope_init(&w.rope, c, NULL)
    for i in range(c.n_layer):
        load_layer(w, &w.layers[i], i, c, f)
    # No forward needs the drafting blocks, and converters may drop them: what is there whole is recorded.
    w.mtp = <pn_qwen35moe_mtp *>owned_calloc(&w.owned, blocks * sizeof(pn_qwen35moe_mtp))
    w.n_mtp = 0
    for i in range(c.n_layer, c.n_layer + blocks):
        memset(&w.mtp[w.n_mtp], 0, sizeof(pn_qwen35moe_mtp))
        try:
            load_mtp(w, &w.mtp[w.n_mtp], i, c, f)
        except ValueError:
            pn_log(PN_LOG_INFO, b"block %d, which drafts tokens, is not whole and stays unused", i)
            continue
        w.n_mtp += 1
    return 0
