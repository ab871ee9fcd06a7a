"""What each tiny model is: a Hugging Face configuration, its GGUF spelling, and the changes its logits must notice."""
from __future__ import annotations

from dataclasses import dataclass, field

import gguf
from transformers import (
    BitNetConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from . import qwen35

Q = gguf.GGMLQuantizationType


@dataclass
class Recipe:
    """One fixture. `notice` maps the name of a mistake to the configuration fields that make it: the reference logits
    with those fields must differ clearly, else the fixture could not catch the mistake."""

    name: str
    config: object
    arch: str
    why: str
    seed: int
    pre: str = "gpt-2"
    notice: dict[str, dict] = field(default_factory=dict)
    types: dict[str, Q] = field(default_factory=dict)  # GGUF tensor name (or its last part) -> type; F32 when absent
    fused_qkv: bool = False
    experts: str = "stacked"  # or "fused": gate and up in one tensor, or "split": one tensor per expert
    short: int = 0  # LongRoPE: also store logits of the first tokens for a state of this many positions
    omit: frozenset[str] = frozenset()  # keys left to their defaults
    notice_weights: dict[str, object] = field(default_factory=dict)  # mistake -> its weights, from (state, config)
    n_mtp: int = 0  # drafting blocks behind the layers
    n_long: int = 0  # length of a second prompt, of which only some positions' logits are kept


def _rope(kind: str = "default", theta: float = 10000.0, **fields) -> dict:
    return {"rope_type": kind, "rope_theta": theta, **fields}


def _sizes(**changes) -> dict:
    sizes = {
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "rope_parameters": _rope(),
    }
    return sizes | changes


_SMALL = {"hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1,
          "tie_word_embeddings": True}

YARN = {"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
def _longrope(long: float) -> dict:
    return _rope("longrope", short_factor=[1.0 + 0.05 * p for p in range(6)],
                 long_factor=[1.5 + long * p for p in range(6)], partial_rotary_factor=0.75)


def no_sub_norms(state: dict, config) -> dict:
    """The mistake of leaving BitNet's inner norms without their weights."""
    return {name: value * 0 + 1 if name.endswith("sub_norm.weight") else value for name, value in state.items()}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

RECIPES = [
    Recipe(
        "llama3", LlamaConfig(**_sizes(intermediate_size=56, rope_parameters=_rope("llama3", **LLAMA3))), "llama",
        "grouped heads, Llama-3 rope scaling as rope_freqs.weight, separate LM head, n_ff not a multiple of 32", 1,
        notice={"no rope scaling": {"rope_parameters": _rope()},
                "high_freq_factor ignored": {"rope_parameters": _rope("llama3", **LLAMA3 | {"high_freq_factor": 2.0})}},
    ),
    Recipe(
        "llama-half", LlamaConfig(**_sizes(num_key_value_heads=4, tie_word_embeddings=True)),
        "llama",
        "tied embeddings, as many KV heads as heads and the keys that say so left out, F16 and BF16 matrices", 2,
        types={"token_embd": Q.F16, "attn_q": Q.BF16, "attn_k": Q.F16, "attn_v": Q.BF16, "attn_output": Q.F16,
               "ffn_gate": Q.F16, "ffn_up": Q.BF16, "ffn_down": Q.BF16},
        omit=frozenset({"attention.head_count_kv", "attention.key_length", "attention.value_length",
                        "rope.dimension_count", "rope.freq_base", "vocab_size"}),
    ),
    Recipe(
        "llama-fused-bias",
        LlamaConfig(**_sizes(**_SMALL, attention_bias=True, mlp_bias=True,
                             rope_parameters=_rope("linear", factor=4.0))), "llama",
        "attn_qkv in one tensor, a bias on every matrix of a layer, linear rope scaling", 3, fused_qkv=True,
        notice={"no rope scaling": {"rope_parameters": _rope()}},
    ),
    Recipe(
        "mistral-window",
        MistralConfig(**_sizes(hidden_size=48, intermediate_size=56, head_dim=24, sliding_window=16, rms_norm_eps=1e-2,
                               tie_word_embeddings=True, rope_parameters=_rope(theta=1e6))), "llama",
        "head_dim 24 where n_embd/n_head is 12, sliding window of 16 positions, large norm eps, rope base 1e6", 5,
        notice={"no window": {"sliding_window": None}, "window one short": {"sliding_window": 15},
                "window one long": {"sliding_window": 17}, "eps ignored": {"rms_norm_eps": 1e-5},
                "rope base ignored": {"rope_parameters": _rope()}},
    ),
    Recipe(
        "qwen2",
        Qwen2Config(**_sizes(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, intermediate_size=40,
                             tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=_rope(theta=1e6))), "qwen2",
        "NEOX rope, biases on q, k and v, one KV head, tied embeddings", 6, pre="qwen2",
    ),
    Recipe(
        "qwen2-yarn",
        Qwen2Config(**_sizes(**_SMALL, vocab_size=296, rope_parameters=_rope(**YARN, beta_fast=1.0, beta_slow=0.25))),
        "qwen2", "YaRN with its own beta_fast and beta_slow; eight more logits than the vocabulary has tokens", 7,
        pre="qwen2",
        notice={"default betas": {"rope_parameters": _rope(**YARN)}, "no rope scaling": {"rope_parameters": _rope()},
                "attention factor ignored": {"rope_parameters": _rope(
                    **YARN, beta_fast=1.0, beta_slow=0.25, attention_factor=1.0)}},
    ),
    Recipe(
        "qwen3",
        Qwen3Config(**_sizes(hidden_size=48, intermediate_size=40, num_attention_heads=8, head_dim=16,
                             tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=_rope(theta=1e6))), "qwen3",
        "norms of q and k per head, eight heads of 16 on 48, four heads a KV head", 8, pre="qwen2",
    ),
    Recipe(
        "mixtral",
        MixtralConfig(**_sizes(**_SMALL | {"intermediate_size": 24}, num_local_experts=8, num_experts_per_tok=2,
                               sliding_window=None)),
        "llama", "eight experts, two of them used, stacked", 11,
        notice={"one expert too few": {"num_experts_per_tok": 1}, "one expert too many": {"num_experts_per_tok": 3}},
    ),
    Recipe(
        "mixtral-split",
        MixtralConfig(**_sizes(**_SMALL, num_local_experts=4, num_experts_per_tok=3, sliding_window=None)),
        "llama", "one tensor per expert, as in files of early 2024", 12, experts="split",
    ),
    Recipe(
        "qwen2moe",
        Qwen2MoeConfig(**_sizes(**_SMALL | {"intermediate_size": 56}, moe_intermediate_size=20,
                                shared_expert_intermediate_size=44, num_experts=8, num_experts_per_tok=3,
                                norm_topk_prob=False, rms_norm_eps=1e-6)),
        "qwen2moe", "a shared expert behind a gate, weights that do not add up to one, biases on q, k and v", 13,
        pre="qwen2",
        notice={"weights add up to one": {"norm_topk_prob": True}, "one expert too many": {"num_experts_per_tok": 4}},
    ),
    Recipe(
        "qwen3moe",
        Qwen3MoeConfig(**_sizes(hidden_size=32, intermediate_size=40, num_attention_heads=4, head_dim=16,
                                tie_word_embeddings=True, moe_intermediate_size=24, num_experts=8,
                                num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[0], rms_norm_eps=1e-6)),
        "qwen3moe", "a dense layer before one of experts, gate and up of all experts in one tensor, norms of q and k",
        14, pre="qwen2", experts="fused",
        notice={"weights do not add up to one": {"norm_topk_prob": False}},
    ),
    Recipe(
        "phi2",
        PhiConfig(**_sizes(vocab_size=296, hidden_size=32, intermediate_size=72, num_attention_heads=2,
                           num_key_value_heads=2, layer_norm_eps=1e-2, hidden_act="gelu_new",
                           rope_parameters=_rope(partial_rotary_factor=0.5))), "phi2",
        "attention beside the feed-forward, LayerNorm, biases everywhere, half of each head rotated", 15,
        notice={"all of a head rotated": {"rope_parameters": _rope(partial_rotary_factor=1.0)},
                "eps ignored": {"layer_norm_eps": 1e-6}},
    ),
    Recipe(
        "phi3",
        Phi3Config(**_sizes(hidden_size=32, intermediate_size=40, num_attention_heads=2, num_key_value_heads=2,
                            tie_word_embeddings=True, sliding_window=24)), "phi3",
        "qkv in one tensor, gate and up in one, sliding window of 24 positions", 16,
        notice={"no window": {"sliding_window": None}},
    ),
    Recipe(
        "phi3-longrope",
        Phi3Config(**_sizes(hidden_size=32, intermediate_size=40, num_attention_heads=2, num_key_value_heads=1,
                            original_max_position_embeddings=48, rope_parameters=_longrope(0.75))), "phi3",
        "LongRoPE on three quarters of each head, with the short and the long factors; one KV head", 17, short=48,
        notice={"other long factors": {"rope_parameters": _longrope(0.5)},
                "attention factor ignored": {"rope_parameters": _longrope(0.75) | {"attention_factor": 1.0}}},
    ),
    Recipe(
        "moe-blocks",
        Qwen2MoeConfig(**_sizes(hidden_size=256, intermediate_size=64, num_attention_heads=1, num_key_value_heads=1,
                                head_dim=32, tie_word_embeddings=True, moe_intermediate_size=32,
                                shared_expert_intermediate_size=32, num_experts=3, num_experts_per_tok=2,
                                norm_topk_prob=True, rms_norm_eps=1e-6)),
        "qwen2moe", "quantised experts, with types that read the input in one, two or three forms; the key for "
        "weights that add up to one", 18, pre="qwen2",
        types={"token_embd": Q.Q4_0, "attn_q": Q.Q4_0, "attn_k": Q.Q4_0, "attn_v": Q.Q5_1, "attn_output": Q.Q4_1,
               "blk.0.ffn_gate_exps": Q.Q4_K, "blk.0.ffn_up_exps": Q.Q6_K, "blk.0.ffn_down_exps": Q.Q4_0,
               "blk.0.ffn_gate_shexp": Q.Q3_K, "blk.0.ffn_up_shexp": Q.Q4_1, "blk.0.ffn_down_shexp": Q.Q8_0,
               "blk.1.ffn_gate_exps": Q.Q5_0, "blk.1.ffn_up_exps": Q.Q5_K, "blk.1.ffn_down_exps": Q.Q5_1,
               "blk.1.ffn_gate_shexp": Q.F16, "blk.1.ffn_up_shexp": Q.Q5_0, "blk.1.ffn_down_shexp": Q.Q5_0},
    ),
    Recipe(
        "bitnet",
        BitNetConfig(**_sizes(**_SMALL, hidden_act="silu", rope_parameters=_rope(theta=5e5))), "bitnet",
        "norms of what the output matrices read, NEOX rope, SiLU", 19,
        notice={"squared ReLU": {"hidden_act": "relu2"}, "rope base ignored": {"rope_parameters": _rope()}},
        notice_weights={"no norms inside": no_sub_norms},
    ),
    Recipe(
        "bitnet-b1.58",
        BitNetConfig(**_sizes(hidden_size=48, intermediate_size=56, num_attention_heads=6,
                              tie_word_embeddings=True, hidden_act="relu2")), "bitnet-b1.58",
        "the same with squared ReLU; three heads a KV head", 20,
        notice={"SiLU": {"hidden_act": "silu"}},
    ),
    Recipe(
        "llama-blocks32",
        LlamaConfig(**_sizes(hidden_size=96, intermediate_size=160, head_dim=32)), "llama",
        "the types with blocks of 32, and one F16 and one BF16 matrix", 9,
        types={"token_embd": Q.Q8_0, "output": Q.Q5_1,
               "blk.0.attn_q": Q.Q4_0, "blk.0.attn_k": Q.Q4_1, "blk.0.attn_v": Q.Q5_0, "blk.0.attn_output": Q.Q5_1,
               "blk.0.ffn_gate": Q.Q4_1, "blk.0.ffn_up": Q.Q4_0, "blk.0.ffn_down": Q.Q8_0,
               "blk.1.attn_q": Q.Q8_0, "blk.1.attn_k": Q.F16, "blk.1.attn_v": Q.BF16, "blk.1.attn_output": Q.Q4_1,
               "blk.1.ffn_gate": Q.Q5_0, "blk.1.ffn_up": Q.Q5_1, "blk.1.ffn_down": Q.Q4_0},
    ),
    Recipe(
        "llama-blocks256",
        LlamaConfig(**_sizes(hidden_size=256, intermediate_size=512, num_hidden_layers=1, head_dim=64,
                             num_key_value_heads=1, tie_word_embeddings=True)), "llama",
        "the K types, all in one layer, tied Q6_K embeddings", 10,
        types={"token_embd": Q.Q6_K, "attn_q": Q.Q2_K, "attn_k": Q.Q5_K, "attn_v": Q.Q6_K,
               "attn_output": Q.Q3_K, "ffn_gate": Q.Q4_K, "ffn_up": Q.Q5_K, "ffn_down": Q.Q4_K},
    ),
    Recipe(
        "qwen35", qwen35.config(tie_word_embeddings=True), "qwen35",
        "Gated DeltaNet with three value heads a key head, gated attention every fourth layer, a quarter of head_dim "
        "32 rotated, heads that forget and heads that remember", 11, pre="qwen35", n_long=512,
        notice={"all dimensions rotated": {"rope_parameters": {
                    "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
                    "mrope_section": [2, 1, 1]}},
                "rope base ignored": {"rope_parameters": {
                    "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                    "mrope_section": [2, 1, 1]}}},
        notice_weights={"grouped value heads": qwen35.untiled, "gates after all queries": qwen35.flat_gate},
    ),
    Recipe(
        "qwen35moe",
        qwen35.config(moe=True, num_hidden_layers=4, linear_num_value_heads=4, linear_key_head_dim=24, head_dim=64,
                      linear_conv_kernel_dim=3, num_key_value_heads=1,
                      layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"]),
        "qwen35moe",
        "twelve experts of which three are used, a wider shared expert behind its gate, a list of the recurrent "
        "layers, a drafting block behind the layers, three taps, key heads wider than value heads", 12,
        pre="qwen35", n_mtp=1, n_long=512,
        notice={"two experts used": {"num_experts_per_tok": 2}, "four experts used": {"num_experts_per_tok": 4}},
        notice_weights={"grouped value heads": qwen35.untiled, "gates after all queries": qwen35.flat_gate},
    ),
]
