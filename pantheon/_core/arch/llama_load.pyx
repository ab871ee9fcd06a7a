"""Weights of the dense transformer family from a GGUF file.

Accepts, for every architecture of the family, separate or fused q/k/v and gate/up, optional biases and per-head norms
of q and k, and a missing LM head (tied to the embedding).
"""
import math

from pantheon._core.arch.llama cimport pn_llama_layer, pn_llama_model
from pantheon._core.gguf cimport gguf_file
from pantheon._core.linear cimport group_add, pn_group
from pantheon._core.rope cimport rope_init
from pantheon._core.tensor cimport matrix_load, matrix_view, owned_calloc, pn_matrix, vector_load
from pantheon._core.types cimport pn_config


cdef int load_rows(pn_group *g, const gguf_file *f, str path, str fused, list names, list rows, int cols) except -1:
    """Adds the matrices `names` to g, from their own tensors or as row ranges of the tensor `fused`."""
    cdef pn_matrix m, view
    cdef int first = 0, i
    if fused is not None and matrix_load(&m, f, path, fused, sum(rows), cols, True):
        for i in range(len(names)):
            view = matrix_view(&m, first, rows[i])
            group_add(g, &view)
            first += rows[i]
        return 0
    for i in range(len(names)):
        matrix_load(&m, f, path, names[i], rows[i], cols, False)
        group_add(g, &m)
    return 0


cdef int load_layer(pn_llama_model *w, int i, const pn_config *c, const gguf_file *f, str path) except -1:
    cdef pn_llama_layer *layer = &w.layers[i]
    cdef int q_rows = c.n_head * c.head_dim, kv_rows = c.n_kv_head * c.head_dim
    cdef const float *qkv_bias
    b = f"blk.{i}."
    layer.attn_norm = vector_load(&w.owned, f, path, b + "attn_norm.weight", c.n_embd, False)
    load_rows(&layer.qkv, f, path, b + "attn_qkv.weight",
              [b + "attn_q.weight", b + "attn_k.weight", b + "attn_v.weight"], [q_rows, kv_rows, kv_rows], c.n_embd)
    qkv_bias = vector_load(&w.owned, f, path, b + "attn_qkv.bias", q_rows + 2 * kv_rows, True)
    if qkv_bias != NULL:
        layer.q_bias = qkv_bias
        layer.k_bias = qkv_bias + q_rows
        layer.v_bias = qkv_bias + q_rows + kv_rows
    else:
        layer.q_bias = vector_load(&w.owned, f, path, b + "attn_q.bias", q_rows, True)
        layer.k_bias = vector_load(&w.owned, f, path, b + "attn_k.bias", kv_rows, True)
        layer.v_bias = vector_load(&w.owned, f, path, b + "attn_v.bias", kv_rows, True)
    layer.q_norm = vector_load(&w.owned, f, path, b + "attn_q_norm.weight", c.head_dim, True)
    layer.k_norm = vector_load(&w.owned, f, path, b + "attn_k_norm.weight", c.head_dim, True)
    load_rows(&layer.out, f, path, None, [b + "attn_output.weight"], [c.n_embd], q_rows)
    layer.out_bias = vector_load(&w.owned, f, path, b + "attn_output.bias", c.n_embd, True)
    layer.ffn_norm = vector_load(&w.owned, f, path, b + "ffn_norm.weight", c.n_embd, False)
    load_rows(&layer.gate_up, f, path, b + "ffn_gate_up.weight", [b + "ffn_gate.weight", b + "ffn_up.weight"],
              [c.n_ff, c.n_ff], c.n_embd)
    layer.gate_bias = vector_load(&w.owned, f, path, b + "ffn_gate.bias", c.n_ff, True)
    layer.up_bias = vector_load(&w.owned, f, path, b + "ffn_up.bias", c.n_ff, True)
    load_rows(&layer.down, f, path, None, [b + "ffn_down.weight"], [c.n_embd], c.n_ff)
    layer.down_bias = vector_load(&w.owned, f, path, b + "ffn_down.bias", c.n_embd, True)
    return 0


cdef int llama_load_tensors(pn_llama_model *w, const pn_config *c, const gguf_file *f, str path) except -1:
    cdef pn_matrix head
    cdef const float *factors
    cdef int i
    matrix_load(&w.embd, f, path, "token_embd.weight", c.n_vocab, c.n_embd, False)
    w.output_norm = vector_load(&w.owned, f, path, "output_norm.weight", c.n_embd, False)
    if not matrix_load(&head, f, path, "output.weight", c.n_vocab, c.n_embd, True):
        head = w.embd
    group_add(&w.head, &head)
    factors = vector_load(&w.owned, f, path, "rope_freqs.weight", c.rope_dims // 2, True)
    if factors != NULL:
        for i in range(c.rope_dims // 2):
            if not (math.isfinite(factors[i]) and factors[i] > 0):
                raise ValueError(f"{path}: tensor rope_freqs.weight holds {factors[i]}, not a finite number above 0")
    rope_init(&w.rope, c, factors)
    w.layers = <pn_llama_layer *>owned_calloc(&w.owned, c.n_layer * sizeof(pn_llama_layer))
    for i in range(c.n_layer):
        load_layer(w, i, c, f, path)
    return 0
