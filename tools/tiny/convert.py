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
    "self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",  # Phi-3
    "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",  # Phi-2
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
       "model.final_layernorm": "output_norm"}


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


def _set(parameter: torch.nn.Parameter, values: np.ndarray) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values))


def expert_tensors(experts: torch.nn.Module) -> dict[str, np.ndarray]:
    """Stacked matrices of a layer's experts, (n_experts, out, in) each."""
    gate, up = np.split(experts.gate_up_proj.detach().numpy(), 2, axis=1)
    return {"gate": gate, "up": up, "down": experts.down_proj.detach().numpy()}


def _quantise_experts(experts: torch.nn.Module, layer: str, recipe: Recipe,
                      rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The same as `quantise` for the experts of one layer ("blk.0"); blocks by "gate", "up" and "down"."""
    tensors, data, blocks = expert_tensors(experts), {}, {}
    for part, weight in tensors.items():
        name = f"{layer}.ffn_{part}_exps"
        kind = _type_of(recipe, name)
        blocks[part] = input_block(kind)
        if kind != Q.F32:
            encoded, values = encode(weight.reshape(-1, weight.shape[2]), kind, rng)
            data[name] = encoded.reshape(*weight.shape[:2], -1)
            tensors[part] = values.reshape(weight.shape)
    _set(experts.gate_up_proj, np.concatenate([tensors["gate"], tensors["up"]], axis=1))
    _set(experts.down_proj, tensors["down"])
    return data, blocks


def quantise(model: torch.nn.Module, recipe: Recipe) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Replaces the model's matrices by what their file types can hold.

    Returns the file bytes of those matrices by GGUF name, before any change of row order, and the int8 input block of
    each module.
    """
    rng = np.random.default_rng(2000 + recipe.seed)
    data, blocks = {}, {}
    for module_name, module in model.named_modules():
        if module_name.endswith(".experts"):
            layer = f"blk.{module_name.split('.')[2]}"
            expert_data, expert_blocks = _quantise_experts(module, layer, recipe, rng)
            data |= expert_data
            blocks |= {f"{module_name}.{part}": block for part, block in expert_blocks.items()}
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            continue
        name = gguf_name(module_name)
        if name == "output" and model.config.tie_word_embeddings:
            name = "token_embd"
        kind = _type_of(recipe, name)
        if name not in data and kind != Q.F32:
            data[name], values = encode(module.weight.detach().numpy(), kind, rng)
            _set(module.weight, values)
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
        "rope.dimension_count": int(head_dim(config) * rope.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": config.vocab_size,
    }
    if arch == "phi2":
        keys["attention.layer_norm_epsilon"] = float(config.layer_norm_eps)
    else:
        keys["attention.layer_norm_rms_epsilon"] = float(config.rms_norm_eps)
    n_experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if n_experts:
        keys["expert_count"] = n_experts
        keys["expert_used_count"] = config.num_experts_per_tok
    if arch in ("qwen2moe", "qwen3moe"):
        keys["expert_feed_forward_length"] = config.moe_intermediate_size
    if arch == "qwen2moe":
        keys["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
        if config.norm_topk_prob:
            keys["expert_weights_norm"] = True
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
    if rope["rope_type"] == "longrope":  # the factors are tensors; no type is written
        original = config.original_max_position_embeddings
        stretch = config.max_position_embeddings / original
        keys["rope.scaling.original_context_length"] = original
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(stretch) / math.log(original))
    for key, value in keys.items():
        if key in recipe.omit:
            continue
        if isinstance(value, bool):
            writer.add_bool(f"{arch}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)


def _expert_entries(experts: torch.nn.Module, layer: str, recipe: Recipe,
                    data: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, Q]]:
    """Tensors of the experts of one layer, in the recipe's spelling."""
    parts = expert_tensors(experts)
    if recipe.experts == "split":
        return {f"{layer}.ffn_{part}.{e}.weight": (weight, Q.F32)
                for part, weights in parts.items() for e, weight in enumerate(weights)}
    if recipe.experts == "fused":
        fused = np.concatenate([parts["gate"], parts["up"]], axis=1)
        return {f"{layer}.ffn_gate_up_exps.weight": (fused, Q.F32),
                f"{layer}.ffn_down_exps.weight": (parts["down"], Q.F32)}
    names = {part: f"{layer}.ffn_{part}_exps" for part in parts}
    return {f"{names[part]}.weight": (data.get(names[part], weight), _type_of(recipe, names[part]))
            for part, weight in parts.items()}


def write(model: torch.nn.Module, recipe: Recipe, data: dict[str, np.ndarray], path: Path) -> None:
    """Writes the file. `data` is what `quantise` returned; every other tensor is stored as F32."""
    config = recipe.config
    tensors: dict[str, tuple[np.ndarray, Q]] = {}
    for parameter_name, parameter in model.state_dict().items():
        if ".experts." in parameter_name:
            continue
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
        if name.endswith("ffn_gate_inp_shexp"):
            array = array[0]
        tensors[f"{name}.{suffix}"] = (array, kind)
    for module_name, module in model.named_modules():
        if module_name.endswith(".experts"):
            tensors |= _expert_entries(module, f"blk.{module_name.split('.')[2]}", recipe, data)
    if recipe.fused_qkv:
        for layer in range(config.num_hidden_layers):
            for suffix in ("weight", "bias"):
                parts = [tensors.pop(f"blk.{layer}.attn_{x}.{suffix}", None) for x in "qkv"]
                if parts[0] is not None:
                    fused = np.concatenate([array for array, _ in parts])
                    tensors[f"blk.{layer}.attn_qkv.{suffix}"] = (fused, parts[0][1])
    if config.rope_parameters["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = (rope_freqs(config), Q.F32)
    for factors in ("short", "long"):
        if f"{factors}_factor" in config.rope_parameters:
            values = np.array(config.rope_parameters[f"{factors}_factor"], np.float32)
            tensors[f"rope_factors_{factors}.weight"] = (values, Q.F32)

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
