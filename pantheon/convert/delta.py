"""The tensors of Qwen3.5: sections 2, 7 and 8 of its notes.

Norms are stored around zero and get one added, but for the DeltaNet's own; A_log becomes -exp(A_log); the convolution
loses its middle dimension. Value heads are re-ordered so that head g reads key head g mod n_k_head: file head g is
folder head (g mod n_k_head) * r + g div n_k_head, with r value heads a key head.
"""

from __future__ import annotations

import re

import numpy as np

from pantheon.convert.hyper import Delta
from pantheon.convert.layout import Layout
from pantheon.convert.pieces import Indices, Piece, Values


def qwen35_tensors(layout: Layout) -> int:
    """Adds all tensors; returns the number of drafting blocks, which come after the layers."""
    h, d = layout.h, layout.h.delta
    assert d is not None
    layout.embeddings(change=_plus_one)
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."
        if d.recurrent[i]:
            layout.vector(f"{ours}attn_norm.weight", f"{theirs}input_layernorm.weight", h.n_embd, change=_plus_one)
            _recurrent(layout, d, ours, f"{theirs}linear_attn.")
            _feed_forward(layout, ours, theirs)
        else:
            _attention_layer(layout, ours, theirs)
    return _drafting(layout)


def _plus_one(values: Values) -> Values:
    return values + np.float32(1)


def _minus_exp(values: Values) -> Values:
    return -np.exp(values)


def value_heads(d: Delta) -> Indices:
    """The folder's value head of each of the file's."""
    g = np.arange(d.n_v_head)
    return g % d.n_k_head * (d.n_v_head // d.n_k_head) + g // d.n_k_head


def _recurrent(layout: Layout, d: Delta, ours: str, theirs: str) -> None:
    n_embd = layout.h.n_embd
    heads = value_heads(d)
    values = (heads[:, None] * d.v_dim + np.arange(d.v_dim)).ravel()
    n_qk = 2 * d.n_k_head * d.k_dim
    channels = np.concatenate([np.arange(n_qk), n_qk + values])
    layout.matrix(f"{ours}attn_qkv.weight", f"{theirs}in_proj_qkv.weight", len(channels), n_embd, channels)
    layout.matrix(f"{ours}attn_gate.weight", f"{theirs}in_proj_z.weight", len(values), n_embd, values)
    layout.matrix(f"{ours}ssm_alpha.weight", f"{theirs}in_proj_a.weight", d.n_v_head, n_embd, heads)
    layout.matrix(f"{ours}ssm_beta.weight", f"{theirs}in_proj_b.weight", d.n_v_head, n_embd, heads)
    conv = layout.find(f"{theirs}conv1d.weight", (len(channels), 1, d.taps))
    assert conv is not None
    shape = (len(channels), d.taps)
    layout.add(f"{ours}ssm_conv1d.weight", shape, "float", Piece(layout.floats(conv, shape), channels))
    layout.vector(f"{ours}ssm_a", f"{theirs}A_log", d.n_v_head, heads, _minus_exp)
    layout.vector(f"{ours}ssm_dt.bias", f"{theirs}dt_bias", d.n_v_head, heads)
    layout.vector(f"{ours}ssm_norm.weight", f"{theirs}norm.weight", d.v_dim)
    layout.matrix(f"{ours}ssm_out.weight", f"{theirs}out_proj.weight", n_embd, len(values), column_order=values)


def _attention_layer(layout: Layout, ours: str, theirs: str) -> None:
    """A layer of gated attention; q's matrix has the rows of each head's query before those of its gate."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    layout.vector(f"{ours}attn_norm.weight", f"{theirs}input_layernorm.weight", h.n_embd, change=_plus_one)
    for part, name, shape in (("attn_q", "q_proj", (2 * q, h.n_embd)), ("attn_k", "k_proj", (kv, h.n_embd)),
                              ("attn_v", "v_proj", (kv, h.n_embd)), ("attn_output", "o_proj", (h.n_embd, q))):
        layout.matrix(f"{ours}{part}.weight", f"{theirs}self_attn.{name}.weight", *shape)
    for part in ("q", "k"):
        layout.vector(f"{ours}attn_{part}_norm.weight", f"{theirs}self_attn.{part}_norm.weight", h.head_dim,
                      change=_plus_one)
    _feed_forward(layout, ours, theirs)


def _feed_forward(layout: Layout, ours: str, theirs: str) -> None:
    h = layout.h
    layout.vector(f"{ours}post_attention_norm.weight", f"{theirs}post_attention_layernorm.weight", h.n_embd,
                  change=_plus_one)
    if h.experts is not None:
        layout.experts(ours, theirs)
        return
    for part, shape in (("gate", (h.n_ff, h.n_embd)), ("up", (h.n_ff, h.n_embd)), ("down", (h.n_embd, h.n_ff))):
        layout.matrix(f"{ours}ffn_{part}.weight", f"{theirs}mlp.{part}_proj.weight", *shape)


def _drafting(layout: Layout) -> int:
    """The blocks that draft tokens, as many as the folder holds; what they share goes to the first."""
    h = layout.h
    prefix = next((p for p in ("mtp.", "model.mtp.") if f"{p}fc.weight" in layout.source), None)
    if prefix is None:
        return 0
    pattern = re.compile(re.escape(prefix) + r"layers\.(\d{1,3})\.")
    n = 1 + max((int(m[1]) for m in map(pattern.match, layout.source) if m), default=0)
    for i in range(n):
        _attention_layer(layout, f"blk.{h.n_layer + i}.", f"{prefix}layers.{i}.")
    ours = f"blk.{h.n_layer}.nextn."
    layout.matrix(f"{ours}eh_proj.weight", f"{prefix}fc.weight", h.n_embd, 2 * h.n_embd)
    for part, name in (("enorm", "pre_fc_norm_embedding"), ("hnorm", "pre_fc_norm_hidden"),
                       ("shared_head_norm", "norm")):
        layout.vector(f"{ours}{part}.weight", f"{prefix}{name}.weight", h.n_embd, change=_plus_one)
    return n
