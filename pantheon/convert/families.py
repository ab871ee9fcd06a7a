"""The tensors of transformers, by how their files are cut: apart, fused, or with one norm a layer."""

from __future__ import annotations

from pantheon.convert.layout import Layout, interleaved


def plain_tensors(layout: Layout) -> None:
    """Every matrix for itself. Biases are optional; experts may take the place of a feed-forward."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.embeddings()
    q_order = interleaved(h.n_head, h.head_dim) if h.facts.gguf_interleaved else None
    k_order = interleaved(h.n_kv_head, h.head_dim) if h.facts.gguf_interleaved else None
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."

        def norm(part: str, n: int, ours: str = ours, theirs: str = theirs) -> None:
            layout.vector(f"{ours}{part}.weight", [f"{s}.weight" for s in layout.spellings(theirs, part)], n)

        norm("attn_norm", h.n_embd)
        for part, rows, columns, order in (("attn_q", q, h.n_embd, q_order), ("attn_k", kv, h.n_embd, k_order),
                                           ("attn_v", kv, h.n_embd, None), ("attn_output", h.n_embd, q, None)):
            layout.projection(f"{ours}{part}", layout.spellings(theirs, part), rows, columns, order)
        if "attn_q_norm.weight" in h.optional:
            norm("attn_q_norm", h.head_dim)
            norm("attn_k_norm", h.head_dim)
        if "attn_sub_norm.weight" in h.optional:
            norm("attn_sub_norm", q)
            norm("ffn_sub_norm", h.n_ff)
        norm("ffn_norm", h.n_embd)
        if h.experts is not None and i not in h.experts.dense:
            layout.experts(ours, theirs)
            continue
        for part, rows, columns in (("ffn_gate", h.n_ff, h.n_embd), ("ffn_up", h.n_ff, h.n_embd),
                                    ("ffn_down", h.n_embd, h.n_ff)):
            layout.projection(f"{ours}{part}", layout.spellings(theirs, part), rows, columns)


def parallel_tensors(layout: Layout) -> None:
    """One norm a layer; biases everywhere."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.embeddings()
    shapes = {"attn_q": (q, h.n_embd), "attn_k": (kv, h.n_embd), "attn_v": (kv, h.n_embd),
              "attn_output": (h.n_embd, q), "ffn_up": (h.n_ff, h.n_embd), "ffn_down": (h.n_embd, h.n_ff)}
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."
        for suffix in ("weight", "bias"):
            layout.vector(f"{ours}attn_norm.{suffix}", f"{theirs}input_layernorm.{suffix}", h.n_embd)
        for part, shape in shapes.items():
            [name] = layout.spellings(theirs, part)
            layout.matrix(f"{ours}{part}.weight", f"{name}.weight", *shape)
            layout.vector(f"{ours}{part}.bias", f"{name}.bias", shape[0])


def fused_tensors(layout: Layout) -> None:
    """Queries, keys and values in one matrix, gate and up in another, which the file calls ffn_up."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.embeddings()
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."
        layout.vector(f"{ours}attn_norm.weight", f"{theirs}input_layernorm.weight", h.n_embd)
        layout.vector(f"{ours}ffn_norm.weight", f"{theirs}post_attention_layernorm.weight", h.n_embd)
        layout.projection(f"{ours}attn_qkv", f"{theirs}self_attn.qkv_proj", q + 2 * kv, h.n_embd)
        layout.projection(f"{ours}attn_output", f"{theirs}self_attn.o_proj", h.n_embd, q)
        layout.projection(f"{ours}ffn_up", f"{theirs}mlp.gate_up_proj", 2 * h.n_ff, h.n_embd)
        layout.projection(f"{ours}ffn_down", f"{theirs}mlp.down_proj", h.n_embd, h.n_ff)
