"""What a loader has to know of a Hugging Face model class: plain data, of which arch/*/hf.py have one table each."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# GGUF part of "blk.N.PART.suffix" -> part of "layers.N.PART.suffix" in most models, and the same outside of the layers.
# An expert's number stands for "*". A GGUF name with its suffix stands for a whole name.
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_gate_up": "mlp.gate_up_proj",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate.*": "mlp.experts.*.gate_proj",
    "ffn_up.*": "mlp.experts.*.up_proj",
    "ffn_down.*": "mlp.experts.*.down_proj",
    "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}

# What a class may lack, by the ends of GGUF names; see ModelClass.parts.
QKV_BIASES = frozenset({"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"})
ATTENTION_BIASES = QKV_BIASES | {"attn_output.bias"}
FFN_BIASES = frozenset({"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"})
QK_NORMS = frozenset({"attn_q_norm.weight", "attn_k_norm.weight"})
SUB_NORMS = frozenset({"attn_sub_norm.weight", "ffn_sub_norm.weight"})
OPTIONAL = ATTENTION_BIASES | FFN_BIASES | QK_NORMS | SUB_NORMS | {"output.bias"}


@dataclass(frozen=True)
class Experts:
    """Keys of a config.json that say what experts there are."""

    count: str = "num_experts"
    alias: str | None = None                 # another key for the same
    width: str = "moe_intermediate_size"
    shared: str | None = None                # width of the expert that every token goes through; None: there is none
    normalise: str | None = None             # whether routing weights are divided by their sum; None: they are
    dense: bool = False                      # layers may have an ordinary feed-forward instead


@dataclass(frozen=True)
class ModelClass:
    """The files of one model class, and how a GGUF file says the same."""

    arch: str                                # name of the registry's row
    model_type: str                          # what files that name no class have instead
    defaults: Mapping[str, Any]              # transformers' own, of keys that a file may leave out
    names: tuple[Mapping[str, str], ...] = (NAMES,)          # as NAMES; the first is for messages, others older
    activation: str = "silu"
    variants: Mapping[str, str] = field(default_factory=dict)    # activation -> row that the class is with that one
    # what it has of OPTIONAL; and by a key, with the key's default
    parts: frozenset[str] = frozenset()
    switches: Mapping[str, tuple[bool, frozenset[str]]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()            # keys that must not be true
    layer_norm: bool = False                 # norms are LayerNorms, with biases
    # "none", "every" layer; "switched": every one with use_sliding_window; "layers": of these the listed ones, or those
    # from max_window_layers on; "alternate": or every other one up to there
    window: str = "none"
    ternary: str | None = "none"             # rule of files without a quantization_config; None: they may have none
    experts: Experts | None = None
    part_rotated: bool = False               # partial_rotary_factor may be another one than 1
    longrope: tuple[str, ...] = ()           # rope types that are LongRoPE
    rope_sections: tuple[int, ...] = ()      # pairs by text, row and column position, where a file does not say it
    # of its GGUF files alone
    gguf_arch: str | None = None             # general.architecture; None: the row's name
    gguf_ropes: tuple[str, ...] = ("default", "dynamic", "mrope", "linear", "yarn", "llama3")
    gguf_interleaved: bool = False           # pairs that turn together lie side by side in q's and k's rows
    gguf_fused: bool = False                 # q, k and v are one matrix, gate and up another, called ffn_up
    gguf_head: bool = False                  # the LM head is there even where it is the embedding
    gguf_no_window: bool = False             # a window of 0 says that there is none
    gguf_name: str = ""                      # readers know by general.name what its SentencePiece tokens do to spaces
