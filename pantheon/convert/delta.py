"""The tensors of models with DeltaNet layers.

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


def delta_tensors(layout: Layout) -> int:
    """Adds all tensors; returns the number of drafting blocks, which come after the layers."""
    h, d = layout.h, layout.h.delta
    assert d is not None
    layout.embeddings(change=_plus_one)
    for i in range(h.n_layer):
        ours, theirs = f"blk.{i}.", f"{layout.prefix}layers.{i}."
        if d.recurrent[i]:
            _norm(layout, "attn_norm", ours, theirs, h.n_embd)
            _recurrent(layout, d, ours, theirs)
            _feed_forward(layout, ours, theirs)
        else:
            _attention_layer(layout, ours, theirs)
    return _drafting(layout)


def _plus_one(values: Values) -> Values:
    return values + np.float32(1)


def _minus_exp(values: Values) -> Values:
    return -np.exp(values)


def _norm(layout: Layout, part: str, ours: str, theirs: str, n: int) -> None:
    """A norm that the folder keeps around zero."""
    [name] = layout.spellings(theirs, part)
    layout.vector(f"{ours}{part}.weight", f"{name}.weight", n, change=_plus_one)


def _matrix(layout: Layout, part: str, ours: str, theirs: str, rows: int, columns: int,
            order: Indices | None = None, column_order: Indices | None = None) -> None:
    [name] = layout.spellings(theirs, part)
    layout.matrix(f"{ours}{part}.weight", f"{name}.weight", rows, columns, order, column_order)


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
    for part, rows in (("attn_qkv", channels), ("attn_gate", values), ("ssm_alpha", heads), ("ssm_beta", heads)):
        _matrix(layout, part, ours, theirs, len(rows), n_embd, rows)
    conv = layout.find(f"{layout.spellings(theirs, 'ssm_conv1d')[0]}.weight", (len(channels), 1, d.taps))
    assert conv is not None
    shape = (len(channels), d.taps)
    layout.add(f"{ours}ssm_conv1d.weight", shape, "float", Piece(layout.floats(conv, shape), channels))
    layout.vector(f"{ours}ssm_a", layout.spellings(theirs, "ssm_a"), d.n_v_head, heads, _minus_exp)
    layout.vector(f"{ours}ssm_dt.bias", layout.spellings(theirs, "ssm_dt.bias"), d.n_v_head, heads)
    layout.vector(f"{ours}ssm_norm.weight", f"{layout.spellings(theirs, 'ssm_norm')[0]}.weight", d.v_dim)
    _matrix(layout, "ssm_out", ours, theirs, n_embd, len(values), column_order=values)


def _attention_layer(layout: Layout, ours: str, theirs: str) -> None:
    """A layer of gated attention; q's matrix has the rows of each head's query before those of its gate."""
    h = layout.h
    q, kv = h.n_head * h.head_dim, h.n_kv_head * h.head_dim
    _norm(layout, "attn_norm", ours, theirs, h.n_embd)
    for part, shape in (("attn_q", (2 * q, h.n_embd)), ("attn_k", (kv, h.n_embd)), ("attn_v", (kv, h.n_embd)),
                        ("attn_output", (h.n_embd, q))):
        _matrix(layout, part, ours, theirs, *shape)
    _norm(layout, "attn_q_norm", ours, theirs, h.head_dim)
    _norm(layout, "attn_k_norm", ours, theirs, h.head_dim)
    _feed_forward(layout, ours, theirs)


def _feed_forward(layout: Layout, ours: str, theirs: str) -> None:
    h = layout.h
    _norm(layout, "post_attention_norm", ours, theirs, h.n_embd)
    if h.experts is not None:
        layout.experts(ours, theirs)
        return
    for part, shape in (("ffn_gate", (h.n_ff, h.n_embd)), ("ffn_up", (h.n_ff, h.n_embd)),
                        ("ffn_down", (h.n_embd, h.n_ff))):
        _matrix(layout, part, ours, theirs, *shape)


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
