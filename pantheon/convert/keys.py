"""The GGUF keys of a model's hyper-parameters, without the architecture before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pantheon.convert.hyper import Hyper

if TYPE_CHECKING:
    import gguf

Value = bool | int | float | str | list[int] | list[bool]


def hyper_keys(h: Hyper, n_mtp: int = 0) -> dict[str, Value]:
    """n_mtp: drafting blocks behind the layers, which block_count counts."""
    norm = "layer_norm_epsilon" if h.facts.layer_norm else "layer_norm_rms_epsilon"
    keys: dict[str, Value] = {
        "context_length": h.n_ctx,
        "embedding_length": h.n_embd,
        "block_count": h.n_layer + n_mtp,
        "attention.head_count": h.n_head,
        "attention.head_count_kv": h.n_kv_head,
        "attention.key_length": h.head_dim,
        "attention.value_length": h.head_dim,
        f"attention.{norm}": h.norm_eps,
        "vocab_size": h.n_vocab,
        **h.rope.keys,
    }
    if h.n_ff:
        keys["feed_forward_length"] = h.n_ff
    if h.window or h.facts.gguf_no_window:
        keys["attention.sliding_window"] = h.window
    if h.experts is not None and h.facts.experts is not None:
        keys |= {"expert_count": h.experts.n, "expert_used_count": h.experts.n_used}
        if h.facts.experts.width != "intermediate_size":
            keys["expert_feed_forward_length"] = h.experts.n_ff
        if h.facts.experts.normalise:
            keys["expert_weights_norm"] = h.experts.renormalise
        if h.experts.n_ff_shared:
            keys["expert_shared_feed_forward_length"] = h.experts.n_ff_shared
    if h.delta is not None:
        keys |= {
            "ssm.conv_kernel": h.delta.taps,
            "ssm.state_size": h.delta.k_dim,
            "ssm.group_count": h.delta.n_k_head,
            "ssm.time_step_rank": h.delta.n_v_head,
            "ssm.inner_size": h.delta.n_v_head * h.delta.v_dim,
        }
        keys |= _layer_kinds(h.delta.recurrent, n_mtp)
    if n_mtp:
        keys["nextn_predict_layers"] = n_mtp
    return keys


def _layer_kinds(recurrent: tuple[bool, ...], n_mtp: int) -> dict[str, Value]:
    """Every n-th layer where that tells it, which every reader knows; else a list."""
    interval = recurrent.index(False) + 1 if False in recurrent else len(recurrent) + 1
    if all(kind == ((i + 1) % interval != 0) for i, kind in enumerate(recurrent)):
        return {"full_attention_interval": interval}
    return {"attention.recurrent_layers": [*recurrent, *[False] * n_mtp]}


def add_keys(writer: gguf.GGUFWriter, keys: dict[str, Value], arch: str) -> None:
    """Adds keys of one architecture, each with the type that readers expect."""
    for key, value in keys.items():
        name = f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
