"""RWKV kernels of every level: against float64, and against the reference level bit for bit."""
import numpy as np
import pytest

from pantheon._core.kernels import table
from pantheon._core.probes import rwkv as probe

LEVELS = table.levels_supported()
LENGTHS = [*range(1, 35), 64, 100, 129]
NAMES = ("r", "k", "v", "w", "a", "g", "mix", "v_first", "w0", "a0", "v0", "k_k", "k_a", "r_k", "ln_w", "ln_b")


def same_bits(a, b):
    return np.array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "exact", "tolerance"), [
    ("tanh", np.tanh, 4e-7), ("sigmoid", sigmoid, 4e-7), ("relu_sqr", lambda x: np.maximum(x, 0) ** 2, 1e-7),
])
def test_elementwise(level, name, exact, tolerance):
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        x = (rng.standard_normal(n) * rng.choice([1e-6, 0.1, 1, 30], n)).astype(np.float32)
        got = probe.elementwise(level, name, x)
        np.testing.assert_allclose(got, exact(x.astype(np.float64)), rtol=tolerance, atol=1e-37)
        assert same_bits(got, probe.elementwise("ref", name, x))


@pytest.mark.parametrize("level", LEVELS)
def test_elementwise_at_the_edges(level):
    below = np.nextafter(np.float32(0.25), 0)
    x = np.array([0.0, -0.0, 0.25, -0.25, below, 1e-40, 90, -90, 3e38, -3e38, np.inf, -np.inf], np.float32)
    got = probe.elementwise(level, "tanh", x)
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), rtol=4e-7, atol=1e-44)
    for name in ("tanh", "sigmoid", "relu_sqr"):
        assert np.isnan(probe.elementwise(level, name, np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("level", LEVELS)
def test_lerp(level):
    rng = np.random.default_rng(2)
    for n in LENGTHS:
        a, b, t = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
        got = probe.lerp(level, a, b, t)
        np.testing.assert_allclose(got, a + (b.astype(np.float64) - a) * t, rtol=1e-6, atol=1e-6)
        assert same_bits(got, probe.lerp("ref", a, b, t))


def head_in_float64(p, state):
    """One step of RWKV-7's recurrence from its definition, for one head, with the state as (values, keys)."""
    p = {name: x.astype(np.float64) for name, x in p.items()}
    w = np.exp(-0.606531 * sigmoid(p["w0"] + p["w"]))
    a = sigmoid(p["a0"] + p["a"])
    kk = p["k"] * p["k_k"]
    kk = kk / max(np.linalg.norm(kk), 1e-12)
    k = p["k"] * (1 + (a - 1) * p["k_a"])
    v = p["v"]
    if "mix" in p:
        v = v + (p["v_first"] - v) * sigmoid(p["v0"] + p["mix"])
    state = state * w + np.outer(state @ -kk, kk * a) + np.outer(v, k)
    y = state @ p["r"]
    y = (y - y.mean()) / np.sqrt(y.var() + 64e-5) * p["ln_w"] + p["ln_b"]
    y = y + (p["r"] * k * p["r_k"]).sum() * v
    return y * p["g"], k, v, state


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", [True, False])
def test_a_head_over_many_tokens(level, first):
    rng = np.random.default_rng(3)
    state, exact = np.zeros((64, 64), np.float32), np.zeros((64, 64))
    reference = state.copy()
    for _ in range(60):
        p = {name: rng.standard_normal(64).astype(np.float32) for name in NAMES}
        if first:
            p = {name: x for name, x in p.items() if name not in ("mix", "v_first", "v0")}
        got = probe.head(level, p, state)
        y, k, v, exact = head_in_float64(p, exact)
        for ours, theirs in zip(got, (y, k, v), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-4)
        np.testing.assert_allclose(state, exact.T, rtol=1e-4, atol=1e-4)
        expected = probe.head("ref", p, reference)
        assert all(same_bits(a, b) for a, b in zip(got, expected, strict=True))
        assert same_bits(state, reference)


@pytest.mark.parametrize("level", LEVELS)
def test_a_key_of_zeros_is_no_division_by_zero(level):
    rng = np.random.default_rng(4)
    p = {name: rng.standard_normal(64).astype(np.float32) for name in NAMES} | {"k": np.zeros(64, np.float32)}
    state = rng.standard_normal((64, 64)).astype(np.float32)
    assert all(np.isfinite(x).all() for x in probe.head(level, p, state))
    assert np.isfinite(state).all()


@pytest.mark.parametrize("level", LEVELS)
def test_loss_applies_the_transposed_state(level):
    """The contraction runs over values (spec section 5), not over keys."""
    rng = np.random.default_rng(5)
    differs = []
    for _ in range(20):
        state = rng.standard_normal((64, 64)).astype(np.float32)       # (keys, values)
        k, v = (rng.standard_normal(64).astype(np.float32) for _ in range(2))
        s = state.T.astype(np.float64)                                  # (values, keys)
        got = probe.loss(level, state, k, v)
        assert got == pytest.approx(((v - np.einsum("ij,i->j", s, k.astype(np.float64))) ** 2).sum(), rel=1e-5)
        assert got == probe.loss("ref", state, k, v)
        differs.append(abs(got / ((v - s @ k) ** 2).sum() - 1))
    assert max(differs) > 0.05


# ---- int8 rows, made at load -----------------------------------------------------------------------------------------

def parts(packed):
    """Scales (rows, blocks) and codes (rows, blocks, 32) of packed rows."""
    blocks = packed.reshape(len(packed), -1, 36)
    return blocks[..., :4].copy().view(np.float32)[..., 0], blocks[..., 4:].view(np.int8)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [1, 7, 8, 19])
def test_int8_rows(level, rows):
    rng = np.random.default_rng(6)
    for n in (32, 64, 96, 512):
        w = (rng.standard_normal((rows, n)) * 10.0 ** rng.integers(-3, 3, (rows, 1))).astype(np.float32)
        w[0] = 0
        packed = probe.quantize_rows(level, w)
        assert packed.tobytes() == probe.quantize_rows("ref", w).tobytes()
        scale, codes = parts(packed)
        assert not packed[0].any()
        back = probe.dequantize_rows(level, packed)
        np.testing.assert_array_equal(back, (scale[..., None] * codes).reshape(rows, n))
        least = np.abs(w.reshape(rows, -1, 32)).max(axis=2) / np.float32(127)
        assert (scale >= least).all() and (scale <= least * np.float32(1.0601)).all()
        x = (rng.standard_normal(n) * 3).astype(np.float32)
        xq, d = probe.quantize_input(level, x)
        assert np.abs(d.repeat(32) * xq - x).max() <= 0.51 * d.max()
        sums = (codes.astype(np.int64) * xq.reshape(-1, 32)).sum(axis=2)
        terms = scale.astype(np.float64) * d * sums
        got = probe.rows_product(level, packed, x)
        assert (np.abs(got - terms.sum(axis=1)) <= 1e-6 * np.abs(terms).sum(axis=1)).all()
        assert same_bits(got, probe.rows_product("ref", packed, x))


@pytest.mark.parametrize("level", LEVELS)
def test_int8_scales_lose_least(level):
    """No scale of those that are tried loses less, and together they lose clearly less than max / 127 does."""
    rng = np.random.default_rng(8)
    w = rng.uniform(-1, 1, (50, 32)).astype(np.float32)
    scale, codes = parts(probe.quantize_rows(level, w))

    def error(d):
        return ((w - d * np.clip(np.rint(w / d), -127, 127)) ** 2).sum(axis=1)

    least = np.abs(w).max(axis=1, keepdims=True) / np.float32(127)
    tried = np.stack([error(least * np.float32(1 + np.float32(0.06) * k / 7)) for k in range(8)])
    got = ((w - scale * codes[:, 0]) ** 2).sum(axis=1)
    np.testing.assert_allclose(got, tried.min(axis=0), rtol=1e-3)
    assert got.sum() < 0.9 * tried[0].sum()


@pytest.mark.parametrize("level", LEVELS)
def test_int8_rows_at_the_limits(level):
    """Largest codes everywhere: sums stay exact. What is not a number stays none; what is next to nothing is 0."""
    w = np.full((8, 256), 5, np.float32) * np.where(np.arange(256) % 3 == 0, -1, 1).astype(np.float32)
    packed = probe.quantize_rows(level, w)
    for sign in (np.where(np.arange(256) % 5 == 0, -2, 2), np.sign(w[0])):
        got = probe.rows_product(level, packed, sign.astype(np.float32))
        np.testing.assert_allclose(got, (w.astype(np.float64) @ sign), rtol=1e-4)
    x = np.ones(256, np.float32)
    x[40] = np.nan
    assert np.isnan(probe.rows_product(level, packed, x)).all()
    assert not probe.rows_product(level, packed, np.full(256, 1e-40, np.float32)).any()
    assert not probe.quantize_rows(level, np.full((1, 32), 1e-40, np.float32)).any()
    huge = np.full((8, 32), 3e38, np.float32)
    np.testing.assert_allclose(probe.dequantize_rows(level, probe.quantize_rows(level, huge)), huge, rtol=1e-2)
