"""A Hugging Face model in memory -> a GGUF file: names, the row order of q and k for `llama`, keys, tensor types."""
from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import torch

from . import vocabulary
from .blocks import encode, input_block
from .recipes import Recipe

Q = gguf.GGMLQuantizationType

PARTS = {  # of a layer
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(module: str) -> str:
    """'model.layers.0.self_attn.q_proj' -> 'blk.0.attn_q'."""
    if module in TOP:
        return TOP[module]
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}"


def head_dim(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def interleave(rows: np.ndarray, n_head: int) -> np.ndarray:
    """Rows of a q or k projection (weight or bias) from rotate-half to interleaved pairs: 2p + t <- t * D/2 + p."""
    half = rows.shape[0] // n_head // 2
    return rows.reshape(n_head, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_freqs(config) -> np.ndarray:
    """Llama-3 scaling as divisors of the frequencies, (head_dim / 2,) float32."""
    rope = config.rope_parameters
    scale, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    divisors = []
    for p in range(head_dim(config) // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * p / head_dim(config))
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(scale)
        else:
            t = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - t) / scale + t))
    return np.array(divisors, dtype=np.float32)


def _type_of(recipe: Recipe, name: str) -> Q:
    return recipe.types.get(name, recipe.types.get(name.rsplit(".", 1)[-1], Q.F32))


def quantise(model: torch.nn.Module, recipe: Recipe) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Replaces the model's matrices by what their file types can hold.

    Returns the file bytes of those matrices by GGUF name, before any change of row order, and the int8 input block of
    each module.
    """
    rng = np.random.default_rng(2000 + recipe.seed)
    data, blocks = {}, {}
    for module_name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            continue
        name = gguf_name(module_name)
        if name == "output" and model.config.tie_word_embeddings:
            name = "token_embd"
        kind = _type_of(recipe, name)
        if name not in data and kind != Q.F32:
            data[name], values = encode(module.weight.detach().numpy(), kind, rng)
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(values))
        if isinstance(module, torch.nn.Linear):
            blocks[module_name] = input_block(kind)
    return data, blocks


def _write_keys(writer: gguf.GGUFWriter, recipe: Recipe) -> None:
    config, arch = recipe.config, recipe.arch
    rope = config.rope_parameters
    keys = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim(config),
        "attention.value_length": head_dim(config),
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": head_dim(config),
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": config.vocab_size,
    }
    if getattr(config, "sliding_window", None):
        keys["attention.sliding_window"] = config.sliding_window
    if rope["rope_type"] in ("linear", "yarn"):
        keys["rope.scaling.type"] = rope["rope_type"]
        keys["rope.scaling.factor"] = float(rope["factor"])
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        for beta in ("beta_fast", "beta_slow"):
            if beta in rope:
                keys[f"rope.scaling.yarn_{beta}"] = float(rope[beta])
    for key, value in keys.items():
        if key in recipe.omit:
            continue
        if isinstance(value, str):
            writer.add_string(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)


def write(model: torch.nn.Module, recipe: Recipe, data: dict[str, np.ndarray], path: Path) -> None:
    """Writes the file. `data` is what `quantise` returned; every other tensor is stored as F32."""
    config = recipe.config
    tensors: dict[str, tuple[np.ndarray, Q]] = {}
    for parameter_name, parameter in model.state_dict().items():
        module_name, suffix = parameter_name.rsplit(".", 1)
        name = gguf_name(module_name)
        if name == "output" and config.tie_word_embeddings:
            continue
        is_matrix = suffix == "weight" and parameter.ndim == 2
        array, kind = parameter.numpy().astype(np.float32), Q.F32
        if is_matrix and name in data:
            array, kind = data[name], _type_of(recipe, name)
        if recipe.arch == "llama" and name.endswith((".attn_q", ".attn_k")):
            n_head = config.num_attention_heads if name.endswith("_q") else config.num_key_value_heads
            array = interleave(array, n_head)
        tensors[f"{name}.{suffix}"] = (array, kind)
    if recipe.fused_qkv:
        for layer in range(config.num_hidden_layers):
            for suffix in ("weight", "bias"):
                parts = [tensors.pop(f"blk.{layer}.attn_{x}.{suffix}", None) for x in "qkv"]
                if parts[0] is not None:
                    fused = np.concatenate([array for array, _ in parts])
                    tensors[f"blk.{layer}.attn_qkv.{suffix}"] = (fused, parts[0][1])
    if config.rope_parameters["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = (rope_freqs(config), Q.F32)

    writer = gguf.GGUFWriter(path, recipe.arch)
    writer.add_name(recipe.name)
    writer.add_description(recipe.why)
    _write_keys(writer, recipe)
    vocabulary.write(writer, recipe.pre)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=None if kind in (Q.F32, Q.F16) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
