"""The model classes that have a GGUF form: their architecture, and their defaults of keys that a file may leave out.

Defaults are those of transformers' configuration classes.
"""

from __future__ import annotations

from typing import Any

from pantheon._core.load.config_hf import CLASSES as IN_PLACE

_QWEN35 = {
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 256, "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip
_QWEN35_DENSE = _QWEN35 | {"num_key_value_heads": 4}
_QWEN35_MOE = _QWEN35 | {
    "num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}  # fmt: skip

# class -> (architecture, defaults). Those that the engine reads from safetensors too are listed there; what it calls
# Mistral is Llama with a window in GGUF.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    name: ("llama" if arch == "mistral" else arch, defaults) for name, (arch, defaults) in IN_PLACE.items()
} | {
    "MixtralForCausalLM": ("llama", {
        "max_position_embeddings": 131072, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "num_local_experts": 8, "num_experts_per_tok": 2}),
    "Qwen2MoeForCausalLM": ("qwen2moe", {
        "max_position_embeddings": 32768, "num_key_value_heads": 16, "sliding_window": 4096, "max_window_layers": 28,
        "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632}),
    "Qwen3MoeForCausalLM": ("qwen3moe", {
        "max_position_embeddings": 32768, "num_key_value_heads": 4, "sliding_window": 4096, "max_window_layers": 28,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}),
    "PhiForCausalLM": ("phi2", {
        "max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        "hidden_act": "gelu_new"}),
    "Phi3ForCausalLM": ("phi3", {
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}),
    "Qwen3_5ForCausalLM": ("qwen35", _QWEN35_DENSE),
    "Qwen3_5ForConditionalGeneration": ("qwen35", _QWEN35_DENSE),
    "Qwen3_5MoeForCausalLM": ("qwen35moe", _QWEN35_MOE),
    "Qwen3_5MoeForConditionalGeneration": ("qwen35moe", _QWEN35_MOE),
}  # fmt: skip

# Spellings of the activation that an architecture has; SiLU where none is listed.
ACTIVATIONS = {"phi2": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "bitnet-b1.58": ("relu2",)}
SILU = ("silu", "swish")


NO_RWKV = "RWKV models are converted from a folder with their safetensors file and vocabulary, without config.json"
