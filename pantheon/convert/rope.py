"""Rotary position embedding of a configuration as GGUF keys and tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pantheon._core.load.facts import ModelClass
from pantheon.convert.settings import Settings


@dataclass(frozen=True)
class Rope:
    """dims: rotated elements of a head; keys: GGUF keys without the architecture; tensors: whole F32 tensors."""

    dims: int
    keys: dict[str, int | float | str | list[int]]
    tensors: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def read_rope(settings: Settings, facts: ModelClass, arch: str, head_dim: int, n_ctx: int) -> Rope:
    """From rope_parameters (new) or rope_scaling (old), and rope_theta; see ValueError of Settings."""
    name = "rope_scaling" if settings.get("rope_scaling") is not None else "rope_parameters"
    rope = settings.part(name)
    base = rope.positive("rope_theta", settings.positive("rope_theta", 10000.0))
    fraction = rope.positive("partial_rotary_factor", settings.positive("partial_rotary_factor", 1.0))
    if fraction > 1 or (fraction != 1 and not facts.part_rotated):
        raise ValueError(f"{settings.path}: key partial_rotary_factor is {fraction}, which {arch} cannot have")
    dims = int(head_dim * fraction)
    keys: dict[str, int | float | str | list[int]] = {"rope.dimension_count": dims, "rope.freq_base": base}
    tensors: dict[str, NDArray[np.float32]] = {}
    if facts.rope_sections:
        keys["rope.dimension_sections"] = _sections(rope, facts.rope_sections)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in facts.gguf_ropes:
        raise ValueError(f"{settings.path}: key {rope.prefix}rope_type is {kind[:40]!r}; {arch} may have "
                         f"{', '.join(facts.gguf_ropes)}")
    original = rope.integer("original_max_position_embeddings",
                            settings.integer("original_max_position_embeddings", n_ctx, 1), 1)
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope.positive("factor")}
    elif kind == "yarn":
        keys |= _yarn(rope, original, n_ctx)
    elif kind == "llama3":
        tensors["rope_freqs.weight"] = _banded_divisors(rope, base, dims, original)
    elif kind in ("longrope", "su"):
        keys |= _longrope(rope, original, n_ctx)
        for length in ("short", "long"):
            tensors[f"rope_factors_{length}.weight"] = _factors(rope, f"{length}_factor", dims // 2)
    return Rope(dims, keys, tensors)


def _sections(rope: Settings, default: tuple[int, ...]) -> list[int]:
    """Pairs that follow time, height and width, and none that follow a fourth axis."""
    value = rope.get("mrope_section", list(default))
    if not isinstance(value, list) or len(value) != 3 or not all(type(n) is int and 0 <= n < 2**31 for n in value):
        rope.refuse("mrope_section", "a list of 3 numbers of pairs")
    return [*value, 0]


def _yarn(rope: Settings, original: int, n_ctx: int) -> dict[str, int | float | str | list[int]]:
    factor = rope.positive("factor", n_ctx / original)
    if not rope.flag("truncate", True):
        raise ValueError(f"{rope.path}: key {rope.prefix}truncate is false, which no GGUF key says")
    keys: dict[str, int | float | str | list[int]] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
    }
    for beta in ("beta_fast", "beta_slow"):
        if rope.get(beta):
            keys[f"rope.scaling.yarn_{beta}"] = rope.positive(beta)
    # Readers multiply what the factor implies by the key, the configuration replaces it.
    implied = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    mscale, mscale_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    wanted = implied
    if rope.get("attention_factor") is not None:
        wanted = rope.positive("attention_factor")
    elif mscale and mscale_all and factor > 1:
        wanted = (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all * math.log(factor) + 1)
    if wanted != implied:
        keys["rope.scaling.attn_factor"] = wanted / implied
    return keys


def _banded_divisors(rope: Settings, base: float, dims: int, original: int) -> NDArray[np.float32]:
    """Llama-3 scaling as divisors of the frequencies, (dims / 2,)."""
    factor = rope.positive("factor")
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if not low < high:
        rope.refuse("high_freq_factor", f"above low_freq_factor {low}")
    waves = 2 * math.pi * base ** (2 * np.arange(dims // 2) / dims)
    smooth = np.clip((original / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def _longrope(rope: Settings, original: int, n_ctx: int) -> dict[str, int | float | str | list[int]]:
    """The factors are tensors, by which readers know the kind: no type is written."""
    stretch = n_ctx / original
    implied = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 and original > 1 else 1.0
    return {"rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": rope.positive("attention_factor", implied)}


def _factors(rope: Settings, key: str, n: int) -> NDArray[np.float32]:
    values = rope.get(key)
    ok = isinstance(values, list) and len(values) == n and all(type(v) in (int, float) for v in values)
    array = np.array(values if ok else [], np.float32)
    if not ok or not np.all(np.isfinite(array)) or not np.all(array > 0):
        rope.refuse(key, f"a list of {n} numbers above 0")
    return array
