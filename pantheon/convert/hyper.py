"""The hyper-parameters of a model folder, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pantheon._core.arch.rwkv.hf import NO_CONFIG, WORD
from pantheon._core.load.config_hf import (
    MAX_LAYERS,
    HfConfig,
    architecture,
    optional_parts,
    read_config,
    ternary_rule,
    windows,
)
from pantheon._core.load.facts import ModelClass
from pantheon._core.registry import HF_CLASSES
from pantheon.convert.rope import Rope, read_rope
from pantheon.convert.settings import Settings


@dataclass(frozen=True)
class Experts:
    """Layers in `dense` have an ordinary feed-forward; n_ff_shared 0: no shared expert."""

    n: int
    n_used: int
    n_ff: int
    n_ff_shared: int
    renormalise: bool
    dense: frozenset[int]


@dataclass(frozen=True)
class Delta:
    """The recurrent layers of a model. recurrent: (n_layer,) whether each layer is one."""

    taps: int
    k_dim: int
    v_dim: int
    n_k_head: int
    n_v_head: int
    recurrent: tuple[bool, ...]


@dataclass(frozen=True)
class Hyper:
    """path: the config.json; arch: general.architecture of the file; ternary: as of ternary_rule()."""

    path: str
    model_class: str
    facts: ModelClass
    arch: str
    n_vocab: int
    n_ctx: int
    n_embd: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_ff: int
    norm_eps: float
    rope: Rope
    window: int
    tied: bool
    optional: frozenset[str]  # what the class has of the parts that may be missing, by the ends of their GGUF names
    ternary: str
    experts: Experts | None
    delta: Delta | None


def read_hyper(config: Mapping[str, Any], path: str) -> Hyper:
    """config: the parsed config.json; path: its name, for messages. ValueError naming file and key."""
    if isinstance(config, Mapping) and WORD in str(config.get("architectures")).lower():
        raise ValueError(f"{path}: {NO_CONFIG}")
    model = read_config(config, path, HF_CLASSES)
    facts = model.facts
    settings = Settings(model.values, facts.defaults, path)
    arch = facts.gguf_arch or architecture(model)
    if settings.flag("qk_layernorm", False):
        raise ValueError(f"{path}: key qk_layernorm is true, which {arch} has no form for")
    n_layer = settings.integer("num_hidden_layers", None, 1, MAX_LAYERS)
    n_embd = settings.integer("hidden_size", None, 1, 1 << 20)
    n_head = settings.integer("num_attention_heads", None, 1, 1 << 16)
    # null has a meaning of its own for these two: as many as heads, and what the width leaves
    n_kv_head = n_head if settings.is_null("num_key_value_heads") else settings.integer("num_key_value_heads", n_head,
                                                                                       1, n_head)
    width = n_embd // n_head
    head_dim = width if settings.is_null("head_dim") else settings.integer("head_dim", width, 1, 1 << 12)
    if n_head % n_kv_head or head_dim % 2 or n_head * head_dim > 1 << 20:
        raise ValueError(f"{path}: {n_head} heads of {head_dim} with {n_kv_head} key heads are not supported")
    n_ctx = settings.integer("max_position_embeddings", None, 1, 1 << 30)
    experts = _experts(settings, facts, n_layer)
    only_experts = facts.defaults.get("intermediate_size") == 0  # no layer has another feed-forward
    return Hyper(
        path=path, model_class=model.name, facts=facts, arch=arch,
        n_vocab=settings.integer("vocab_size", None, 1, 1 << 24), n_ctx=n_ctx,
        n_embd=n_embd, n_layer=n_layer, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim,
        n_ff=0 if only_experts else settings.integer("intermediate_size", None, 1, 1 << 24),
        norm_eps=settings.positive("layer_norm_eps" if facts.layer_norm else "rms_norm_eps", 1e-6),
        rope=read_rope(settings, facts, arch, head_dim, n_ctx), window=_window(settings, model, n_layer, n_ctx),
        tied=settings.flag("tie_word_embeddings", False), optional=optional_parts(model), ternary=_ternary(model, path),
        experts=experts, delta=_delta(settings, n_layer) if facts.rope_sections else None,
    )  # fmt: skip


def _ternary(model: HfConfig, path: str) -> str:
    if model.facts.ternary is None and model.values.get("quantization_config") is not None:
        raise ValueError(f"{path}: key quantization_config: a quantised {model.name} cannot be converted")
    return ternary_rule(model)


def _window(settings: Settings, model: HfConfig, n_layer: int, n_ctx: int) -> int:
    """The sliding window of all layers, 0 for none. GGUF has no form for one in some layers only."""
    found = windows(model, n_layer, n_ctx)
    window = max(found)
    if window != min(found):
        raise ValueError(f"{settings.path}: {sum(n > 0 for n in found)} of {n_layer} layers have a sliding window of "
                         f"{window} positions; GGUF files of this architecture say it for all layers or none")
    return window


def _experts(settings: Settings, facts: ModelClass, n_layer: int) -> Experts | None:
    keys = facts.experts
    if keys is None:
        return None
    n = settings.integer(keys.count, None, 1)
    dense: set[int] = set()
    if keys.dense:
        listed = settings.get("mlp_only_layers", [])
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            settings.refuse("mlp_only_layers", "a list of layers")
        step = settings.integer("decoder_sparse_step", 1, 1)
        dense = {i for i in range(n_layer) if i in listed or (i + 1) % step}
    return Experts(
        n, settings.integer("num_experts_per_tok", None, 1, n), settings.integer(keys.width, None, 1),
        settings.integer(keys.shared, None, 1) if keys.shared else 0,
        settings.flag(keys.normalise, False) if keys.normalise else True, frozenset(dense),
    )  # fmt: skip


def _delta(settings: Settings, n_layer: int) -> Delta:
    kinds = settings.get("layer_types")
    if kinds is None:
        interval = settings.integer("full_attention_interval", 4, 1)
        recurrent = [(i + 1) % interval != 0 for i in range(n_layer)]
    else:
        known = ("linear_attention", "full_attention")
        if not isinstance(kinds, list) or len(kinds) != n_layer or not all(kind in known for kind in kinds):
            settings.refuse("layer_types", f"a list of {n_layer} kinds, each {' or '.join(known)}")
        recurrent = [kind == "linear_attention" for kind in kinds]
    # The engine's own bounds: rows are listed one by one before any tensor is looked at.
    n_k_head = settings.integer("linear_num_key_heads", None, 1, 1 << 12)
    n_v_head = settings.integer("linear_num_value_heads", None, 1, 1 << 12)
    if n_v_head % n_k_head:
        settings.refuse("linear_num_value_heads", f"a multiple of the {n_k_head} key heads")
    return Delta(settings.integer("linear_conv_kernel_dim", None, 2, 16),
                 settings.integer("linear_key_head_dim", None, 1, min(1 << 12, (1 << 20) // n_k_head)),
                 settings.integer("linear_value_head_dim", None, 1, min(1 << 12, (1 << 20) // n_v_head)),
                 n_k_head, n_v_head, tuple(recurrent))
