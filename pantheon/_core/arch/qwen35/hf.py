"""Hugging Face's classes of Qwen3.5. Defaults are those of transformers' configuration classes."""
from dataclasses import replace

from pantheon._core.load.facts import NAMES, QK_NORMS, Experts, ModelClass

SECTIONS = (11, 11, 10)
QWEN35 = NAMES | {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "post_attention_norm": "post_attention_layernorm",
}
DEFAULTS = {"max_position_embeddings": 32768, "head_dim": 256, "partial_rotary_factor": 0.25,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_key_value_heads": 4}

DENSE = ModelClass("qwen35", "qwen3_5_text", DEFAULTS, (QWEN35,), parts=QK_NORMS, refused=("attention_bias",),
                   ternary=None, part_rotated=True, rope_sections=SECTIONS)
MOE = replace(
    DENSE, arch="qwen35moe", model_type="qwen3_5_moe_text", experts=Experts(shared="shared_expert_intermediate_size"),
    defaults=DEFAULTS | {"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8,
                         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "intermediate_size": 0})

CLASSES = {
    "Qwen3_5ForCausalLM": DENSE,
    "Qwen3_5ForConditionalGeneration": replace(DENSE, model_type="qwen3_5"),
    "Qwen3_5MoeForCausalLM": MOE,
    "Qwen3_5MoeForConditionalGeneration": replace(MOE, model_type="qwen3_5_moe"),
}
