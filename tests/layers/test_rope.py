"""Rotary tables against those of transformers (tests/fixtures/rope_tables.json, made by tools/make_rope_tables.py)."""
import json

import numpy as np
import pytest
from support.fixture_paths import FIXTURES

from pantheon._core.layers import rope

pytestmark = pytest.mark.golden

TABLES = json.loads((FIXTURES / "rope_tables.json").read_text())


@pytest.mark.parametrize("case", TABLES["cases"], ids=lambda case: case["name"])
def test_rope_tables_of_transformers(case):
    """The library computes in float32."""
    fields = {name: case[name] for name in ("dims", "base", "factor", "orig_ctx", "beta_fast", "beta_slow")}
    if case["scaling"] == "llama3":
        fields |= {"low_freq": case["low_freq_factor"], "high_freq": case["high_freq_factor"]}
    divisors = case["freq_divisors"] if case["scaling"] == "longrope" else None
    freqs, factor = rope.rope_table(scaling=case["scaling"], attn_factor=case["attn_factor_given"], factors=divisors,
                                    **fields)
    np.testing.assert_allclose(freqs, case["freqs"], rtol=2e-6)
    assert factor == pytest.approx(case["attn_factor"], rel=1e-6)
    if case["scaling"] == "llama3":      # the same as divisors, which is how GGUF carries it
        freqs, factor = rope.rope_table(case["dims"], case["base"], factors=case["freq_divisors"])
        np.testing.assert_allclose(freqs, case["freqs"], rtol=2e-6)


def test_rope_defaults():
    freqs, factor = rope.rope_table(64, 10000.0)
    np.testing.assert_allclose(freqs, 10000.0 ** (-np.arange(0, 64, 2) / 64), rtol=1e-12)
    assert factor == 1.0
    with pytest.raises(ValueError, match="factors"):
        rope.rope_table(64, 10000.0, factors=[1.0])
