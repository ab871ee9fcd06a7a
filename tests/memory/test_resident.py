"""Resident memory: loading touches no weights, and what is read of them later is all there once, in the mapping."""
import json
import os
import struct
import subprocess
import sys
import textwrap

import gguf
import numpy as np
import pytest

SMALL = 4 << 20
N_VOCAB, N_EMBD, N_FF = 32768, 1024, 4096
SHAPES = {"token_embd": (N_VOCAB, N_EMBD), "output": (N_VOCAB, N_EMBD), "output_norm": (N_EMBD,)} | {
    f"blk.0.{name}": shape for name, shape in {
        "attn_norm": (N_EMBD,), "ffn_norm": (N_EMBD,), "attn_q": (N_EMBD, N_EMBD), "attn_k": (N_EMBD, N_EMBD),
        "attn_v": (N_EMBD, N_EMBD), "attn_output": (N_EMBD, N_EMBD), "ffn_gate": (N_FF, N_EMBD),
        "ffn_up": (N_FF, N_EMBD), "ffn_down": (N_EMBD, N_FF)}.items()}
NAMES = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm",
         "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def nbytes(shape):
    n = 4
    for size in shape:
        n *= size
    return n


def write_gguf(folder):
    """300 MB of F32 zeros that take no room on the disk."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, shape in SHAPES.items():
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32), nbytes(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, path.stat().st_size + sum(nbytes(shape) for shape in SHAPES.values()) + 4096)
    return path


def write_safetensors(folder):
    """The same as a Hugging Face folder."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": N_VOCAB,
              "hidden_size": N_EMBD, "intermediate_size": N_FF, "num_hidden_layers": 1, "num_attention_heads": 16,
              "num_key_value_heads": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
              "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in SHAPES.items():
        own = name.removeprefix("blk.0.")
        full = NAMES[own] if own == name else f"model.layers.0.{NAMES[own]}"
        header[f"{full}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + nbytes(shape)]}
        at += nbytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)                      # the data is aligned
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + at)
    return folder


@pytest.mark.parametrize("write", [write_gguf, write_safetensors])
def test_loading_leaves_the_weights_on_the_disk(tmp_path, write):
    path = write(tmp_path)
    result = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import json, sys
        import numpy as np
        import pantheon
        from pantheon._core.memory.host import host_memory
        rss = lambda: host_memory()["rss"]
        with pantheon.load(sys.argv[1], threads=1):                # what is made once is made now
            pass
        before = rss()
        with pantheon.load(sys.argv[1], threads=1) as model:
            loaded = rss()
            cost = model.cost(128, "f32", window=128)
            with model.new_state(128, "f32") as state:
                made = rss()
                logits = model.prefill(np.arange(128), state)
                used = rss()
        print(json.dumps([loaded - before, made - loaded, used - before, cost.total]))
    """), str(path)], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
    loaded, made, used, price = json.loads(result.stdout)
    assert max(loaded, made) < SMALL
    weights = sum(nbytes(shape) for shape in SHAPES.values())
    read = weights - nbytes(SHAPES["token_embd"])        # all but the rows of other tokens
    assert read < used < weights + price + SMALL
