"""Random weight rows, quantised inputs, and the product rule evaluated exactly, for the tests of the weight types."""
from fractions import Fraction

import gguf
import numpy as np

# f16 fields of a block (byte offsets): the scale, then the minimum where the type has one
F16_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
    "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0],
}
FLOATS = ["F32", "F16", "BF16"]
QUANTISED = [*F16_FIELDS, "IQ1_M", "MXFP4", "NVFP4"]

# constant factor that joins the scale, so that codes times integer scales are integers
FACTOR = {"IQ2_XXS": 0.125, "IQ2_XS": 0.125, "IQ2_S": 0.125, "IQ3_XXS": 0.25, "IQ1_S": 0.125, "IQ1_M": 0.125}
# elements that share one float scale, where that is less than a block
SUB = {"NVFP4": 16, "Q1_0": 32, "Q2_0": 32}


def block_size(name):
    """(elements, bytes) of a block."""
    return {"Q1_0": (128, 18), "Q2_0": (64, 18)}.get(name) or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def dequantized(name, rows):
    """(n_rows, row_bytes) uint8 -> (n_rows, n) float32, by the gguf package (by definition where it lacks a type)."""
    if name in ("Q1_0", "Q2_0"):
        blocks = rows.reshape(-1, 18)
        d = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
        bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32)
        codes = 2 * bits - 1 if name == "Q1_0" else bits[:, 0::2] + 2 * bits[:, 1::2] - 1
        return (d * codes).reshape(len(rows), -1)
    return gguf.quants.dequantize(np.ascontiguousarray(rows), gguf.GGMLQuantizationType[name]).reshape(len(rows), -1)


def set_scales(name, rows, values):
    """Overwrites the scale fields of every block; values[f] is an f16 array (n_rows, n_blocks) for field f."""
    blocks = rows.reshape(len(rows), -1, block_size(name)[1])
    for offset, value in zip(F16_FIELDS.get(name, []), values, strict=False):
        blocks[:, :, offset:offset + 2] = value.astype(np.float16)[..., None].view(np.uint8)
    if name == "IQ1_M":
        bits = values[0].astype(np.float16).view(np.uint16).astype(int)
        for i in range(4):
            byte = blocks[:, :, 49 + 2 * i]
            byte[:] = byte & 15 | (bits >> 4 * i & 15) << 4
    if name == "MXFP4":
        blocks[:, :, 0] = 128 + np.log2(np.abs(values[0].astype(float))).round()
    if name == "NVFP4":
        # 2^k as an unsigned 8-bit float, halved: exponent 8 is one
        blocks[:, :, :4] = ((np.log2(np.abs(values[0].astype(float))).round().clip(-7, 7) + 8) * 8)[..., None]


def random_rows(rng, name, n_rows, n):
    """(n_rows, row_bytes) uint8: random codes with finite scales; the first rows have extreme code bytes."""
    size, nbytes = block_size(name)
    if name in FLOATS:
        values = rng.standard_normal((n_rows, n)).astype(np.float32)
        if name == "F16":
            values = values.astype(np.float16)
        elif name == "BF16":
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.view(np.uint8).reshape(n_rows, -1)
    n_blocks = n // size
    rows = rng.integers(0, 256, (n_rows, n_blocks * nbytes), dtype=np.uint8)
    for r, byte in enumerate((0xFF, 0x00, 0x80, 0x7F, 0x88)):
        if r + 1 < n_rows:
            rows[r] = byte
    shape = (n_rows, n_blocks)
    scale = rng.uniform(2.0**-10, 2.0**-4, shape) * rng.choice([-1, 1], shape)
    scale[rng.random(shape) < 0.05] = 2.0**-20  # a subnormal half
    set_scales(name, rows, [scale, rng.uniform(-0.1, 0.1, shape)])
    return rows


def random_codes(rng, kind, n):
    """int8 codes in [-127, 127]: "random", or one of the extremes "high", "low", "swing", "zero"."""
    if kind == "random":
        return rng.integers(-127, 128, n).astype(np.int8)
    if kind == "swing":
        return np.where(np.arange(n) // rng.integers(1, 40) % 2, 127, -127).astype(np.int8)
    return np.full(n, {"high": 127, "low": -127, "zero": 0}[kind], np.int8)


def activations(rng, act, n, kind="random"):
    """The arrays of pn_act for one input vector of n elements whose codes are of this kind."""
    if act == "f32":
        return {"f": rng.standard_normal(n).astype(np.float32)}
    q = random_codes(rng, kind, n)
    block = 32 if act == "q32" else 256
    d = rng.uniform(1e-4, 1e-1, n // block).astype(np.float32)
    bsum = q.reshape(-1, 32).sum(1, dtype=np.int32)
    x = {"q": q, "d": d, "sum": q.reshape(-1, 16).sum(1, dtype=np.int16), "bsum": bsum}
    if act == "q32":
        x["s"] = d * bsum.astype(np.float32)
    return x


def round_f32(value):
    """The float32 nearest to a Fraction, ties to even (subnormals and overflow are not needed here)."""
    near = np.float32(float(value))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.uint32)) & 1))


def fma(a, b, c):
    return round_f32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def rule_float(weights, x):
    """F32, F16, BF16, (n,) each: 32 running sums, a fixed tree, the last n % 8 elements in order."""
    whole = len(x) // 8 * 8
    acc = [np.float32(0)] * 32
    for i in range(whole):
        acc[i % 32] = fma(weights[i], x[i], acc[i % 32])
    v = [(acc[j] + acc[8 + j]) + (acc[16 + j] + acc[24 + j]) for j in range(8)]
    u = [v[j] + v[4 + j] for j in range(4)]
    total = (u[0] + u[2]) + (u[1] + u[3])
    for i in range(whole, len(x)):
        total = fma(weights[i], x[i], total)
    return total


def rule_quantised(name, row, x):
    """The rule of docs/numerics.md for one row (row_bytes,) uint8, with exact integers and correctly rounded fma.

    The integers are those of the gguf package: the row dequantised with scale 1 and minimum 0, then 0 and 1.
    """
    size, nbytes = block_size(name)
    n_blocks = len(row) // nbytes
    one, zero = np.ones((1, n_blocks)), np.zeros((1, n_blocks))
    copy = row[None].copy()
    set_scales(name, copy, [one, zero])
    factor = FACTOR.get(name, 1.0)
    codes = (dequantized(name, copy)[0] / np.float32(factor)).astype(np.int64)
    assert np.array_equal(codes * factor, dequantized(name, copy)[0]), "not integers"
    has_min = len(F16_FIELDS.get(name, [])) == 2
    if has_min:
        set_scales(name, copy, [zero, one])
        mins = dequantized(name, copy)[0].astype(np.int64)  # minus m_j for K types, 1 for the others
    blocks = row.reshape(n_blocks, nbytes)
    xq = x["q"].astype(np.int64)
    super_block = size == 256
    sub = SUB.get(name, size)
    acc = np.float32(0)
    for i in range(0, n_blocks * size, sub):
        block, part = blocks[i // size], slice(i, i + sub)
        if name == "MXFP4":
            d = np.float32(2.0 ** (int(block[0]) - 128))
        elif name == "NVFP4":
            d = np.float32(gguf.quants.NVFP4.ue4m3_to_fp32(block[i % 64 // 16:][:1])[0])
        elif name == "IQ1_M":
            d = np.array([sum(int(block[49 + 2 * k]) >> 4 << 4 * k for k in range(4))], np.uint16).view(np.float16)[0]
            d = np.float32(d) * np.float32(factor)
        else:
            fields = [np.float32(block[o:o + 2].copy().view(np.float16)[0]) for o in F16_FIELDS[name]]
            d = fields[0] * np.float32(factor)
        dx = x["d"][i // (256 if super_block else 32)]
        c = codes[part]
        m = fields[1] if has_min else None
        if name == "Q5_1":
            c = c - 16
            m = fma(16, d, m)
        acc = fma(d * dx, np.float32(int(c @ xq[part])), acc)
        if has_min and super_block:
            acc = fma(-(m * dx), np.float32(int(-mins[part] @ xq[part])), acc)
        elif has_min:
            acc = fma(x["s"][i // 32], m, acc)
    return acc
