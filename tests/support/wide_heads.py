"""GGUF fixtures whose heads are wide enough for quantised caches, which need a head_dim of whole blocks of 32.

The tiny models have heads of 8 to 24, and a state that is asked for a q8_0 cache then has an f16 one. Here their
attention matrices are drawn anew for heads of 64; everything else stays. There is no golden for them: what holds for
every model holds for these.
"""
from __future__ import annotations

import gguf
import numpy as np

BLOCK, HEAD_DIM = 32, 64


def widened(path, out):
    """Path of a model like the file at path with wide heads: the file itself, where it has them, or out."""
    reader = gguf.GGUFReader(path)
    keys = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    arch = keys.pop("general.architecture").contents()

    def number(name, default=None):
        return keys[f"{arch}.{name}"].contents() if f"{arch}.{name}" in keys else default

    n_head, n_embd = number("attention.head_count"), number("embedding_length")
    n_kv_head = number("attention.head_count_kv", n_head)
    head_dim = number("attention.key_length", n_embd // n_head)
    if head_dim % BLOCK == 0:
        return path
    rope_dims = number("rope.dimension_count", head_dim) * HEAD_DIM // head_dim
    rows = {"attn_q": n_head, "attn_k": n_kv_head, "attn_v": n_kv_head, "attn_qkv": n_head + 2 * n_kv_head,
            "attn_sub_norm": n_head, "attn_q_norm": 1, "attn_k_norm": 1}
    wide = {f"{arch}.attention.key_length": HEAD_DIM, f"{arch}.attention.value_length": HEAD_DIM,
            f"{arch}.rope.dimension_count": rope_dims}
    writer = gguf.GGUFWriter(out, arch)
    for name, field in keys.items():
        if name not in wide:
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1])
    for name, value in wide.items():
        writer.add_uint32(name, value)
    rng = np.random.default_rng(21)
    for tensor in reader.tensors:
        stem, suffix = tensor.name.rsplit(".", 1)
        part = stem.rsplit(".", 1)[-1]
        if part.startswith("rope_f"):                    # factors of the frequencies, one a pair
            at = np.linspace(0, 1, rope_dims // 2)
            values = np.interp(at, np.linspace(0, 1, len(tensor.data)), tensor.data)
        elif part.endswith("norm") and part in rows:
            values = 1 + 0.2 * rng.standard_normal(rows[part] * HEAD_DIM)
        elif part in rows and suffix == "bias":
            values = 0.5 * rng.standard_normal(rows[part] * HEAD_DIM)
        elif part in rows or (part == "attn_output" and suffix == "weight"):
            shape = (rows[part] * HEAD_DIM, n_embd) if part in rows else (n_embd, n_head * HEAD_DIM)
            values = 1.2 * rng.standard_normal(shape) / shape[1] ** 0.5
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
