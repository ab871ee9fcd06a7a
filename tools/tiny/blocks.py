"""Weights of every GGUF block type for the quantised tiny models, and the engine's rule for its int8 inputs.

Where the gguf package has a quantiser, weights are quantised by it; for the K types, which it only decodes, blocks are
drawn at random: any byte is a valid code, and the f16 scales are chosen to give the wanted standard deviation.
"""
from __future__ import annotations

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType

# Byte offsets of the f16 scale of a K block, and of its f16 minimum scale with the ratio to the scale that centres
# the weights on zero (mean code of the type; 0 where codes are signed).
K_SCALES = {
    Q.Q2_K: (80, 82, 1.5),
    Q.Q3_K: (108, None, 0.0),
    Q.Q4_K: (0, 2, 7.5),
    Q.Q5_K: (0, 2, 15.5),
    Q.Q6_K: (208, None, 0.0),
}


def _k_blocks(kind: Q, shape: tuple[int, int], std: float, rng: np.random.Generator) -> np.ndarray:
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    at, at_min, ratio = K_SCALES[kind]
    n_blocks = shape[0] * shape[1] // block
    blocks = rng.integers(0, 256, size=(n_blocks, block_bytes), dtype=np.uint8)

    def set_scale(offset: int, values: np.ndarray) -> None:
        blocks[:, offset : offset + 2] = values.astype("<f2").view(np.uint8).reshape(n_blocks, 2)

    spread = rng.uniform(0.5, 1.5, size=n_blocks)
    for scale in (spread, None):
        if scale is None:  # second pass: the drawn codes have this deviation at unit scale
            scale = spread * (std / gguf.quants.dequantize(blocks, kind).std())
        set_scale(at, scale)
        if at_min is not None:
            set_scale(at_min, scale * ratio)
    return blocks.reshape(shape[0], -1)


def encode(weight: np.ndarray, kind: Q, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One matrix (out, in) as file bytes of type `kind` and as the float32 values that those bytes stand for.

    K types keep only the shape and the standard deviation of `weight`.
    """
    if kind in K_SCALES:
        data = _k_blocks(kind, weight.shape, float(weight.std()), rng)
    elif kind == Q.F16:
        data = weight.astype(np.float16)
        return data, data.astype(np.float32)
    else:
        data = gguf.quants.quantize(weight, kind)
    return data, gguf.quants.dequantize(data, kind).astype(np.float32)


def input_block(kind: Q) -> int:
    """Elements that share one scale in the int8 input of a matrix of type `kind`; 0 = its input stays float32."""
    if kind in (Q.F32, Q.F16, Q.BF16):
        return 0
    return gguf.GGML_QUANT_SIZES[kind][0]


def round_input(x: np.ndarray, block: int) -> np.ndarray:
    """x (..., n) float32 as int8 codes times scales; per block id = 127/amax, q = rint(x * id), d = amax/127."""
    blocks = x.reshape(-1, block)
    amax = np.abs(blocks).max(axis=1, keepdims=True)
    dead = amax < np.float32(2.0**-100)
    inverse = np.where(dead, np.float32(0), np.float32(127) / np.where(dead, np.float32(1), amax))
    codes = np.rint(blocks * inverse)
    scale = np.where(dead, np.float32(0), amax / np.float32(127))
    return (codes * scale).reshape(x.shape)
