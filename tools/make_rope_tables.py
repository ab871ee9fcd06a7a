"""Makes tests/fixtures/rope_tables.json: rotary frequencies and attention factors as Hugging Face computes them.

    /tmp/tiny/bin/python tools/make_rope_tables.py        # the environment of tools/make_tiny_models.py

A case is a configuration in the engine's terms and what transformers makes of it: `freqs`, (dims / 2) inverse
frequencies (computed there in float32: good to about 1e-6 relative), and `attn_factor`, the multiplier of cos and sin.
`n_ctx` is the context that LongRoPE chooses its factors by. Where `attn_factor_given` is not null the configuration
names the multiplier itself.
"""
from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "rope_tables.json"

SHORT_FACTORS = [1.0 + 0.02 * p for p in range(48)]
LONG_FACTORS = [1.0 + 1.3 * p for p in range(48)]

CASES = {  # name -> (dims, base, rope fields in transformers' names, n_ctx)
    "default": (128, 10000.0, {"rope_type": "default"}, 4096),
    "default-64-1e6": (64, 1e6, {"rope_type": "default"}, 32768),
    "linear": (128, 10000.0, {"rope_type": "linear", "factor": 4.0}, 4096),
    "llama3.1": (128, 500000.0, {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}, 131072),
    "llama3.2": (64, 500000.0, {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}, 131072),
    "yarn-qwen": (128, 1e6, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
    "yarn-betas": (64, 10000.0, {
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096,
        "beta_fast": 16.0, "beta_slow": 2.0}, 65536),
    "yarn-attention-factor": (128, 1e6, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
        "attention_factor": 1.25}, 131072),
    "yarn-no-stretch": (64, 10000.0, {
        "rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096}, 4096),
    "yarn-tiny": (16, 10000.0, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128),
    "longrope-short": (96, 10000.0, {
        "rope_type": "longrope", "short_factor": SHORT_FACTORS, "long_factor": LONG_FACTORS, "factor": 32.0,
        "original_max_position_embeddings": 4096}, 4096),
    "longrope-long": (96, 10000.0, {
        "rope_type": "longrope", "short_factor": SHORT_FACTORS, "long_factor": LONG_FACTORS, "factor": 32.0,
        "original_max_position_embeddings": 4096}, 8192),
}


def table(dims: int, base: float, rope: dict, n_ctx: int) -> tuple[list[float], float]:
    """Inverse frequencies (dims / 2) and the attention factor, from transformers."""
    config = LlamaConfig(hidden_size=dims, num_attention_heads=1, head_dim=dims, max_position_embeddings=n_ctx,
                         rope_parameters={"rope_theta": base, **rope})
    if rope["rope_type"] == "default":
        freqs, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        freqs, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, seq_len=n_ctx)
    return [float(f) for f in freqs], float(factor)


def divisors(base_freqs: list[float], rope: dict, n_ctx: int) -> list[float] | None:
    """What a GGUF file stores for the case: rope_freqs or rope_factors_{short,long}; None where it stores nothing."""
    if rope["rope_type"] == "longrope":
        return rope["long_factor" if n_ctx > rope["original_max_position_embeddings"] else "short_factor"]
    if rope["rope_type"] != "llama3":
        return None
    low, high, scale = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    result = []
    for freq in base_freqs:
        turns = rope["original_max_position_embeddings"] * freq / (2 * math.pi)  # within the original context
        if turns > high:
            result.append(1.0)
        elif turns < low:
            result.append(scale)
        else:
            t = (turns - low) / (high - low)
            result.append(1 / ((1 - t) / scale + t))
    return result


def main() -> None:
    cases = []
    for name, (dims, base, rope, n_ctx) in CASES.items():
        freqs, factor = table(dims, base, rope, n_ctx)
        base_freqs = [base ** (-2 * p / dims) for p in range(dims // 2)]
        factors = divisors(base_freqs, rope, n_ctx)
        if factors is not None:
            for ours, theirs in zip((f / d for f, d in zip(base_freqs, factors, strict=True)), freqs, strict=True):
                if abs(ours / theirs - 1) > 2e-6:
                    raise ValueError(f"{name}: divisors give {ours}, transformers {theirs}")
        cases.append({
            "name": name,
            "dims": dims,
            "base": base,
            "scaling": "none" if rope["rope_type"] == "default" else rope["rope_type"],
            "factor": rope.get("factor", 1.0),
            "orig_ctx": rope.get("original_max_position_embeddings", n_ctx),
            "n_ctx": n_ctx,
            "beta_fast": rope.get("beta_fast", 32.0),
            "beta_slow": rope.get("beta_slow", 1.0),
            "low_freq_factor": rope.get("low_freq_factor"),
            "high_freq_factor": rope.get("high_freq_factor"),
            "attn_factor_given": rope.get("attention_factor"),
            "freq_divisors": factors,
            "freqs": freqs,
            "attn_factor": factor,
        })
    versions = {package: version(package) for package in ("torch", "transformers")}
    body = ",\n".join("  " + json.dumps(case) for case in cases)
    OUT.write_text('{"versions": ' + json.dumps(versions) + ',\n "cases": [\n' + body + "\n]}\n")


if __name__ == "__main__":
    main()
