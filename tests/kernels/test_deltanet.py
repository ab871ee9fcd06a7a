"""The gated delta rule of every level: against float64, and against the reference level bit for bit."""
import numpy as np
import pytest

from pantheon._core.kernels import table
from pantheon._core.probes import deltanet as probe

LEVELS = table.levels_supported()
LENGTHS = [*range(1, 41), 127, 128, 576]
SIZES = [(128, 128), (16, 16), (8, 24), (1, 1), (3, 5), (64, 32), (33, 47), (128, 40)]


def normal(rng, *shape, scale=1.0):
    """Normal values that start one float past an aligned boundary."""
    return (rng.standard_normal(int(np.prod(shape)) + 1) * scale).astype(np.float32)[1:].reshape(shape)


def bits(*arrays):
    return b"".join(np.asarray(a).tobytes() for a in arrays)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", LENGTHS)
def test_sigmoid_mul(level, n):
    rng = np.random.default_rng(n)
    x, gate = normal(rng, n), normal(rng, n, scale=8)
    got, ref = x.copy(), x.copy()
    probe.sigmoid_mul(level, got, gate)
    probe.sigmoid_mul("ref", ref, gate)
    np.testing.assert_allclose(got, x * sigmoid(gate.astype(np.float64)), rtol=5e-7, atol=1e-9)
    assert bits(got) == bits(ref)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", LENGTHS)
def test_l2_norm(level, n):
    """The sum of the squares, not their mean, with eps beside it."""
    rng = np.random.default_rng(n)
    x, y, ref = normal(rng, n, scale=0.3), np.empty(n, np.float32), np.empty(n, np.float32)
    probe.l2_norm(level, x, 1e-2, 0.25, y)
    probe.l2_norm("ref", x, 1e-2, 0.25, ref)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(y, exact * 0.25 / np.sqrt((exact * exact).sum() + 1e-2), rtol=1e-6, atol=1e-9)
    assert bits(y) == bits(ref)
    probe.l2_norm(level, x, 1e-2, 0.25, x)
    assert bits(x) == bits(y)
    zeros = np.zeros(n, np.float32)
    probe.l2_norm(level, zeros, 1e-6, 1.0, y)
    assert (y == 0).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 31, 128, 131])
def test_conv_silu(level, taps, n):
    rng = np.random.default_rng(taps * 1000 + n)
    w, rows = normal(rng, n, taps), normal(rng, taps, n)
    got = probe.conv_silu(level, w, rows)
    exact = (w.astype(np.float64) * rows.T).sum(axis=1)
    np.testing.assert_allclose(got, exact * sigmoid(exact), rtol=1e-5, atol=1e-6)
    assert bits(got) == bits(probe.conv_silu("ref", w, rows))


@pytest.mark.parametrize("level", LEVELS)
def test_delta_gates(level):
    alpha = np.array([-200, -30, -5, -0.5, 0, 0.5, 5, 19.9, 20.1, 30, 1000], np.float32)
    beta, dt = alpha[::-1].copy(), np.full(len(alpha), 0.25, np.float32)
    a = -np.geomspace(0.01, 16, len(alpha)).astype(np.float32)
    decay, rate = probe.delta_gates(level, alpha, beta, a, dt)
    exact = np.exp(a * np.logaddexp(0, alpha.astype(np.float64) + dt))
    np.testing.assert_allclose(decay, exact, rtol=2e-5, atol=1e-37)
    np.testing.assert_allclose(rate, sigmoid(beta.astype(np.float64)), rtol=1e-6, atol=1e-37)
    assert bits(decay, rate) == bits(*probe.delta_gates("ref", alpha, beta, a, dt))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dk", "dv"), SIZES)
def test_delta_step(level, dk, dv):
    """Twenty tokens against the published order: decay, read, correct, write, read."""
    rng = np.random.default_rng(dk * 1000 + dv)
    state, exact = np.zeros((dk, dv), np.float32), np.zeros((dk, dv))
    ref = state.copy()
    for _ in range(20):
        q, k, v = normal(rng, dk, scale=dk ** -0.5), normal(rng, dk, scale=dk ** -0.5), normal(rng, dv)
        decay, rate = np.float32(rng.uniform(0.3, 1)), np.float32(rng.uniform(0, 1))
        got = probe.delta_step(level, state, q, k, v, decay, rate)
        assert bits(got, state) == bits(probe.delta_step("ref", ref, q, k, v, decay, rate), ref)
        exact *= np.float64(decay)
        delta = np.float64(rate) * (v - exact.T @ k)
        exact += np.outer(k, delta)
        np.testing.assert_allclose(got, exact.T @ q, rtol=1e-4, atol=2e-6)
    groups = [exact[:, c:c + probe.COLUMNS].ravel() for c in range(0, dv, probe.COLUMNS)]
    np.testing.assert_allclose(state.ravel(), np.concatenate(groups), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_past_the_end_is_written(level):
    rng = np.random.default_rng(5)
    for dv in range(1, 45):
        room = np.full(3 * dv + 16, 7.0, np.float32)
        state = room[8:8 + 3 * dv].reshape(3, dv)
        probe.delta_step(level, state, normal(rng, 3), normal(rng, 3), normal(rng, dv), 0.5, 0.5)
        assert (room[:8] == 7).all() and (room[8 + 3 * dv:] == 7).all()
