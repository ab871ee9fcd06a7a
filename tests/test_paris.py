"""The first thing anyone tries: text in, text out, on the default model."""
from __future__ import annotations

import numpy as np
import pytest

import pantheon

pytestmark = pytest.mark.real

PROMPT = "The capital of France is"


def test_the_capital_of_france(default_model):
    with pantheon.load(str(default_model)) as model:
        chunks = list(model.generate(PROMPT, pantheon.SamplingParams(temperature=0.0), max_tokens=8))
    text = "".join(chunk.text for chunk in chunks)
    assert "Paris" in text
    assert chunks[-1].finish_reason in ("length", "stop")


def test_the_next_token_is_paris(default_model):
    """The same without the generation loop: tokenizer, prefill, argmax, decode."""
    with pantheon.load(str(default_model)) as model:
        tokens = model.tokenizer.encode(PROMPT)
        logits = model.prefill(tokens, model.new_state(n_ctx=64))
        assert model.tokenizer.decode([int(np.argmax(logits))]).strip() == "Paris"
