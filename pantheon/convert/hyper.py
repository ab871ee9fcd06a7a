"""The hyper-parameters of a model folder, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pantheon._core.load.config_hf import optional_parts, standard_config, ternary_rule
from pantheon.convert.classes import ACTIVATIONS, CLASSES, IN_PLACE, NO_RWKV, SILU
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
    """The recurrent layers of Qwen3.5. recurrent: (n_layer,) whether each layer is one."""

    taps: int
    k_dim: int
    v_dim: int
    n_k_head: int
    n_v_head: int
    recurrent: tuple[bool, ...]


@dataclass(frozen=True)
class Hyper:
    """path: the config.json; ternary: "none", "divide", "multiply" or "online" (section 2 of the ternary notes)."""

    path: str
    model_class: str
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
    if isinstance(config, Mapping) and "rwkv" in str(config.get("architectures")).lower():
        raise ValueError(f"{path}: {NO_RWKV}")
    config = standard_config(config, path)
    name = config["architectures"][0]
    arch, defaults = CLASSES[name]
    settings = Settings(config, defaults, path)
    act = settings.text("hidden_act", "silu")
    if arch == "bitnet-b1.58" and act in SILU:
        arch = "bitnet"
    if act not in ACTIVATIONS.get(arch, SILU):
        raise ValueError(f"{path}: key hidden_act is {act[:40]!r}, {arch} has {ACTIVATIONS.get(arch, SILU)[0]!r}")
    if settings.flag("qk_layernorm", False):
        raise ValueError(f"{path}: key qk_layernorm is true, which {arch} has no form for")
    n_layer = settings.integer("num_hidden_layers", None, 1, 1024)
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
    experts = _experts(settings, name, arch, n_layer)
    return Hyper(
        path=path, model_class=name, arch=arch, n_vocab=settings.integer("vocab_size", None, 1, 1 << 24), n_ctx=n_ctx,
        n_embd=n_embd, n_layer=n_layer, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim,
        n_ff=0 if arch == "qwen35moe" else settings.integer("intermediate_size", None, 1, 1 << 24),
        norm_eps=settings.positive("layer_norm_eps" if arch == "phi2" else "rms_norm_eps", 1e-6),
        rope=read_rope(settings, arch, head_dim, n_ctx), window=_window(settings, name, n_layer, n_ctx),
        tied=settings.flag("tie_word_embeddings", False), optional=optional_parts(config, path),
        ternary=_ternary(settings, config, name), experts=experts,
        delta=_delta(settings, n_layer) if arch.startswith("qwen35") else None,
    )  # fmt: skip


def _ternary(settings: Settings, config: Mapping[str, Any], name: str) -> str:
    if name in IN_PLACE:
        return ternary_rule(dict(config), settings.path)
    if settings.get("quantization_config") is not None:
        raise ValueError(f"{settings.path}: key quantization_config: a quantised {name} cannot be converted")
    return "none"


def _window(settings: Settings, name: str, n_layer: int, n_ctx: int) -> int:
    """The sliding window of all layers, 0 for none. GGUF has no form for one in some layers only."""
    # null switches the window off; only an absent key has the class's default
    window = 0 if settings.is_null("sliding_window") else settings.integer("sliding_window", 0)
    first, listed = 0, False
    if name.startswith(("Qwen2", "Qwen3")) and not name.startswith("Qwen3_5"):
        window = window if settings.flag("use_sliding_window", False) else 0
        first, listed = settings.integer("max_window_layers", 0), True
    elif name not in ("MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM"):
        return 0
    if not 0 < window < n_ctx:
        return 0  # a window that holds the whole context hides nothing
    slides = [i >= first for i in range(n_layer)]
    kinds = settings.get("layer_types")
    if listed and kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != n_layer:
            settings.refuse("layer_types", f"a list of {n_layer} kinds")
        slides = [kind == "sliding_attention" for kind in kinds]
    if any(slides) and not all(slides):
        raise ValueError(f"{settings.path}: {sum(slides)} of {n_layer} layers have a sliding window of {window} "
                         f"positions; GGUF files of this architecture say it for all layers or none")
    return window if any(slides) else 0


def _experts(settings: Settings, name: str, arch: str, n_layer: int) -> Experts | None:
    if name == "MixtralForCausalLM":
        return Experts(settings.integer("num_local_experts", None, 1), settings.integer("num_experts_per_tok", None, 1),
                       settings.integer("intermediate_size", None, 1), 0, True, frozenset())
    if arch not in ("qwen2moe", "qwen3moe", "qwen35moe"):
        return None
    n = settings.integer("num_experts", None, 1)
    dense: set[int] = set()
    if arch != "qwen35moe":
        listed = settings.get("mlp_only_layers", [])
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            settings.refuse("mlp_only_layers", "a list of layers")
        step = settings.integer("decoder_sparse_step", 1, 1)
        dense = {i for i in range(n_layer) if i in listed or (i + 1) % step}
    return Experts(
        n, settings.integer("num_experts_per_tok", None, 1, n), settings.integer("moe_intermediate_size", None, 1),
        0 if arch == "qwen3moe" else settings.integer("shared_expert_intermediate_size", None, 1),
        True if arch == "qwen35moe" else settings.flag("norm_topk_prob", False), frozenset(dense),
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
