"""RWKV-X and RWKV-7 against the published package (tests/fixtures/rwkv, made by tools/make_rwkv_goldens.py)."""
import numpy as np
import pytest
from support import rwkv_models
from support.rwkv_models import RECIPES

import pantheon

pytestmark = pytest.mark.golden

MAX_DIFF, MAX_KL, MAX_KL_INT8 = 2e-3, 1e-6, 5e-3


def kl(p_logits, q_logits):
    """KL(p || q) of each row in float64."""

    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def agree(got, expected):
    assert got.shape == expected.shape and got.dtype == np.float32
    assert np.abs(got - expected).max() < MAX_DIFF
    assert kl(expected, got).max() < MAX_KL


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_prompt_and_decode_agree(rwkv, golden, name, threads):
    recipe = RECIPES[name]
    with pantheon.load(rwkv(name), threads=threads) as model, model.new_state(kv_type="f32") as state:
        assert model.arch == "rwkvx"
        assert model.config.n_layer == recipe.n_layer and model.config.n_embd == recipe.n_embd
        agree(model.prefill(golden(name)["tokens"], state, all_logits=True), golden(name)["logits"])
        assert len(golden(name)["tokens"]) == 96 and len(golden(name)["decoded"]) == 500
        decoded = np.stack([model.forward(token, state) for token in golden(name)["decoded"]])
        assert np.isfinite(decoded).all()
        agree(decoded[::10], golden(name)["decode_logits"])


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.n_attn])
def test_full_mode_agrees(rwkv, golden, name, monkeypatch):
    """Every token remembered: what the older model of the package computes up to 8000 tokens."""
    monkeypatch.setenv("RWKVX_MODE", "full")
    with pantheon.load(rwkv(name)) as model, model.new_state(kv_type="f32") as state:
        agree(model.prefill(golden(name)["tokens"], state, all_logits=True), golden(name)["logits"])
        decoded = np.stack([model.forward(token, state) for token in golden(name)["decoded"]])
        agree(decoded[::10], golden(name)["full_logits"])


@pytest.mark.parametrize("name", RECIPES)
def test_goldens_would_notice(golden, name):
    """Memory and full attention differ far beyond the bound, and so do positions: agreement means something."""
    g = golden(name)
    assert np.abs(g["logits"][1:] - g["logits"][:-1]).max(axis=1).min() > 20 * MAX_DIFF
    if RECIPES[name].n_attn:
        assert np.median(np.abs(g["full_logits"] - g["decode_logits"]).max(axis=1)) > 20 * MAX_DIFF


@pytest.mark.parametrize("name", RECIPES)
def test_int8_is_close_to_float(rwkv, golden, name):
    g = golden(name)
    with pantheon.load(rwkv(name), quantize=True) as model, model.new_state(kv_type="f32") as state:
        got = model.prefill(g["tokens"], state, all_logits=True)
        divergence = kl(g["logits"], got)
        assert np.abs(got - g["logits"]).max() > 1e-3       # it did quantise
        assert divergence.max() < MAX_KL_INT8, divergence
        decoded = np.stack([model.forward(token, state) for token in g["decoded"]])
        assert np.isfinite(decoded).all()
        divergence = kl(g["decode_logits"], decoded[::10])
        assert divergence.max() < MAX_KL_INT8, divergence


def test_a_token_before_any_prompt_has_no_memory(rwkv):
    """Attention is then the zero vector: what the block's matrices for it hold does not matter."""
    recipe = RECIPES["rwkvx"]
    arrays = rwkv_models.tensors(recipe)
    for name in arrays:
        if name.startswith("moba.") and ".att." in name and "output" not in name:
            arrays[name] = arrays[name] * 3 + 1
    tokens = rwkv_models.tokens(recipe, 5)
    results = []
    for path in (rwkv("rwkvx"), rwkv("rwkvx", arrays=arrays, suffix="other")):
        with pantheon.load(path) as model, model.new_state() as state:
            results.append(np.stack([model.prefill([token], state) for token in tokens]))
    assert results[0].tobytes() == results[1].tobytes()
