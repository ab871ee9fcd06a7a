"""Qwen3.5 tiny models: configurations, drawing of weights, and mistakes that their logits must notice."""
from __future__ import annotations

import numpy as np
from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig

from pantheon.convert import lay_out
from pantheon.convert.hyper import read_hyper
from pantheon.convert.pieces import SourceTensor

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


def untiled(state: dict, cfg) -> dict:
    """The mistake of reading tiled value heads as grouped ones, as the weights of a model that is otherwise right."""
    name = "Qwen3_5MoeForCausalLM" if hasattr(cfg, "num_experts") else "Qwen3_5ForCausalLM"
    source = {key: SourceTensor(key, "F32", tuple(value.shape), value.numpy().reshape(-1).view(np.uint8))
              for key, value in state.items()}
    layout, _ = lay_out(source, read_hyper(cfg.to_dict() | {"architectures": [name]}, name), name)
    wrong = dict(state)
    for output in layout.outputs:
        piece = output.pieces[0]
        if ".linear_attn." in piece.source:
            value = state[piece.source]
            value = value if piece.rows is None else value[piece.rows]
            wrong[piece.source] = value if piece.columns is None else value[:, piece.columns]
    return wrong


def flat_gate(state: dict, cfg) -> dict:
    """The mistake of taking the first half of q's rows as queries and the second as gates."""
    def swap(value):
        n_head, dim = cfg.num_attention_heads, cfg.head_dim
        return value.reshape(2, n_head, dim, -1).swapaxes(0, 1).reshape(value.shape)

    return {name: swap(value) if name.endswith("q_proj.weight") else value for name, value in state.items()}


def mtp_block(recipe) -> dict[str, np.ndarray]:
    """A drafting block after the last layer, which no forward reads: an attention layer and the nextn tensors."""
    cfg, rng = recipe.config, np.random.default_rng(3000 + recipe.seed)
    n, q, kv = cfg.hidden_size, cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
    experts, ff, shared = cfg.num_experts, cfg.moe_intermediate_size, cfg.shared_expert_intermediate_size
    shapes = {
        "attn_norm": (n,), "attn_q": (2 * q, n), "attn_k": (kv, n), "attn_v": (kv, n), "attn_output": (n, q),
        "attn_q_norm": (cfg.head_dim,), "attn_k_norm": (cfg.head_dim,), "post_attention_norm": (n,),
        "ffn_gate_inp": (experts, n), "ffn_gate_exps": (experts, ff, n), "ffn_up_exps": (experts, ff, n),
        "ffn_down_exps": (experts, n, ff), "ffn_gate_inp_shexp": (n,), "ffn_gate_shexp": (shared, n),
        "ffn_up_shexp": (shared, n), "ffn_down_shexp": (n, shared), "nextn.eh_proj": (n, 2 * n), "nextn.enorm": (n,),
        "nextn.hnorm": (n,), "nextn.shared_head_norm": (n,),
    }
    return {f"blk.{cfg.num_hidden_layers}.{name}.weight": rng.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()}
