"""Hugging Face's classes of the transformer family. Defaults are those of transformers' configuration classes."""
from pantheon._core.load.facts import (
    ATTENTION_BIASES,
    FFN_BIASES,
    NAMES,
    QK_NORMS,
    QKV_BIASES,
    SUB_NORMS,
    Experts,
    ModelClass,
)

NAMES_OF_OLDER_CODE = {"attn_sub_norm": "self_attn.inner_attn_ln", "ffn_sub_norm": "mlp.ffn_layernorm"}
LLAMA = (NAMES, NAMES_OF_OLDER_CODE)
MIXTRAL = (NAMES | {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate.*": "block_sparse_moe.experts.*.w1",
    "ffn_up.*": "block_sparse_moe.experts.*.w3",
    "ffn_down.*": "block_sparse_moe.experts.*.w2",
}, NAMES)
PHI = (NAMES | {
    "output_norm": "final_layernorm",
    "attn_output": "self_attn.dense",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
},)

BY_ATTENTION_BIAS = {"attention_bias": (False, ATTENTION_BIASES)}
UNSCALED = ("default", "dynamic", "mrope")

CLASSES = {
    "LlamaForCausalLM": ModelClass(
        "llama", "llama", {"max_position_embeddings": 2048}, LLAMA, gguf_interleaved=True,
        switches=BY_ATTENTION_BIAS | {"mlp_bias": (False, FFN_BIASES)}),
    "MistralForCausalLM": ModelClass(
        "mistral", "mistral",
        {"max_position_embeddings": 131072, "sliding_window": 4096, "num_key_value_heads": 8}, LLAMA,
        window="every", gguf_arch="llama", gguf_interleaved=True),
    "Qwen2ForCausalLM": ModelClass(
        "qwen2", "qwen2",
        {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
        LLAMA, parts=QKV_BIASES, window="layers"),
    "Qwen3ForCausalLM": ModelClass(
        "qwen3", "qwen3",
        {"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096,
         "max_window_layers": 28},
        LLAMA, parts=QK_NORMS, switches=BY_ATTENTION_BIAS, window="layers"),
    "MixtralForCausalLM": ModelClass(
        "mixtral", "mixtral",
        {"max_position_embeddings": 131072, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "num_local_experts": 8,
         "num_experts_per_tok": 2, "rope_theta": 1e6},
        MIXTRAL, window="every", ternary=None, gguf_arch="llama", gguf_interleaved=True,
        experts=Experts("num_local_experts", "num_experts", "intermediate_size")),
    "Qwen2MoeForCausalLM": ModelClass(
        "qwen2moe", "qwen2_moe",
        {"max_position_embeddings": 32768, "num_key_value_heads": 16, "sliding_window": 4096, "max_window_layers": 28,
         "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
         "shared_expert_intermediate_size": 5632},
        LLAMA, switches={"qkv_bias": (True, QKV_BIASES)}, window="alternate", ternary=None, gguf_head=True,
        experts=Experts(shared="shared_expert_intermediate_size", normalise="norm_topk_prob", dense=True)),
    "Qwen3MoeForCausalLM": ModelClass(
        "qwen3moe", "qwen3_moe",
        {"max_position_embeddings": 32768, "num_key_value_heads": 4, "sliding_window": 4096, "num_experts": 128,
         "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        LLAMA, parts=QK_NORMS, switches=BY_ATTENTION_BIAS, window="switched", ternary=None,
        experts=Experts(alias="num_local_experts", normalise="norm_topk_prob", dense=True)),
    "PhiForCausalLM": ModelClass(
        "phi2", "phi",
        {"max_position_embeddings": 2048, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5,
         "partial_rotary_factor": 0.5},
        PHI, "gelu_new", parts=ATTENTION_BIASES | FFN_BIASES | {"output.bias"}, layer_norm=True, ternary=None,
        part_rotated=True, gguf_ropes=(*UNSCALED, "linear"), gguf_head=True),
    "Phi3ForCausalLM": ModelClass(
        "phi3", "phi3",
        {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
        LLAMA, window="every", ternary=None, part_rotated=True,
        longrope=("longrope", "su", "yarn"),                 # its first files had other words for it
        gguf_ropes=(*UNSCALED, "longrope", "su"), gguf_fused=True, gguf_no_window=True, gguf_name="Phi-3"),
    "BitNetForCausalLM": ModelClass(
        "bitnet-b1.58", "bitnet",
        {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "num_key_value_heads": 5, "hidden_act": "relu2",
         "rope_theta": 500000.0},
        LLAMA, "relu2", {"silu": "bitnet"}, parts=SUB_NORMS, switches=BY_ATTENTION_BIAS),
    "BitnetForCausalLM": ModelClass(
        "bitnet", "", {"max_position_embeddings": 2048}, LLAMA, parts=SUB_NORMS, switches=BY_ATTENTION_BIAS,
        ternary="online"),
}
