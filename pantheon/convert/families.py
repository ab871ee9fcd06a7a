"""The tensors of the transformer families: Llama and its relatives, Phi-2, Phi-3."""

from __future__ import annotations

from pantheon.convert.layout import Layout, interleaved, spellings

_PHI2 = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}


def llama_tensors(layout: Layout) -> None:
    """Llama, Mistral, Mixtral, Qwen2, Qwen3, their mixtures of experts, and BitNet. Biases are optional."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.embeddings()
    permuted = h.arch == "llama"
    q_order = interleaved(h.n_head, h.head_dim) if permuted else None
    k_order = interleaved(h.n_kv_head, h.head_dim) if permuted else None
    qk_norms = h.arch.startswith("qwen3")
    sub_norms = h.arch.startswith("bitnet")
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."

        def norm(part: str, n: int, ours: str = ours, theirs: str = theirs) -> None:
            layout.vector(f"{ours}{part}.weight", [f"{s}.weight" for s in spellings(theirs, part)], n)

        norm("attn_norm", h.n_embd)
        for part, rows, columns, order in (("attn_q", q, h.n_embd, q_order), ("attn_k", kv, h.n_embd, k_order),
                                           ("attn_v", kv, h.n_embd, None), ("attn_output", h.n_embd, q, None)):
            layout.projection(f"{ours}{part}", spellings(theirs, part), rows, columns, order)
        if qk_norms:
            norm("attn_q_norm", h.head_dim)
            norm("attn_k_norm", h.head_dim)
        if sub_norms:
            norm("attn_sub_norm", q)
            norm("ffn_sub_norm", h.n_ff)
        norm("ffn_norm", h.n_embd)
        if h.experts is not None and i not in h.experts.dense:
            layout.experts(ours, theirs)
            continue
        for part, rows, columns in (("ffn_gate", h.n_ff, h.n_embd), ("ffn_up", h.n_ff, h.n_embd),
                                    ("ffn_down", h.n_embd, h.n_ff)):
            layout.projection(f"{ours}{part}", spellings(theirs, part), rows, columns)


def phi2_tensors(layout: Layout) -> None:
    """One norm a layer; biases everywhere."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.embeddings("final_layernorm")
    shapes = {"attn_q": (q, h.n_embd), "attn_k": (kv, h.n_embd), "attn_v": (kv, h.n_embd),
              "attn_output": (h.n_embd, q), "ffn_up": (h.n_ff, h.n_embd), "ffn_down": (h.n_embd, h.n_ff)}
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."
        for suffix in ("weight", "bias"):
            layout.vector(f"{ours}attn_norm.{suffix}", f"{theirs}input_layernorm.{suffix}", h.n_embd)
        for part, shape in shapes.items():
            layout.matrix(f"{ours}{part}.weight", f"{theirs}{_PHI2[part]}.weight", *shape)
            layout.vector(f"{ours}{part}.bias", f"{theirs}{_PHI2[part]}.bias", shape[0])


def phi3_tensors(layout: Layout) -> None:
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
