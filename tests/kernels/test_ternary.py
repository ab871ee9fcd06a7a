"""Ternary products: exact integers at every level, and the input's codes by the models' rule."""
import numpy as np
import pytest

from pantheon._core.kernels import table
from pantheon._core.probes import ternary as probe_ternary

LEVELS = table.levels_supported()
LENGTHS = [1, 3, 31, 32, 33, 64, 100, 1023, 1024, 1025, 2560, 6912, 40000]


def rng_of(*key):
    return np.random.default_rng([sum(map(ord, str(k))) for k in key])


def random_codes(rng, n_tok, n):
    q = rng.integers(-127, 128, (n_tok, n), dtype=np.int8)
    q[-1] = np.where(rng.random(n) < 0.9, 127, -127)       # sums as large as they get
    return q


def pack_rows(weights):
    """(rows, n) of -1, 0, 1 as Hugging Face packs them: (ceil(rows / 4), n) uint8."""
    apart = -(-len(weights) // 4)
    packed = np.zeros((apart, weights.shape[1]), np.uint8)
    for row, values in enumerate(weights):
        packed[row % apart] |= (values + 1).astype(np.uint8) << (2 * (row // apart))
    return packed


def pack_i2_s(weights):
    """(rows, n) of -1, 0, 1 as the fork's x86 files have them: (rows, n / 4) uint8."""
    codes = (weights + 1).astype(np.uint8).reshape(len(weights), -1, 4, 32)
    return (codes[:, :, 0] << 6 | codes[:, :, 1] << 4 | codes[:, :, 2] << 2 | codes[:, :, 3]).reshape(len(weights), -1)


def random_weights(rng, rows, n):
    weights = rng.integers(-1, 2, (rows, n)).astype(np.int8)
    weights[0] = 1
    weights[1] = -1
    return weights


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", LENGTHS)
def test_packed_rows_are_exact(level, n):
    rng = rng_of("rows", n)
    weights = random_weights(rng, 16, n)
    codes = random_codes(rng, 3, n)
    for t in range(3):
        exact = weights.astype(np.int64) @ codes[t].astype(np.int64)
        got = probe_ternary.sums(level, "T2_ROWS", pack_rows(weights), codes, t)
        assert np.array_equal(got.T.reshape(-1), exact)     # result k of stored row r is row k * 4 + r


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [128, 256, 1024, 1152, 2560, 6912, 131072])
def test_i2_s_is_exact(level, n):
    rng = rng_of("i2_s", n)
    weights = random_weights(rng, 8, n)
    codes = random_codes(rng, 2, n)
    for t in range(2):
        exact = weights.astype(np.int64) @ codes[t].astype(np.int64)
        got = probe_ternary.sums(level, "I2_S", pack_i2_s(weights), codes, t)
        assert np.array_equal(got, np.stack([exact, exact], axis=1))


def test_i2_s_dequantises_to_its_codes():
    weights = random_weights(rng_of("dequantise"), 2, 384)
    for row, packed in zip(weights, pack_i2_s(weights), strict=True):
        assert np.array_equal(table.dequantize("ref", "I2_S", packed.tobytes(), 384), row)


@pytest.mark.parametrize("level", LEVELS)
def test_inputs_have_one_scale_a_token(level):
    rng = rng_of("input")
    f = rng.standard_normal((4, 93)).astype(np.float32) * np.float32([[1], [1e-4], [1e4], [0]])
    f[3, 7] = 3e-6                                          # below the least magnitude that counts
    q, d, sums = probe_ternary.quantize_row(level, f)
    amax = np.maximum(np.abs(f).max(axis=1, keepdims=True), np.float32(1e-5))
    assert np.array_equal(q, np.rint(f * (np.float32(127) / amax)).astype(np.int8))
    assert np.array_equal(d, (amax / np.float32(127))[:, 0])
    assert np.array_equal(sums, q.sum(axis=1, dtype=np.int32))
    assert q[0].min() == -127 or q[0].max() == 127
    assert q[3, 7] == 38


@pytest.mark.parametrize("level", LEVELS)
def test_inputs_that_are_no_numbers_give_codes(level):
    q, _, sums = probe_ternary.quantize_row(level, np.float32([[np.nan, np.inf, -np.inf, 1.0]]))
    assert np.abs(q.astype(int)).max() <= 127
    assert sums[0] == q.sum(dtype=np.int32)
