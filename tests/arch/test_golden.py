"""The engine against Hugging Face transformers, on tests/fixtures/tiny (made by tools/make_tiny_models.py)."""
from __future__ import annotations

import json

import numpy as np
import pytest
from support.fixture_paths import TINY

import pantheon

pytestmark = pytest.mark.golden

MODELS = json.loads((TINY / "manifest.json").read_text())["models"]
FLOAT = [name for name, entry in MODELS.items() if entry["max_diff"] is not None]
SHORT = [name for name, entry in MODELS.items() if "short" in entry]
QUANTISED = [name for name, entry in MODELS.items() if entry["max_diff"] is None]


def kl(p_logits: np.ndarray, q_logits: np.ndarray) -> np.ndarray:
    """KL(p || q) of each position in float64, (n_tokens,)."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        x = x - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def engine_logits(name: str, tokens: np.ndarray, n_ctx: int | None = None) -> np.ndarray:
    """(n_tokens, n_vocab) float32 of the whole prompt in one prefill with an f32 cache."""
    with pantheon.load(str(TINY / MODELS[name]["file"])) as model:
        state = model.new_state(n_ctx=n_ctx, kv_type="f32")
        return np.array(model.prefill(tokens, state, all_logits=True))


def test_every_fixture_is_listed():
    assert {path.stem for path in TINY.glob("*.gguf")} == set(MODELS) == {path.stem for path in TINY.glob("*.npz")}
    assert FLOAT and QUANTISED and SHORT


@pytest.mark.parametrize("name", FLOAT)
def test_float_weights_agree_with_transformers(name):
    golden = np.load(TINY / f"{name}.npz")
    got = engine_logits(name, golden["tokens"])
    assert got.dtype == np.float32
    assert got.shape == golden["logits"].shape
    per_position = np.abs(got - golden["logits"]).max(axis=1)
    worst = int(np.argmax(np.where(np.isnan(per_position), np.inf, per_position)))
    assert per_position[worst] < MODELS[name]["max_diff"], f"{MODELS[name]['why']}: worst at position {worst}"
    assert kl(golden["logits"], got).max() < MODELS[name]["max_kl"]


@pytest.mark.parametrize("name", SHORT)
def test_a_short_state_has_the_short_factors(name):
    golden, n = np.load(TINY / f"{name}.npz"), MODELS[name]["short"]
    got = engine_logits(name, golden["tokens"][:n], n_ctx=n)
    assert np.abs(got - golden["short_logits"]).max() < MODELS[name]["max_diff"]
    assert np.abs(golden["short_logits"] - golden["logits"][:n]).max() > 0.1     # the factors matter


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_agree_with_the_dequantised_model(name):
    """Only the int8 inputs of the matrices tell the two apart: the reference says by how much."""
    golden = np.load(TINY / f"{name}.npz")
    got = engine_logits(name, golden["tokens"])
    assert got.shape == golden["logits"].shape
    assert kl(golden["logits"], got).mean() < 1.2 * MODELS[name]["expected_kl"]


@pytest.mark.parametrize("name", QUANTISED)
def test_inputs_are_rounded_by_the_rule(name):
    """The reference with inputs rounded to int8 by the engine's rule, at every fourth position.

    A last-bit difference before a rounding can flip a code, which moves the logits of that position and of later ones
    by up to 0.1; positions without a flip before them agree to 1e-4. A wrong rule (float inputs, f16 scales, other
    blocks) moves every position by 0.07 or more. So the best tenth must agree closely, and all of them roughly.
    """
    golden = np.load(TINY / f"{name}.npz")
    got = engine_logits(name, golden["tokens"])[3::4]
    diff = np.abs(got - golden["logits_int8"]).max(axis=1)
    assert np.quantile(diff, 0.1) < 2e-3, np.sort(diff)
    assert kl(golden["logits_int8"], got).mean() < 1e-4
