"""Weight types: dequantised values, the exact rule of products, and every level against the reference, bit for bit."""
import ctypes
import mmap

import gguf
import numpy as np
import pytest
from support import kernel_weights as weights

from pantheon._core.kernels import table

LEVELS = table.levels_supported()
ABOVE_REF = [level for level in LEVELS if level != "ref"]
TYPES = weights.FLOATS + weights.QUANTISED


def bits(array):
    return np.asarray(array, np.float32).view(np.uint32)


def rng_of(*key):
    return np.random.default_rng([sum(map(ord, str(k))) for k in key])


def act_of(name):
    return table.type_info(name)["act"]


def test_every_type_of_the_format_is_known():
    ternary = {"I2_S", "T2_ROWS"}        # not the format's: test_ternary.py
    assert set(table.cpu_info()["types"]) == set(TYPES) | ternary
    for name in TYPES:
        info = table.type_info(name)
        assert (info["block"], info["block_bytes"]) == weights.block_size(name)
    for name in weights.FLOATS:
        assert act_of(name) == "f32"
    for name in weights.QUANTISED:
        assert act_of(name) == ("q256" if weights.block_size(name)[0] == 256 else "q32")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TYPES)
def test_dequantize_is_that_of_the_gguf_package(name, level):
    rng = rng_of(name)
    size, _ = weights.block_size(name)
    n = 37 if name in weights.FLOATS else 3 * size
    rows = weights.random_rows(rng, name, 64, n)
    expected = weights.dequantized(name, rows)
    assert np.isfinite(expected).all()
    for row, values in zip(rows, expected, strict=True):
        assert np.array_equal(bits(table.dequantize(level, name, row.tobytes(), n)), bits(values))


@pytest.mark.parametrize("level", LEVELS)
def test_dequantize_covers_all_scale_values(level):
    halves = np.arange(65536, dtype=np.uint16)
    out = table.dequantize(level, "F16", halves.tobytes(), 65536)
    expected = halves.view(np.float16).astype(np.float32)
    number = ~np.isnan(expected)
    assert np.array_equal(bits(out)[number], bits(expected)[number])
    assert np.isnan(out[~number]).all()
    out = table.dequantize(level, "BF16", halves.tobytes(), 65536)
    assert np.array_equal(bits(out)[number], (halves.astype(np.uint32) << 16)[number])
    for name, field in (("MXFP4", [0]), ("NVFP4", [0, 1, 2, 3])):
        blocks = np.full((255, weights.block_size(name)[1]), 0x21, np.uint8)  # 255 of MXFP4 is not a number
        blocks[:, field] = np.arange(255, dtype=np.uint8)[:, None]
        n = blocks.shape[0] * weights.block_size(name)[0]
        values = table.dequantize(level, name, blocks.tobytes(), n)
        assert np.array_equal(bits(values), bits(weights.dequantized(name, blocks).reshape(-1)))


@pytest.mark.parametrize("name", weights.QUANTISED)
def test_reference_follows_the_rule(name):
    rng = rng_of("rule", name)
    size, _ = weights.block_size(name)
    for n_blocks, kind in ((1, "random"), (1, "high"), (2, "swing"), (3, "random")):
        n = n_blocks * size
        rows = weights.random_rows(rng, name, 8, n)
        x = weights.activations(rng, act_of(name), n, kind)
        by8, by1 = table.matvec("ref", name, rows, n, x)
        expected = [weights.rule_quantised(name, row, x) for row in rows]
        assert np.array_equal(bits(by1), bits(expected)), (n, kind)
        assert np.array_equal(bits(by8), bits(expected)), (n, kind)


@pytest.mark.parametrize("name", weights.FLOATS)
def test_reference_follows_the_rule_of_float_weights(name):
    rng = rng_of("rule", name)
    for n in (1, 3, 7, 8, 9, 24, 31, 32, 33, 40, 63, 70, 131):
        rows = weights.random_rows(rng, name, 8, n)
        x = weights.activations(rng, "f32", n)
        values = weights.dequantized(name, rows)
        by8, by1 = table.matvec("ref", name, rows, n, x)
        expected = [weights.rule_float(row, x["f"]) for row in values]
        assert np.array_equal(bits(by1), bits(expected)), n
        assert np.array_equal(bits(by8), bits(expected)), n


@pytest.mark.parametrize("name", TYPES)
def test_reference_is_close_to_the_real_product(name):
    rng = rng_of("close", name)
    n = 1024
    rows = weights.random_rows(rng, name, 16, n)
    x = weights.activations(rng, act_of(name), n)
    values = x["f"].astype(float) if "f" in x else x["q"] * np.repeat(x["d"].astype(float), n // len(x["d"]))
    matrix = weights.dequantized(name, rows).astype(float)
    _, by1 = table.matvec("ref", name, rows, n, x)
    # The offset form of Q5_1 rounds m + 16 d, and minimums cancel: the error is relative to the sum of magnitudes.
    assert np.all(np.abs(by1 - matrix @ values) <= 1e-5 * (np.abs(matrix) @ np.abs(values)))


def at_offset(rows, offset):
    """The same rows, starting offset bytes after a multiple of 64."""
    buffer = np.empty(rows.size + 128, np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    view = buffer[start:start + rows.size].reshape(rows.shape)
    view[:] = rows
    return view


def assert_same_bits(name, rows, n, x, where):
    expected, _ = table.matvec("ref", name, rows, n, x)
    assert np.isfinite(expected).all()
    for level in ABOVE_REF:
        by8, by1 = table.matvec(level, name, rows, n, x)
        assert np.array_equal(bits(by8), bits(expected)), (level, "dot8", *where)
        assert np.array_equal(bits(by1), bits(expected)), (level, "dot1", *where)


@pytest.mark.parametrize("kind", ["random", "high", "low", "swing", "zero"])
@pytest.mark.parametrize("name", weights.QUANTISED)
def test_levels_give_the_bits_of_the_reference(name, kind):
    rng = rng_of("levels", name, kind)
    size, _ = weights.block_size(name)
    for n_blocks in (1, 2, 3, 5, 8, 17):
        n = n_blocks * size
        for offset in range(4):
            rows = at_offset(weights.random_rows(rng, name, 16, n), offset)
            assert_same_bits(name, rows, n, weights.activations(rng, act_of(name), n, kind), (n, offset))


@pytest.mark.parametrize("name", weights.FLOATS)
def test_levels_give_the_bits_of_the_reference_for_float_weights(name):
    rng = rng_of("levels", name)
    for n in [*range(1, 71), 127, 128, 129, 255, 264, 300, 576, 1001]:
        for offset in range(4):
            rows = at_offset(weights.random_rows(rng, name, 8, n), offset)
            assert_same_bits(name, rows, n, weights.activations(rng, "f32", n), (n, offset))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", weights.QUANTISED)
def test_sums_are_exact_with_power_of_two_scales(name, level):
    """All scales one and small codes: every sum is a small integer, so the product must be the true one."""
    rng = rng_of("exact", name)
    size, _ = weights.block_size(name)
    n = 512
    rows = weights.random_rows(rng, name, 8, n)
    ones = np.ones((8, n // size))
    weights.set_scales(name, rows, [ones, ones])
    x = weights.activations(rng, act_of(name), n)
    x["q"] = rng.integers(-1, 2, n).astype(np.int8)
    x["d"] = np.ones_like(x["d"])
    x["sum"] = x["q"].reshape(-1, 16).sum(1, dtype=np.int16)
    x["bsum"] = x["q"].reshape(-1, 32).sum(1, dtype=np.int32)
    if "s" in x:
        x["s"] = x["bsum"].astype(np.float32)
    matrix = weights.dequantized(name, rows).astype(np.float64)
    assert (np.abs(matrix).sum(1) < 2**21).all()  # integers, and at most eighths of them, below 2^24
    by8, by1 = table.matvec(level, name, rows, n, x)
    assert np.array_equal(by8.astype(float), matrix @ x["q"])
    assert np.array_equal(by1.astype(float), matrix @ x["q"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TYPES)
def test_nothing_outside_the_rows_is_read(name, level):
    """Rows between two pages that may not be touched: a read outside them ends the process."""
    page = mmap.PAGESIZE
    rng = rng_of("guard", name)
    n = 45 if name in weights.FLOATS else weights.block_size(name)[0]
    rows = weights.random_rows(rng, name, 8, n)
    x = weights.activations(rng, act_of(name), n)
    expected, _ = table.matvec("ref", name, rows, n, x)
    space = -(-rows.size // page) * page
    area = mmap.mmap(-1, space + 2 * page)
    memory = np.frombuffer(area, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    guards = (memory.ctypes.data, memory.ctypes.data + page + space)
    for guard in guards:
        assert protect(guard, page, 0) == 0
    try:
        for start in (page, page + space - rows.size):
            there = memory[start:start + rows.size].reshape(rows.shape)
            there[:] = rows
            for out in table.matvec(level, name, there, n, x):
                assert np.array_equal(bits(out), bits(expected))
    finally:
        for guard in guards:
            assert protect(guard, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_fast_level_has_its_own_functions_for_every_type():
    if "avx2" not in table.levels_built():
        assert "avx2" not in LEVELS
        return
    if "avx2" in LEVELS:
        assert {table.type_info(name, "avx2")["level"] for name in TYPES} == {"avx2"}
    assert {table.type_info(name, "ref")["level"] for name in TYPES} == {"ref"}


def test_sizes_are_those_of_the_gguf_package():
    for name in TYPES:
        kind = gguf.GGMLQuantizationType.__members__.get(name)
        if kind in gguf.GGML_QUANT_SIZES:
            info = table.type_info(name)
            assert (info["block"], info["block_bytes"]) == tuple(gguf.GGML_QUANT_SIZES[kind])


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="avx1024"):
        table.type_info("Q4_0", "avx1024")
    with pytest.raises(ValueError, match="Q9_9"):
        table.type_info("Q9_9")
    with pytest.raises(ValueError, match="17 bytes are not 32 elements of Q4_0"):
        table.dequantize("ref", "Q4_0", bytes(17), 32)
    with pytest.raises(ValueError, match="multiple of 8"):
        table.matvec("ref", "Q4_0", np.zeros((7, 18), np.uint8), 32, {})
