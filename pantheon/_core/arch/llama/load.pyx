"""Weights of the transformer families, from GGUF or safetensors.

Accepts, for every architecture, separate or fused q/k/v and gate/up, optional biases and per-head norms of q and k, and
a missing LM head (tied to the embedding). Phi-2 has norms with biases, one per layer, and a feed-forward without gate.
"""
import math

import numpy as np

from pantheon._core.arch.llama.structs cimport pn_llama_layer, pn_llama_model
from pantheon._core.layers.linear cimport group_add, pn_group
from pantheon._core.layers.matrix cimport matrix_view, owned_calloc, pn_matrix
from pantheon._core.layers.moe_weights cimport pn_moe
from pantheon._core.layers.rope cimport pn_rope, rope_init
from pantheon._core.load.config_hf cimport PN_TERNARY_NONE, hf_rope_factors
from pantheon._core.load.moe_load cimport moe_layer, moe_load
from pantheon._core.load.source cimport Source, source_tensor
from pantheon._core.load.tensors cimport matrix_load, vector_load
from pantheon._core.load.ternary cimport ternary_load
from pantheon._core.types cimport (
    PN_ARCH_PHI2,
    PN_ARCH_PHI3,
    PN_ARCH_QWEN3,
    PN_ARCH_QWEN3MOE,
    PN_ROPE_SCALING_LONGROPE,
    pn_config,
)


cdef int load_matrix(pn_matrix *m, Source f, str name, int rows, int cols) except -1:
    """A matrix of a layer, with the scale that some GGUF files keep beside it."""
    cdef str key = name.replace(".weight", ".scale")
    cdef float scale
    if f.ternary != PN_TERNARY_NONE:
        return ternary_load(m, f, name, rows, cols)
    matrix_load(m, f, name, rows, cols, False)
    if f.gguf != NULL and source_tensor(f, key) != NULL:
        scale = vector_load(f, key, 1, False)[0]
        if not (math.isfinite(scale) and scale != 0):
            raise ValueError(f"{f.path}: tensor {key} is {scale}, not a finite number other than 0")
        m.scale = scale if m.scale == 0 else m.scale * scale
    return 1


cdef int load_rows(pn_group *g, Source f, str fused, list names, list rows, int cols) except -1:
    """Adds the matrices `names` to g, from their own tensors or as row ranges of the tensor `fused`."""
    cdef pn_matrix m, view
    cdef int first = 0, i
    if fused is not None and f.ternary == PN_TERNARY_NONE and matrix_load(&m, f, fused, sum(rows), cols, True):
        for i in range(len(names)):
            view = matrix_view(&m, first, rows[i])
            group_add(g, &view)
            first += rows[i]
        return 0
    for i in range(len(names)):
        load_matrix(&m, f, names[i], rows[i], cols)
        group_add(g, &m)
    return 0


cdef int load_layer(pn_llama_model *w, int i, const pn_config *c, Source f) except -1:
    cdef pn_llama_layer *layer = &w.layers[i]
    cdef int q_rows = c.n_head * c.head_dim, kv_rows = c.n_kv_head * c.head_dim
    cdef const float *qkv_bias
    b = f"blk.{i}."
    cdef bint phi2 = c.arch == PN_ARCH_PHI2, qwen3 = c.arch in (PN_ARCH_QWEN3, PN_ARCH_QWEN3MOE)
    layer.window = c.sliding_window
    layer.attn_norm = vector_load(f, b + "attn_norm.weight", c.n_embd, False)
    layer.attn_norm_bias = vector_load(f, b + "attn_norm.bias", c.n_embd, False) if phi2 else NULL
    load_rows(&layer.qkv, f, b + "attn_qkv.weight",
              [b + "attn_q.weight", b + "attn_k.weight", b + "attn_v.weight"], [q_rows, kv_rows, kv_rows], c.n_embd)
    qkv_bias = vector_load(f, b + "attn_qkv.bias", q_rows + 2 * kv_rows, True)
    if qkv_bias != NULL:
        layer.q_bias = qkv_bias
        layer.k_bias = qkv_bias + q_rows
        layer.v_bias = qkv_bias + q_rows + kv_rows
    else:
        layer.q_bias = vector_load(f, b + "attn_q.bias", q_rows, True)
        layer.k_bias = vector_load(f, b + "attn_k.bias", kv_rows, True)
        layer.v_bias = vector_load(f, b + "attn_v.bias", kv_rows, True)
    layer.q_norm = vector_load(f, b + "attn_q_norm.weight", c.head_dim, not qwen3)
    layer.k_norm = vector_load(f, b + "attn_k_norm.weight", c.head_dim, not qwen3)
    layer.attn_sub_norm = vector_load(f, b + "attn_sub_norm.weight", q_rows, not w.sub_norms)
    load_rows(&layer.out, f, None, [b + "attn_output.weight"], [c.n_embd], q_rows)
    layer.out_bias = vector_load(f, b + "attn_output.bias", c.n_embd, True)
    if not phi2:
        layer.ffn_norm = vector_load(f, b + "ffn_norm.weight", c.n_embd, False)
    if moe_layer(c, f, b):
        layer.moe = <pn_moe *>owned_calloc(&w.owned, sizeof(pn_moe))
        return moe_load(layer.moe, c, f, b)
    if phi2:
        load_rows(&layer.gate_up, f, None, [b + "ffn_up.weight"], [c.n_ff], c.n_embd)
    else:
        fused = "ffn_up.weight" if c.arch == PN_ARCH_PHI3 and f.gguf != NULL else "ffn_gate_up.weight"
        load_rows(&layer.gate_up, f, b + fused, [b + "ffn_gate.weight", b + "ffn_up.weight"],
                  [c.n_ff, c.n_ff], c.n_embd)
        layer.gate_bias = vector_load(f, b + "ffn_gate.bias", c.n_ff, True)
    layer.up_bias = vector_load(f, b + "ffn_up.bias", c.n_ff, True)
    layer.ffn_sub_norm = vector_load(f, b + "ffn_sub_norm.weight", c.n_ff, not w.sub_norms)
    load_rows(&layer.down, f, None, [b + "ffn_down.weight"], [c.n_embd], c.n_ff)
    layer.down_bias = vector_load(f, b + "ffn_down.bias", c.n_embd, True)
    return 0


cdef int load_rope(pn_rope *rope, const pn_config *c, Source f, str name, bint optional) except -1:
    """Frequencies, divided by the tensor `name` (rope_dims / 2,)."""
    cdef const float *factors = vector_load(f, name, c.rope_dims // 2, optional)
    cdef int i
    for i in range(c.rope_dims // 2 if factors != NULL else 0):
        if not (math.isfinite(factors[i]) and factors[i] > 0):
            raise ValueError(f"{f.path}: tensor {name} holds {factors[i]}, not a finite number above 0")
    return rope_init(rope, c, factors)


cdef int load_longrope(pn_rope *rope, const pn_config *c, Source f, str length) except -1:
    """The factors are tensors in GGUF, and lists in a config.json."""
    cdef float[::1] factors
    if f.gguf != NULL:
        return load_rope(rope, c, f, f"rope_factors_{length}.weight", False)
    factors = np.array(hf_rope_factors(c, f.config, f"{length}_factor"), np.float32)
    return rope_init(rope, c, &factors[0])


cdef int llama_load_tensors(pn_llama_model *w, const pn_config *c, Source f) except -1:
    cdef pn_matrix head
    cdef int i
    cdef bint phi2 = c.arch == PN_ARCH_PHI2
    matrix_load(&w.embd, f, "token_embd.weight", c.n_vocab, c.n_embd, False)
    w.output_norm = vector_load(f, "output_norm.weight", c.n_embd, False)
    if phi2:
        w.output_norm_bias = vector_load(f, "output_norm.bias", c.n_embd, False)
    if w.embd.ops.dequant == NULL or w.embd.scale != 0:
        raise ValueError(f"{f.path}: the embedding table has a type whose rows cannot be read")
    # GGUF ties by leaving the LM head out, Hugging Face says so in the configuration
    if not matrix_load(&head, f, "output.weight", c.n_vocab, c.n_embd, f.gguf != NULL or f.tied):
        head = w.embd
    group_add(&w.head, &head)
    w.head_bias = vector_load(f, "output.bias", c.n_vocab, True)
    if c.rope_scaling == PN_ROPE_SCALING_LONGROPE:
        load_longrope(&w.rope, c, f, "short")
        load_longrope(&w.rope_long, c, f, "long")
    else:
        load_rope(&w.rope, c, f, "rope_freqs.weight", True)
    w.layers = <pn_llama_layer *>owned_calloc(&w.owned, c.n_layer * sizeof(pn_llama_layer))
    for i in range(c.n_layer):
        load_layer(w, i, c, f)
    return 0
