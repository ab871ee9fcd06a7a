"""Qwen3.5 tiny models: configurations, drawing of weights, and the way of the GGUF converter.

The converter adds one to the zero-centred norms, stores -exp(A_log), squeezes the convolution, and re-orders the value
heads: GGUF head g is Hugging Face head (g mod Hk) * r + g div Hk, with r = Hv / Hk, so that g reads key head g mod Hk.
"""
from __future__ import annotations

import gguf
import numpy as np
import torch
from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig

from . import vocabulary

PARTS = {  # of a layer; matrices and vectors that keep their shape
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}
GAIN = {"q_proj": 1.25, "k_proj": 1.25, "gate_proj": 1.5, "gate": 2.0, "shared_expert_gate": 1.5}


def config(moe: bool = False, **changes) -> object:
    """Sizes in which everything that could be confused differs."""
    sizes = {
        "vocab_size": 288, "hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25,
                            "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    }
    if moe:
        return Qwen3_5MoeTextConfig(**sizes | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
                                               "num_experts": 12, "num_experts_per_tok": 3} | changes)
    return Qwen3_5TextConfig(**sizes | {"intermediate_size": 40} | changes)


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values of one parameter: heads that forget within a few tokens and heads that remember the whole prompt."""
    noise = rng.standard_normal(shape)
    part = name.split(".")[-2]
    if name.endswith("linear_attn.norm.weight"):
        return 1.0 + 0.2 * noise
    if name.endswith("norm.weight"):
        return 0.2 * noise
    if name.endswith("A_log"):
        return np.log(np.geomspace(0.005, 2.0, shape[0])[rng.permutation(shape[0])])
    if name.endswith("dt_bias"):
        return 0.5 * noise
    if name.endswith("conv1d.weight"):
        return 0.6 * noise
    if name.endswith("experts.gate_up_proj"):
        return 1.25 * noise / np.sqrt(shape[-1])
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        return 2.0 * noise / np.sqrt(shape[-1])
    return GAIN.get(part, 1.0) * noise / np.sqrt(shape[-1])


def tiled(cfg) -> np.ndarray:
    """The Hugging Face value head of each GGUF value head."""
    n_k, n_v = cfg.linear_num_key_heads, cfg.linear_num_value_heads
    g = np.arange(n_v)
    return g % n_k * (n_v // n_k) + g // n_k


def reorder(name: str, array: np.ndarray, cfg) -> np.ndarray:
    """A parameter of a DeltaNet layer with its value heads in the order of GGUF."""
    dim, heads = cfg.linear_value_head_dim, tiled(cfg)
    rows = (heads[:, None] * dim + np.arange(dim)).ravel()
    n_qk = 2 * cfg.linear_num_key_heads * cfg.linear_key_head_dim
    if name.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
        return np.concatenate([array[:n_qk], array[n_qk:][rows]])
    if name.endswith(".in_proj_z.weight"):
        return array[rows]
    if name.endswith((".in_proj_a.weight", ".in_proj_b.weight", ".A_log", ".dt_bias")):
        return array[heads]
    if name.endswith(".out_proj.weight"):
        return array[:, rows]
    return array


def untiled(state: dict, cfg) -> dict:
    """The mistake of reading tiled value heads as grouped ones, as the weights of a model that is otherwise right."""
    return {name: torch.from_numpy(reorder(name, value.numpy(), cfg).copy()) for name, value in state.items()}


def flat_gate(state: dict, cfg) -> dict:
    """The mistake of taking the first half of q's rows as queries and the second as gates."""
    def swap(value):
        n_head, dim = cfg.num_attention_heads, cfg.head_dim
        return value.reshape(2, n_head, dim, -1).swapaxes(0, 1).reshape(value.shape)

    return {name: swap(value) if name.endswith("q_proj.weight") else value for name, value in state.items()}


def tensors(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Every tensor of the file, float32."""
    cfg, out = model.config, {}
    for name, parameter in model.state_dict().items():
        array = reorder(name, parameter.numpy().astype(np.float32), cfg)
        if name in TOP:
            if name == "model.norm.weight":
                array = array + 1
            out[TOP[name]] = array
            continue
        _, _, layer, part = name.split(".", 3)
        prefix = f"blk.{layer}."
        if part == "mlp.experts.gate_up_proj":
            half = array.shape[1] // 2
            out[prefix + "ffn_gate_exps.weight"], out[prefix + "ffn_up_exps.weight"] = array[:, :half], array[:, half:]
            continue
        if part.endswith("norm.weight") and part != "linear_attn.norm.weight":
            array = array + 1
        elif part == "linear_attn.A_log":
            array = -np.exp(array)
        elif part in ("linear_attn.conv1d.weight", "mlp.shared_expert_gate.weight"):
            array = array.squeeze(1 if array.ndim == 3 else 0)
        out[prefix + PARTS[part]] = array
    return out


def mtp_block(cfg, full: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A drafting block after the last layer: its attention layer and the nextn tensors, which no forward reads."""
    prefix, n = f"blk.{cfg.num_hidden_layers}.", cfg.hidden_size
    like = f"blk.{cfg.layer_types.index('full_attention')}."
    shapes = {prefix + name.removeprefix(like): array.shape for name, array in full.items() if name.startswith(like)}
    shapes |= {prefix + "nextn.eh_proj.weight": (n, 2 * n), prefix + "nextn.enorm.weight": (n,),
               prefix + "nextn.hnorm.weight": (n,), prefix + "nextn.shared_head_norm.weight": (n,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def keys(cfg, n_mtp: int) -> dict[str, object]:
    rope = cfg.rope_parameters
    out = {
        "context_length": cfg.max_position_embeddings, "embedding_length": cfg.hidden_size,
        "block_count": cfg.num_hidden_layers + n_mtp, "attention.head_count": cfg.num_attention_heads,
        "attention.head_count_kv": cfg.num_key_value_heads, "attention.key_length": cfg.head_dim,
        "attention.value_length": cfg.head_dim, "attention.layer_norm_rms_epsilon": float(cfg.rms_norm_eps),
        "rope.dimension_count": int(cfg.head_dim * rope["partial_rotary_factor"]),
        "rope.dimension_sections": [*rope["mrope_section"], 0], "rope.freq_base": float(rope["rope_theta"]),
        "ssm.conv_kernel": cfg.linear_conv_kernel_dim, "ssm.state_size": cfg.linear_key_head_dim,
        "ssm.group_count": cfg.linear_num_key_heads, "ssm.time_step_rank": cfg.linear_num_value_heads,
        "ssm.inner_size": cfg.linear_num_value_heads * cfg.linear_value_head_dim,
    }
    if hasattr(cfg, "num_experts"):
        out |= {"expert_count": cfg.num_experts, "expert_used_count": cfg.num_experts_per_tok,
                "expert_feed_forward_length": cfg.moe_intermediate_size,
                "expert_shared_feed_forward_length": cfg.shared_expert_intermediate_size}
    else:
        out["feed_forward_length"] = cfg.intermediate_size
    if n_mtp:
        out["nextn_predict_layers"] = n_mtp
    interval = cfg.layer_types.index("full_attention") + 1
    if all((kind == "full_attention") == ((i + 1) % interval == 0) for i, kind in enumerate(cfg.layer_types)):
        out["full_attention_interval"] = interval
    else:
        out["attention.recurrent_layers"] = [kind == "linear_attention" for kind in cfg.layer_types] + [False] * n_mtp
    return out


def write(model: torch.nn.Module, recipe, path) -> None:
    """Writes the file: F32 tensors but for those that the recipe gives a type with blocks of 32."""
    cfg = model.config
    data = tensors(model)
    if recipe.n_mtp:
        data |= mtp_block(cfg, data, np.random.default_rng(3000 + recipe.seed))
    writer = gguf.GGUFWriter(path, recipe.arch)
    writer.add_name(recipe.name)
    writer.add_description(recipe.why)
    for key, value in keys(cfg, recipe.n_mtp).items():
        if key in recipe.omit:
            continue
        if isinstance(value, list):
            writer.add_array(f"{recipe.arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{recipe.arch}.{key}", value)
        else:
            writer.add_uint32(f"{recipe.arch}.{key}", value)
    vocabulary.write(writer, recipe.pre)
    for name, array in data.items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
