"""Tiny seeded RWKV models as safetensors bytes, the same on every machine: weights come from PCG64's raw stream.

As a program, `python rwkv_models.py FOLDER` writes what tools/make_rwkv_goldens.py runs the published package on: per
recipe NAME.safetensors, and NAME.json with the recipe, the tokens of a prompt and those that are decoded after it.
"""
from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Recipe:
    """What a model is: sizes, type of its matrices, and how many tokens a prompt leaves in memory."""

    name: str
    seed: int
    n_layer: int
    n_attn: int
    n_embd: int = 128
    n_vocab: int = 300
    dtype: str = "F32"
    ranks: tuple[int, int, int, int] = (32, 32, 48, 24)  # of the LoRAs w, a, g, v
    prefix: str = "rwkv."
    lora_out_in: bool = False  # LoRA matrices as (out, in), which some converters write
    keep_tokens: int | None = None
    keep_ratio: float | None = None


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("rwkvx", seed=11, n_layer=4, n_attn=2, keep_tokens=16),
        Recipe("rwkvx-uneven", seed=12, n_layer=5, n_attn=2, dtype="BF16", keep_ratio=0.3),
        Recipe("rwkvx-one", seed=13, n_layer=2, n_attn=1, dtype="F16", keep_tokens=200),
        Recipe("rwkv7", seed=14, n_layer=3, n_attn=0, n_embd=192, prefix="", lora_out_in=True),
    )
}


class Draw:
    def __init__(self, seed: int):
        self._bits = np.random.PCG64(seed)

    def __call__(self, *shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        """Uniform float32 in [low, high)."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        unit = (raw >> np.uint64(40)).astype(np.float64) / 2**24
        return (low + (high - low) * unit).astype(np.float32).reshape(shape)


def _norm(draw: Draw, name: str, n: int) -> dict[str, np.ndarray]:
    return {f"{name}.weight": draw(n, low=0.7, high=1.3), f"{name}.bias": draw(n, low=-0.2, high=0.2)}


def _matrix(draw: Draw, rows: int, cols: int, gain: float = 1.0) -> np.ndarray:
    return draw(rows, cols) * np.float32(gain * np.sqrt(3.0 / cols))


def _ffn(draw: Draw, b: str, c: int) -> dict[str, np.ndarray]:
    return {
        f"{b}ffn.x_k": draw(1, 1, c, low=0.0),
        f"{b}ffn.key.weight": _matrix(draw, 4 * c, c),
        f"{b}ffn.value.weight": _matrix(draw, c, 4 * c, 0.6),
    }


def _block(draw: Draw, b: str, recipe: Recipe, first: bool) -> dict[str, np.ndarray]:
    c = recipe.n_embd
    t = _norm(draw, b + "ln1", c) | _norm(draw, b + "ln2", c) | _norm(draw, b + "att.ln_x", c)
    for name in "rwkvag":
        t[f"{b}att.x_{name}"] = draw(1, 1, c, low=0.0)
    t[f"{b}att.w0"] = draw(1, 1, c, low=-6.0, high=2.0)
    t[f"{b}att.a0"] = draw(1, 1, c)
    t[f"{b}att.k_k"] = draw(1, 1, c, low=0.5, high=1.2)
    t[f"{b}att.k_a"] = draw(1, 1, c, low=0.5, high=1.2)
    t[f"{b}att.r_k"] = draw(c // 64, 64, low=-0.4, high=0.4)
    for name, rank in zip("wagv", recipe.ranks, strict=True):
        if name == "v" and first:
            continue
        if name == "v":
            t[f"{b}att.v0"] = draw(1, 1, c)
        t[f"{b}att.{name}1"] = _matrix(draw, rank, c).T
        t[f"{b}att.{name}2"] = _matrix(draw, c, rank).T
    for name in ("receptance", "key", "value", "output"):
        t[f"{b}att.{name}.weight"] = _matrix(draw, c, c)
    return t | _ffn(draw, b, c)


def tensors(recipe: Recipe) -> dict[str, np.ndarray]:
    """float32 arrays by full name, LoRA matrices as (in, out); exact in the recipe's type."""
    draw = Draw(recipe.seed)
    c = recipe.n_embd
    rwkv = {"emb.weight": draw(recipe.n_vocab, c)} | _norm(draw, "blocks.0.ln0", c) | _norm(draw, "ln_out", c)
    rwkv["head.weight"] = _matrix(draw, recipe.n_vocab, c, 2.0)
    for i in range(recipe.n_layer):
        rwkv |= _block(draw, f"blocks.{i}.", recipe, i == 0)
    out = {recipe.prefix + name: value for name, value in rwkv.items()}
    for i in range(recipe.n_attn):
        b = f"moba.{i}."
        out |= _norm(draw, b + "ln1", c) | _norm(draw, b + "ln2", c) | _ffn(draw, b, c)
        for name in ("receptance", "key", "value", "output"):
            out[f"{b}att.{name}.weight"] = _matrix(draw, c, c, 0.7)
    return {name: decode(encode(value, recipe.dtype), recipe.dtype, value.shape) for name, value in out.items()}


def encode(x: np.ndarray, dtype: str) -> bytes:
    x = np.ascontiguousarray(x, np.float32)
    if dtype == "BF16":
        bits = x.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return x.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def decode(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32).reshape(shape)


def safetensors_bytes(arrays: dict[str, np.ndarray], dtype: str) -> bytes:
    header, parts, at = {}, [], 0
    for name, x in arrays.items():
        data = encode(x, dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def as_stored(recipe: Recipe, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in the orientation that the recipe's file has."""
    loras = tuple(f".att.{name}{i}" for name in "wagv" for i in (1, 2))
    return {
        name: np.ascontiguousarray(x.T) if recipe.lora_out_in and name.endswith(loras) else x
        for name, x in arrays.items()
    }


def write(recipe: Recipe, path, arrays: dict[str, np.ndarray] | None = None) -> None:
    arrays = tensors(recipe) if arrays is None else arrays
    path.write_bytes(safetensors_bytes(as_stored(recipe, arrays), recipe.dtype))


def tokens(recipe: Recipe, n: int, salt: int = 0) -> np.ndarray:
    """(n,) int32 token ids."""
    raw = np.random.PCG64(1000 * recipe.seed + salt).random_raw(n)
    return (raw % np.uint64(recipe.n_vocab)).astype(np.int32)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES.values():
        write(recipe, folder / f"{recipe.name}.safetensors")
        told = asdict(recipe) | {"tokens": tokens(recipe, 96).tolist(), "decoded": tokens(recipe, 500, salt=1).tolist()}
        (folder / f"{recipe.name}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
