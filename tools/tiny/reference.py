"""The reference side: a seeded Hugging Face model in float32, and its logits.

Weights are drawn so that every part of the model matters: matrices keep the scale of what passes through them,
norm weights differ from one, scores of attention have a deviation near 1.5 and logits one near 2.
"""
from __future__ import annotations

import copy

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from . import qwen35
from .blocks import round_input
from .recipes import Recipe

N_TOKENS = 96
GAIN = {"q_proj": 1.25, "k_proj": 1.25, "v_proj": 1.0, "o_proj": 1.0, "qkv_proj": 1.2, "dense": 1.0,
        "gate_proj": 1.5, "up_proj": 1.0, "gate_up_proj": 1.25, "down_proj": 1.0, "fc1": 1.25, "fc2": 1.0,
        "gate": 2.0, "shared_expert_gate": 1.5}


def build(config) -> torch.nn.Module:
    """The model of a configuration, weights not yet drawn."""
    config = copy.deepcopy(config)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def draw_weights(model: torch.nn.Module, seed: int) -> None:
    """Fills every parameter from numpy's PCG64, whose stream does not change between versions of torch."""
    rng = np.random.default_rng(seed)
    is_qwen35 = model.config.model_type.startswith("qwen3_5")
    for name, parameter in model.named_parameters():
        if is_qwen35:
            value = qwen35.draw(name, tuple(parameter.shape), rng)
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(value.astype(np.float32)))
            continue
        part = name.split(".")[-1 if ".experts." in name else -2]
        noise = rng.standard_normal(parameter.shape)
        if name.endswith("norm.weight"):
            value = 1.0 + 0.2 * noise
        elif name.endswith(".bias"):
            value = 0.5 * noise
        elif part in ("embed_tokens", "lm_head"):
            value = noise * (2.0 / np.sqrt(parameter.shape[1]))
        else:
            value = noise * (GAIN[part] / np.sqrt(parameter.shape[-1]))
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(value.astype(np.float32)))


def prompt(recipe: Recipe, n: int = N_TOKENS) -> np.ndarray:
    """n seeded token ids, all of the vocabulary's text tokens, int32."""
    return np.random.default_rng(1000 + recipe.seed).integers(3, 288, size=n, dtype=np.int32)


def logits(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """Logits of every position, (n_tokens, n_vocab) float32, in one pass without a cache."""
    with torch.no_grad():
        out = model(torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False)
    return out.logits[0].numpy().astype(np.float32)


def rounded_experts(experts: torch.nn.Module, blocks: dict[str, int]):
    """The forward of a module of experts with the inputs of gate, up and down rounded to int8."""

    def rounded(x: torch.Tensor, block: int) -> torch.Tensor:
        return torch.from_numpy(round_input(x.numpy(), block)) if block else x

    def forward(x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for e in range(experts.gate_up_proj.shape[0]):
            token, rank = torch.where(chosen == e)
            if len(token) == 0:
                continue
            gate, up = experts.gate_up_proj[e].chunk(2)
            hidden = experts.act_fn(rounded(x[token], blocks["gate"]) @ gate.T) * (
                rounded(x[token], blocks["up"]) @ up.T)
            result = rounded(hidden, blocks["down"]) @ experts.down_proj[e].T
            out.index_add_(0, token, result * weights[token, rank, None])
        return out

    return forward


def logits_int8(model: torch.nn.Module, tokens: np.ndarray, blocks: dict[str, int]) -> np.ndarray:
    """The same with the input of each matrix rounded to int8; `blocks` maps the module's name, for matrices of experts
    the name of their module and "gate", "up" or "down", to the matrix's block length."""

    def hook(block: int):
        return lambda _, inputs: (torch.from_numpy(round_input(inputs[0].numpy(), block)),)

    handles = [
        module.register_forward_pre_hook(hook(blocks[name]))
        for name, module in model.named_modules()
        if blocks.get(name)
    ]
    for name, module in model.named_modules():
        if name.endswith(".experts"):
            module.forward = rounded_experts(module, {x: blocks[f"{name}.{x}"] for x in ("gate", "up", "down")})
    try:
        return logits(model, tokens)
    finally:
        for module in model.modules():
            module.__dict__.pop("forward", None)
        for handle in handles:
            handle.remove()


def changed(config, fields: dict) -> object:
    """A copy of the configuration with some fields set to other values."""
    values = config.to_dict() | fields
    return type(config)(**values)


def kl(p_logits: np.ndarray, q_logits: np.ndarray) -> np.ndarray:
    """KL(p || q) of each position in float64, (n_tokens,)."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        x = x - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=-1)
