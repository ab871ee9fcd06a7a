"""Builds safetensors files byte by byte, correct ones and, for the hostile tests, any others; and tiny HF folders."""
import json
import struct

import numpy as np

DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "uint8": "U8", "int8": "I8", "int32": "I32",
          "int64": "I64", "uint16": "BF16"}            # bfloat16 as its bits


def raw(header, data=b"", length=None):
    """A file with this header (dict or bytes) and data section; the length may lie."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def safetensors(tensors, metadata=None):
    """A whole file of {name: array}; uint16 arrays are the bits of BF16."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, array in sorted(tensors.items(), key=lambda item: -item[1].itemsize):     # wide ones first: aligned
        values = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    return raw(header, data)


def hf_folder(folder, config, tensors):
    """Writes config.json and model.safetensors; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder


# a one-layer Llama, zeros but for the norms
CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 6, "hidden_size": 8, "intermediate_size": 12,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
          "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
SHAPES = {
    "model.embed_tokens.weight": (6, 8), "model.norm.weight": (8,), "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8), "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.weight": (4, 8), "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.post_attention_layernorm.weight": (8,), "model.layers.0.mlp.gate_proj.weight": (12, 8),
    "model.layers.0.mlp.up_proj.weight": (12, 8), "model.layers.0.mlp.down_proj.weight": (8, 12),
}


def tiny_tensors(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
