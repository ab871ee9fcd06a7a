"""KV stores and tiled attention of every level: against numpy, and bit for bit against the reference and itself."""
import numpy as np
import pytest

from pantheon._core.kernels import table
from pantheon._core.probes import floats as probe

LEVELS = table.levels_supported()
KINDS = ["f16", "f32", "q8_0", "q4_0"]


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32)


def round_q8_0(x):
    """Codes (…, 32) and f16 scales of the last axis in blocks of 32."""
    x = x.reshape(*x.shape[:-1], -1, 32)
    d = np.abs(x).max(-1) / np.float32(127)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d > 0)
    v = x * inverse[..., None]
    q = np.trunc(v) + np.where(np.abs(v - np.trunc(v)) >= 0.5, np.sign(v), 0)
    return q.astype(np.int8), d.astype(np.float16)


def round_q4_0(x):
    x = x.reshape(*x.shape[:-1], -1, 32)
    m = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
    d = m / np.float32(-8)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    return np.minimum(15, (x * inverse[..., None] + np.float32(8.5)).astype(np.int32)), d.astype(np.float16)


def rounded(kind, x):
    """What a cache of this kind gives back for x (…, D), in float32."""
    if kind == "f32":
        return x
    if kind == "f16":
        return x.astype(np.float16).astype(np.float32)
    q, d = round_q8_0(x) if kind == "q8_0" else round_q4_0(x)
    q = q.astype(np.float32) - (8 if kind == "q4_0" else 0)
    return (q * d.astype(np.float32)[..., None]).reshape(x.shape)


def areas(level, kind, xk, xv, fill=None, n_ctx=None):
    """K and V area with the positions of xk, xv (n, D) stored; everything else holds the byte ``fill``.

    The areas end where their allocation ends, so that a read past them is one that a sanitizer sees.
    """
    n, head_dim = xk.shape
    k, v = (np.full(size, 0x5A if fill is None else fill, np.uint8)
            for size in probe.kv_bytes(level, kind, n_ctx or n, head_dim))
    for pos in range(n):
        probe.kv_store(level, kind, k, v, pos, xk[pos], xv[pos])
    return k, v


def inputs(n_pos, head_dim, n_rows, seed=0):
    rng = np.random.default_rng((seed, n_pos, head_dim, n_rows))
    xk, xv = rng.standard_normal((2, n_pos, head_dim)).astype(np.float32)
    q = (rng.standard_normal((n_rows, head_dim)) * 2).astype(np.float32)
    return xk, xv, q


def exact(q, k, v, scale, first, last):
    """Full softmax attention in float64."""
    out = np.empty(q.shape)
    for r in range(len(q)):
        seen = slice(first[r], last[r] + 1)
        score = scale * (k[seen].astype(np.float64) @ q[r].astype(np.float64))
        p = np.exp(score - score.max())
        out[r] = p @ v[seen].astype(np.float64) / p.sum()
    return out


def ints(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize("level", LEVELS)
def test_sizes(level):
    for n_ctx, groups in ((8, 1), (64, 8), (72, 9), (65, 9)):
        assert probe.kv_bytes(level, "f16", n_ctx, 64) == (groups * 8 * 64 * 2,) * 2
        assert probe.kv_bytes(level, "f32", n_ctx, 64) == (groups * 8 * 64 * 4,) * 2
        assert probe.kv_bytes(level, "q8_0", n_ctx, 64) == (groups * 8 * 2 * 34,) * 2
        assert probe.kv_bytes(level, "q4_0", n_ctx, 64) == (groups * 8 * 2 * 18,) * 2
    assert probe.kv_bytes(level, "f32", 2**21, 512) == (2**32,) * 2


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("head_dim", [32, 64, 96])
def test_layouts(level, head_dim):
    n = 19
    xk, xv, _ = inputs(n, head_dim, 1)
    xk[3, :32] = 0
    xv[5, :32] = 0
    xk[7, 4], xk[7, 9] = 5, -5  # the first of two equal magnitudes decides q4_0's sign
    for kind, dtype in (("f16", np.float16), ("f32", np.float32)):
        k, v = areas(level, kind, xk, xv)
        k = k.view(dtype).reshape(-1, head_dim, 8).transpose(0, 2, 1).reshape(-1, head_dim)
        assert np.array_equal(k[:n], xk.astype(dtype))
        assert np.array_equal(v.view(dtype).reshape(-1, head_dim)[:n], xv.astype(dtype))

    k, v = areas(level, "q8_0", xk, xv)
    chunks, blocks = k.reshape(-1, head_dim // 32, 16 + 256), v.reshape(-1, head_dim // 32, 34)
    scales = np.ascontiguousarray(chunks[..., :16]).view(np.float16).transpose(0, 2, 1).reshape(-1, head_dim // 32)
    codes = chunks[..., 16:].view(np.int8).reshape(-1, head_dim // 32, 32, 8).transpose(0, 3, 1, 2)
    q, d = round_q8_0(xk)
    assert np.array_equal(scales[:n], d)
    assert np.array_equal(codes.reshape(-1, head_dim // 32, 32)[:n], q)
    q, d = round_q8_0(xv)
    assert np.array_equal(np.ascontiguousarray(blocks[:n, :, :2]).view(np.float16)[..., 0], d)
    assert np.array_equal(blocks[:n, :, 2:].view(np.int8), q)

    k, v = areas(level, "q4_0", xk, xv)
    chunks, blocks = k.reshape(-1, head_dim // 32, 16 + 128), v.reshape(-1, head_dim // 32, 18)
    scales = np.ascontiguousarray(chunks[..., :16]).view(np.float16).transpose(0, 2, 1).reshape(-1, head_dim // 32)
    codes = chunks[..., 16:].reshape(-1, head_dim // 32, 16, 8).transpose(0, 3, 1, 2).reshape(-1, head_dim // 32, 16)
    q, d = round_q4_0(xk)
    assert np.array_equal(scales[:n], d)
    assert np.array_equal(codes[:n], q[..., :16] | q[..., 16:] << 4)
    q, d = round_q4_0(xv)
    assert np.array_equal(np.ascontiguousarray(blocks[:n, :, :2]).view(np.float16)[..., 0], d)
    assert np.array_equal(blocks[:n, :, 2:], q[..., :16] | q[..., 16:] << 4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_store_is_the_same_at_every_level(level, kind):
    rng = np.random.default_rng(8)
    for head_dim in (32, 64) if kind[0] == "q" else (1, 7, 8, 33, 64):
        x = (rng.standard_normal((2, 9, head_dim)) * 10.0 ** rng.integers(-9, 9, (2, 9, 1))).astype(np.float32)
        x[0, 2, 0], x[0, 4, -1], x[1, 1, 0], x[1, 3, -1] = np.nan, np.inf, -np.inf, 1e-42
        x[0, 6] = 1e-42
        for got, ref in zip(areas(level, kind, *x), areas("ref", kind, *x), strict=True):
            if kind == "f32":
                got, ref = got.view(np.uint32), ref.view(np.uint32)
            assert np.array_equal(got, ref)


# Rows that see all they may, a part of the last tile, windows that start within a tile, and disjoint windows.
CASES = {
    "one": (1, ints(0), ints(0)),
    "short": (5, ints(0, 0, 0), ints(4, 3, 0)),
    "full tile": (64, ints(0), ints(63)),
    "causal": (150, np.zeros(13, np.int32), np.arange(137, 150, dtype=np.int32)),
    "window": (200, np.arange(60, 67, dtype=np.int32), np.arange(190, 197, dtype=np.int32)),
    "disjoint": (130, ints(0, 20, 40, 41, 3, 100, 129), ints(9, 22, 60, 127, 3, 110, 129)),
    "many": (90, np.repeat(ints(0, 0, 30), 20), np.tile(np.arange(70, 90, dtype=np.int32), 3)),
}
DIMS = {"f16": [8, 64, 80, 128, 24, 7, 1, 256], "f32": [8, 64, 72, 128, 33], "q8_0": [32, 64, 96, 128, 256],
        "q4_0": [32, 64, 96, 128, 256]}
SHAPES = [(kind, dim) for kind in KINDS for dim in DIMS[kind]]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind, head_dim", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_against_float64_and_ref(level, kind, head_dim, case):
    n_pos, first, last = CASES[case]
    xk, xv, q = inputs(n_pos, head_dim, len(first))
    scale = 1 / np.sqrt(head_dim)
    k, v = areas(level, kind, xk, xv)
    acc, m, s = probe.attention(level, kind, k, v, q, scale, first, last)
    want = exact(q, rounded(kind, xk), rounded(kind, xv), np.float64(np.float32(scale)), first, last)
    np.testing.assert_allclose(acc, want, atol=1e-5, rtol=1e-5)
    for got, ref in zip((acc, m, s), probe.attention("ref", kind, k, v, q, scale, first, last), strict=True):
        assert np.array_equal(bits(got), bits(ref))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head_dim", [32, 64, 512])
def test_rows_do_not_depend_on_each_other(level, kind, head_dim):
    n_pos = 140
    rng = np.random.default_rng(9)
    n_rows = 101
    xk, xv, q = inputs(n_pos, head_dim, n_rows)
    last = rng.integers(0, n_pos, n_rows).astype(np.int32)
    first = np.maximum(0, last - rng.integers(0, 100, n_rows)).astype(np.int32)
    k, v = areas(level, kind, xk, xv)
    together = probe.attention(level, kind, k, v, q, 0.125, first, last)
    for size in (1, 2, 3, 4, 5, 7, 50):
        for start in range(0, n_rows if size > 1 else 40, size):
            part = slice(start, start + size)
            alone = probe.attention(level, kind, k, v, q[part], 0.125, first[part], last[part])
            for a, b in zip(together, alone, strict=True):
                assert np.array_equal(bits(a[part]), bits(b)), (size, start)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fill", [0xFF, 0x7F])
def test_hidden_positions_do_not_matter(level, kind, fill):
    """Bytes of NaN and of huge values where no row looks, before a window and after the last position."""
    head_dim, n_pos = 64, 100
    xk, xv, q = inputs(n_pos, head_dim, 9)
    first = ints(21, 22, 23, 21, 30, 35, 70, 21, 21)
    last = ints(90, 91, 92, 93, 94, 50, 70, 21, 94)
    clean = areas(level, kind, xk, xv, 0, 128)
    dirty = areas(level, kind, xk, xv, fill, 128)
    nonsense = np.full(head_dim, np.nan, np.float32)
    for pos in (*range(21), *range(95, n_pos)):
        probe.kv_store(level, kind, *dirty, pos, nonsense, nonsense)
    for rows in (slice(0, 9), slice(0, 4), slice(8, 9)):
        a = probe.attention(level, kind, *clean, q[rows], 0.2, first[rows], last[rows])
        b = probe.attention(level, kind, *dirty, q[rows], 0.2, first[rows], last[rows])
        for x, y in zip(a, b, strict=True):
            assert np.isfinite(x).all() and np.array_equal(bits(x), bits(y))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_nan_harms_itself_only(level, kind):
    xk, xv, q = inputs(80, 64, 8)
    first, last = np.zeros(8, np.int32), np.full(8, 79, np.int32)
    k, v = areas(level, kind, xk, xv)
    clean = probe.attention(level, kind, k, v, q, 0.125, first, last)
    q[3, 10] = np.nan
    dirty = probe.attention(level, kind, k, v, q, 0.125, first, last)
    assert np.isnan(dirty[0][3]).all()
    others = np.arange(8) != 3
    for a, b in zip(clean, dirty, strict=True):
        assert np.array_equal(bits(a[others]), bits(b[others]))


@pytest.mark.parametrize("level", LEVELS)
def test_large_scores_do_not_overflow(level):
    xk, xv, q = inputs(130, 64, 3)
    k, v = areas(level, "f32", xk, xv)
    first, last = np.zeros(3, np.int32), np.full(3, 129, np.int32)
    acc, *_ = probe.attention(level, "f32", k, v, q, 1000.0, first, last)
    np.testing.assert_allclose(acc, exact(q, xk, xv, 1000.0, first, last), atol=2e-2)
