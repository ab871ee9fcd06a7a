"""Float functions of every level: against float64, and against the reference level bit for bit."""
import numpy as np
import pytest

from pantheon._core.kernels import table
from pantheon._core.probes import floats as probe

LEVELS = table.levels_supported()
LENGTHS = [*range(1, 71), 127, 576, 1000, 4099]
SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1e20, -90.0, 90.0], np.float32)


def normal(rng, n, scale=1.0, shift=0):
    """n normal values that start ``shift`` floats past an aligned boundary."""
    return (rng.standard_normal(n + shift) * scale).astype(np.float32)[shift:]


def same_bits(a, b):
    """Equal bit for bit; any NaN equals any NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != np.float32:
        return a.dtype == b.dtype and np.array_equal(a, b)
    nan = np.isnan(a)
    return np.array_equal(nan, np.isnan(b)) and np.array_equal(a.view(np.uint32)[~nan], b.view(np.uint32)[~nan])


# name -> (number of input vectors, run(level, vectors) -> result, float64 definition, absolute and relative tolerance)
def _in_place(name, *more):
    def run(level, x, *others):
        x = x.copy() if x.flags.owndata else np.concatenate([[0.0], x]).astype(np.float32)[1:]
        getattr(probe, name)(level, x, *others, *more)
        return x
    return run


def _into(name):
    def run(level, x, *others):
        y = np.full_like(x, np.nan)
        getattr(probe, name)(level, x, *others, 1e-5, y)
        return y
    return run


def _softmax64(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def _gelu64(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FUNCTIONS = {
    "rms_norm": (2, _into("rms_norm"), lambda x, w: x / np.sqrt((x * x).mean() + 1e-5) * w, 1e-6, 1e-6),
    "layer_norm": (3, _into("layer_norm"),
                   lambda x, w, b: (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w + b, 4e-6, 4e-6),
    "add": (2, _in_place("add"), lambda x, y: x + y, 1e-9, 1e-7),
    "scale_add": (2, _in_place("scale_add", 0.37), lambda x, y: x + np.float64(np.float32(0.37)) * y, 1e-9, 1e-7),
    "silu_mul": (2, _in_place("silu_mul"), lambda x, y: x / (1 + np.exp(-x)) * y, 1e-9, 5e-7),
    "gelu_tanh": (1, _in_place("gelu_tanh"), _gelu64, 1e-6, 1e-6),
    "softmax": (1, _in_place("softmax"), _softmax64, 1e-9, 2e-6),
    "attn_finish": (1, _in_place("attn_finish", 3.7), lambda x: x / np.float64(np.float32(3.7)), 1e-9, 1e-7),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_float64(level, name):
    n_in, run, exact, atol, rtol = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        # a vector of one element has no variance to normalise by
        if name == "layer_norm" and n < 4:
            continue
        vectors = [normal(rng, n, 3.0, shift) for shift in range(n_in)]
        want = exact(*(v.astype(np.float64) for v in vectors))
        np.testing.assert_allclose(run(level, *vectors), want, rtol=rtol, atol=atol, err_msg=f"{name} n={n}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_as_ref(level, name):
    n_in, run, *_ = FUNCTIONS[name]
    rng = np.random.default_rng(2)
    for n in LENGTHS:
        for shift in (0, 1, 3):
            vectors = [normal(rng, n, 5.0, shift) for _ in range(n_in)]
            assert same_bits(run(level, *vectors), run("ref", *vectors)), (n, shift)
        for special in SPECIALS:
            vectors[0][rng.integers(n)] = special
            assert same_bits(run(level, *vectors), run("ref", *vectors)), (n, special)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_past_the_end_is_written(level):
    rng = np.random.default_rng(3)
    for name, (n_in, *_) in FUNCTIONS.items():
        for n in range(1, 20):
            room = np.full(n + 16, 7.0, np.float32)
            x = room[8:8 + n]
            x[:] = normal(rng, n)
            others = [normal(rng, n) for _ in range(n_in - 1)]
            if name in ("rms_norm", "layer_norm"):
                getattr(probe, name)(level, x, *others, 1e-5, x)
            else:
                more = {"scale_add": (0.5,), "attn_finish": (2.0,)}.get(name, ())
                getattr(probe, name)(level, x, *others, *more)
            assert (room[:8] == 7).all() and (room[8 + n:] == 7).all(), (name, n)


def test_exp():
    x = np.concatenate([-np.linspace(0, 87.3, 400_001), -np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    x = x[x >= np.float32(-87.3)]
    exact = np.exp(x.astype(np.float64))
    assert np.abs(probe.exp(x) / exact - 1).max() < 1e-7
    y = probe.exp(np.array([0.0, -0.0, -87.31, -1000, -np.inf, np.nan], np.float32))
    assert y[0] == y[1] == 1 and (y[2:5] == 0).all() and np.isnan(y[5])


@pytest.mark.parametrize("level", LEVELS)
def test_softmax_masks_and_sums(level):
    for n in LENGTHS:
        x = normal(np.random.default_rng(n), n + 1, 10.0)
        x[n // 2] = -np.inf
        x[n] = 5.0
        probe.softmax(level, x)
        assert x[n // 2] == 0 and abs(x.sum(dtype=np.float64) - 1) < 2e-6


@pytest.mark.parametrize("level", LEVELS)
def test_sigmoids_at_the_ends(level):
    x = np.array([-3e38, -200.0, -88.0, 0.0, 88.0, 200.0, 3e38], np.float32)
    silu, gelu = x.copy(), x.copy()
    probe.silu_mul(level, silu, np.ones_like(x))
    probe.gelu_tanh(level, gelu)
    for y in (silu, gelu):
        assert (y[4:] == x[4:]).all() and y[3] == 0 and np.abs(y[:3]).max() < 1e-30


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["norm", "neox"])
@pytest.mark.parametrize("head_dim, n_pair", [(64, 32), (128, 64), (80, 16), (10, 5), (6, 3), (24, 9), (2, 1)])
def test_rope(level, kind, head_dim, n_pair):
    rng = np.random.default_rng(head_dim)
    x = rng.standard_normal((3, head_dim)).astype(np.float32)
    angle = rng.uniform(-4, 4, n_pair)
    cs = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32) * np.float32(1.1)
    pair = np.arange(n_pair)
    a, b = (2 * pair, 2 * pair + 1) if kind == "norm" else (pair, pair + n_pair)
    want = x.astype(np.float64)
    c, s = cs.astype(np.float64).T
    want[:, a], want[:, b] = x[:, a] * c - x[:, b] * s, x[:, a] * s + x[:, b] * c
    got, ref = x.copy(), x.copy()
    probe.rope(level, kind, got, cs)
    probe.rope("ref", kind, ref, cs)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert (got[:, 2 * n_pair:] == x[:, 2 * n_pair:]).all()
    assert same_bits(got, ref)


@pytest.mark.parametrize("level", LEVELS)
def test_argmax(level):
    rng = np.random.default_rng(4)
    for n in LENGTHS:
        x = rng.integers(-3, 4, n).astype(np.float32)  # many ties
        assert probe.argmax(level, x) == int(np.argmax(x))
        hidden = x.copy()
        hidden[rng.random(n) < 0.5] = np.nan
        want = 0 if np.isnan(hidden).all() else int(np.nanargmax(hidden))
        assert probe.argmax(level, hidden) == want
        assert probe.argmax(level, np.full(n, np.nan, np.float32)) == 0
        assert probe.argmax(level, np.full(n, -np.inf, np.float32)) == 0
        lowest = np.full(n, np.nan, np.float32)
        lowest[n - 1] = -np.inf
        assert probe.argmax(level, lowest) == n - 1


def quantize_by_rule(f, block):
    """The rule in numpy: codes and scales of (n_tok, n) inputs."""
    n_tok, n = f.shape
    x = f.reshape(n_tok, n // block, block)
    amax = np.abs(x).max(2)
    zero = amax < np.float32(2.0**-100)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(zero, np.float32(0), np.float32(127) / amax).astype(np.float32)
        q = np.clip(np.rint(np.where(zero[..., None], 0, x * inverse[..., None])), -127, 127).astype(np.int8)
    return q.reshape(n_tok, n), np.where(zero, np.float32(0), amax / np.float32(127)).astype(np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind, block", [("q32", 32), ("q256", 256)])
def test_quantize(level, kind, block):
    rng = np.random.default_rng(5)
    for n_block in (1, 2, 3, 7):
        f = rng.standard_normal((3, n_block * block)).astype(np.float32)
        f[0, :block] *= np.float32(2.0**-103)
        f[1, :block] = 0
        f[2, :block] = rng.integers(-254, 255, block) / 2  # halves: round to even
        f[2, 3] = 127
        q, d, *sums = probe.quantize(level, kind, f)
        want_q, want_d = quantize_by_rule(f, block)
        assert np.array_equal(q, want_q) and same_bits(d, want_d)
        width = 32 if kind == "q32" else 16
        exact = q.astype(np.int32).reshape(3, -1, width).sum(2)
        if kind == "q32":
            assert same_bits(sums[0], d * exact.astype(np.float32))
        assert np.array_equal(sums[-1], exact)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind, block", [("q32", 32), ("q256", 256)])
def test_quantize_of_nonsense_is_bounded(level, kind, block):
    rng = np.random.default_rng(6)
    for special in (np.nan, np.inf, -np.inf, 3.4e38):
        f = rng.standard_normal((2, 2 * block)).astype(np.float32)
        f[0, rng.integers(2 * block)] = special
        f[1, :] = special
        got, ref = probe.quantize(level, kind, f), probe.quantize("ref", kind, f)
        assert got[0].min() >= -127
        assert all(same_bits(a, b) for a, b in zip(got, ref, strict=True))


def test_half_conversion():
    bits = np.arange(65536, dtype=np.uint16)
    floats = bits.view(np.float16).astype(np.float32)
    assert same_bits(probe.from_half(bits), floats)
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    finite = floats[np.isfinite(floats)]
    ties = finite[:-1] + (finite[1:] - finite[:-1]) / 2
    near = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])
    ends = np.array([65519.99, 65520.0, -65520.0, 1e-8, 2.0**-25, 2.0**-24 * 1.5, np.inf, -np.inf], np.float32)
    x = np.concatenate([x[~np.isnan(x)], near, finite, ends])
    with np.errstate(over="ignore"):
        assert np.array_equal(probe.to_half(x), x.astype(np.float16).view(np.uint16))
    assert np.isnan(probe.to_half(np.array([np.nan], np.float32)).view(np.float16)).all()
