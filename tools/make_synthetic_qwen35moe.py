"""Writes a `qwen35moe` of the 35B-A3B layer sizes with a few layers and random weights, for benchmarks.

    python tools/make_synthetic_qwen35moe.py OUT.gguf [--layers 4] [--vocab 248320] [--seed 0]

Needs numpy and gguf. Matrices are Q4_K, the LM head, ssm_out and down projections Q6_K, as in the usual Q4_K_M files;
block scales are small and random, so that activations stay finite, codes are random bytes. The router and the small
projections of the recurrent layers are F32. With 4 layers the file has about 2.4 GB. It says nothing: its vocabulary is
made of numbers, and a run of it shows speed and memory only.
"""
from __future__ import annotations

import argparse

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
N_EMBD, N_HEAD, N_KV_HEAD, HEAD_DIM = 2048, 16, 2, 256
N_K_HEAD, N_V_HEAD, STATE, TAPS = 16, 32, 128, 4
N_EXPERTS, N_USED, N_FF_EXPERT, N_FF_SHARED = 256, 8, 512, 512
CHUNK = 1 << 16  # blocks drawn at once


def blocks(rng: np.random.Generator, kind: Q, shape: tuple[int, ...]) -> np.ndarray:
    """Random blocks of one matrix or stack of matrices, uint8 (..., row bytes), whose values have a deviation near
    1/sqrt(columns)."""
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    n = int(np.prod(shape)) // block
    out = np.empty((n, block_bytes), np.uint8)
    # deviation of the codes times their sub-block scales, for a block scale of one
    at, at_min, unit = {Q.Q4_K: (0, 2, 31.5 * 4.6), Q.Q6_K: (208, None, 74.0 * 18.5)}[kind]
    for first in range(0, n, CHUNK):
        part = out[first:first + CHUNK]
        part[:] = rng.integers(0, 256, part.shape, np.uint8)
        scale = rng.uniform(0.5, 1.5, len(part)) / (unit * np.sqrt(shape[-1]))
        part[:, at:at + 2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
        if at_min is not None:  # the codes' mean, so that values are centred
            part[:, at_min:at_min + 2] = (scale * 7.5).astype("<f2").view(np.uint8).reshape(-1, 2)
    return out.reshape(*shape[:-1], shape[-1] // block * block_bytes)


def layer_tensors(recurrent: bool) -> dict[str, tuple[Q, tuple[int, ...]]]:
    """Type and shape (out, in) of each matrix of a layer."""
    values, channels = N_V_HEAD * STATE, (2 * N_K_HEAD + N_V_HEAD) * STATE
    if recurrent:
        out = {"attn_qkv": (Q.Q4_K, (channels, N_EMBD)), "attn_gate": (Q.Q4_K, (values, N_EMBD)),
               "ssm_alpha": (Q.F32, (N_V_HEAD, N_EMBD)), "ssm_beta": (Q.F32, (N_V_HEAD, N_EMBD)),
               "ssm_out": (Q.Q6_K, (N_EMBD, values))}
    else:
        out = {"attn_q": (Q.Q4_K, (2 * N_HEAD * HEAD_DIM, N_EMBD)), "attn_k": (Q.Q4_K, (N_KV_HEAD * HEAD_DIM, N_EMBD)),
               "attn_v": (Q.Q6_K, (N_KV_HEAD * HEAD_DIM, N_EMBD)), "attn_output": (Q.Q4_K, (N_EMBD, N_HEAD * HEAD_DIM))}
    return out | {
        "ffn_gate_inp": (Q.F32, (N_EXPERTS, N_EMBD)), "ffn_gate_inp_shexp": (Q.F32, (1, N_EMBD)),
        "ffn_gate_exps": (Q.Q4_K, (N_EXPERTS, N_FF_EXPERT, N_EMBD)),
        "ffn_up_exps": (Q.Q4_K, (N_EXPERTS, N_FF_EXPERT, N_EMBD)),
        "ffn_down_exps": (Q.Q6_K, (N_EXPERTS, N_EMBD, N_FF_EXPERT)),
        "ffn_gate_shexp": (Q.Q4_K, (N_FF_SHARED, N_EMBD)), "ffn_up_shexp": (Q.Q4_K, (N_FF_SHARED, N_EMBD)),
        "ffn_down_shexp": (Q.Q6_K, (N_EMBD, N_FF_SHARED)),
    }


def add_matrix(writer: gguf.GGUFWriter, rng: np.random.Generator, name: str, kind: Q, shape: tuple[int, ...]) -> None:
    if kind == Q.F32:
        array = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        writer.add_tensor(name + ".weight", array[0] if name.endswith("inp_shexp") else array)
    else:
        writer.add_tensor(name + ".weight", blocks(rng, kind, shape), raw_dtype=kind)


def add_keys(writer: gguf.GGUFWriter, n_layer: int, n_vocab: int) -> None:
    integers = {
        "context_length": 262144, "embedding_length": N_EMBD, "block_count": n_layer, "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_KV_HEAD, "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
        "rope.dimension_count": 64, "full_attention_interval": 4, "ssm.conv_kernel": TAPS, "ssm.state_size": STATE,
        "ssm.group_count": N_K_HEAD, "ssm.time_step_rank": N_V_HEAD, "ssm.inner_size": N_V_HEAD * STATE,
        "expert_count": N_EXPERTS, "expert_used_count": N_USED, "expert_feed_forward_length": N_FF_EXPERT,
        "expert_shared_feed_forward_length": N_FF_SHARED,
    }
    for key, value in integers.items():
        writer.add_uint32("qwen35moe." + key, value)
    writer.add_float32("qwen35moe.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("qwen35moe.rope.freq_base", 1e7)
    writer.add_array("qwen35moe.rope.dimension_sections", [11, 11, 10, 0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list([str(i) for i in range(n_vocab)])
    writer.add_token_types([1] * n_vocab)
    writer.add_token_merges(["1 0"])  # llama.cpp loads no vocabulary without one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=248320)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    writer = gguf.GGUFWriter(options.path, "qwen35moe", use_temp_file=True)
    add_keys(writer, options.layers, options.vocab)
    add_matrix(writer, rng, "token_embd", Q.Q4_K, (options.vocab, N_EMBD))
    add_matrix(writer, rng, "output", Q.Q6_K, (options.vocab, N_EMBD))
    writer.add_tensor("output_norm.weight", np.ones(N_EMBD, np.float32))
    for i in range(options.layers):
        recurrent = (i + 1) % 4 != 0
        prefix = f"blk.{i}."
        for name in ("attn_norm", "post_attention_norm"):
            writer.add_tensor(f"{prefix}{name}.weight", np.ones(N_EMBD, np.float32))
        for name, (kind, shape) in layer_tensors(recurrent).items():
            add_matrix(writer, rng, prefix + name, kind, shape)
        if recurrent:
            channels = (2 * N_K_HEAD + N_V_HEAD) * STATE
            writer.add_tensor(prefix + "ssm_conv1d.weight", rng.normal(0, 0.5, (channels, TAPS)).astype(np.float32))
            writer.add_tensor(prefix + "ssm_a", -np.geomspace(0.01, 4, N_V_HEAD).astype(np.float32))
            writer.add_tensor(prefix + "ssm_dt.bias", rng.normal(0, 0.5, N_V_HEAD).astype(np.float32))
            writer.add_tensor(prefix + "ssm_norm.weight", np.ones(STATE, np.float32))
        else:
            for name in ("attn_q_norm", "attn_k_norm"):
                writer.add_tensor(f"{prefix}{name}.weight", np.ones(HEAD_DIM, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
