"""The generation loop on tiny models: stopping, streaming, seeds, states, arguments."""
import numpy as np
import pytest

import pantheon
from pantheon import ContextFullError, SamplingParams

GREEDY = SamplingParams(temperature=0)
PROMPT = [5, 17, 99, 120]


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


def greedy_ids(model, prompt, n):
    with model.new_state() as state:
        logits = model.prefill(prompt, state)
        ids = []
        while len(ids) < n:
            ids.append(int(logits[:model.tokenizer.n_tokens].argmax()))
            logits = model.forward(ids[-1], state)
    return ids


def test_greedy_is_the_argmax(tiny):
    with pantheon.load(tiny) as model:
        chunks = list(model.generate(PROMPT, GREEDY, max_tokens=12))
        ids = greedy_ids(model, PROMPT, 12)
    eog = next((i for i, token in enumerate(ids) if token in model._tokenizer.eog_ids), None)
    expected = ids if eog is None else ids[:eog + 1]
    assert [chunk.token for chunk in chunks] == expected
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == ("length" if eog is None else "stop")


def test_text_is_the_decoding_of_the_tokens(model):
    chunks = list(model.generate("hello", SamplingParams(seed=3), max_tokens=40))
    tokens = [chunk.token for chunk in chunks if chunk.token not in model.tokenizer.eog_ids]
    whole = b"".join(model.tokenizer.output_bytes(token) for token in tokens).decode("utf-8", "replace")
    assert "".join(chunk.text for chunk in chunks) == whole


def test_stop_strings_span_tokens(model):
    text = "".join(chunk.text for chunk in model.generate(PROMPT, GREEDY, max_tokens=30))
    assert len(text) > 10
    for start, length in ((3, 1), (4, 5), (0, 2)):
        stop = text[start:start + length]
        chunks = list(model.generate(PROMPT, GREEDY, max_tokens=30, stop=[stop, "never seen"]))
        assert "".join(chunk.text for chunk in chunks) == text[:text.index(stop)]
        assert chunks[-1].finish_reason == "stop"
    assert "".join(c.text for c in model.generate(PROMPT, GREEDY, max_tokens=30, stop=stop)) == text[:text.index(stop)]


def test_a_seed_repeats(model):
    def draw(seed):
        params = SamplingParams(temperature=2.0, top_k=0, seed=seed)
        return [chunk.token for chunk in model.generate(PROMPT, params, max_tokens=20)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_state_goes_on(model):
    """Two calls on one state continue one text; the answer's last token was not fed yet."""
    whole = greedy_ids(model, PROMPT, 12)
    with model.new_state() as state:
        first = [c.token for c in model.generate(PROMPT, GREEDY, max_tokens=5, state=state)]
        assert state.pos == len(PROMPT) + 4
        second = [c.token for c in model.generate(first[-1:], GREEDY, max_tokens=7, state=state)]
    assert first + second == whole


def test_the_context_ends_an_answer(model):
    with model.new_state(n_ctx=8) as state:
        chunks = list(model.generate(PROMPT, GREEDY, state=state))
        assert chunks[-1].finish_reason in ("length", "stop")
        assert state.pos <= 8
        if chunks[-1].finish_reason == "length":
            assert len(chunks) == 8 - len(PROMPT) + 1


def test_logprobs_are_of_the_raw_logits(model):
    chunks = list(model.generate(PROMPT, SamplingParams(seed=4, temperature=0.3), max_tokens=3, logprobs=True))
    with model.new_state() as state:
        logits = model.prefill(PROMPT, state).astype(np.float64)[:model.tokenizer.n_tokens]
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    assert chunks[0].logprob == pytest.approx(expected[chunks[0].token], abs=1e-5)
    assert next(iter(model.generate(PROMPT, GREEDY, max_tokens=1))).logprob is None


def test_ids_beyond_the_vocabulary_are_never_drawn():
    """The file of this model has fewer tokens than logits."""
    from conftest import TINY

    with pantheon.load(TINY / "qwen2-yarn.gguf") as model:
        assert model.tokenizer.n_tokens < model.n_vocab
        params = SamplingParams(temperature=50.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
        tokens = [chunk.token for _ in range(5) for chunk in model.generate(PROMPT, params, max_tokens=80)]
    assert max(tokens) < model._tokenizer.n_tokens
    assert len(set(tokens)) > 50


@pytest.mark.parametrize(("arguments", "match"), [
    ({"prompt": []}, "no tokens"),
    ({"prompt": PROMPT, "max_tokens": 0}, "max_tokens is 0"),
    ({"prompt": PROMPT, "stop": [""]}, "stop"),
])
def test_bad_arguments_fail_at_once(model, arguments, match):
    with pytest.raises(ValueError, match=match):
        model.generate(**arguments)


def test_a_prompt_that_does_not_fit(model):
    with model.new_state(n_ctx=8) as state:
        with pytest.raises(ContextFullError, match="9 tokens, and 8 of n_ctx 8"):
            model.generate([5] * 9, GREEDY, state=state)
        assert state.pos == 0
    with pytest.raises(ValueError):
        model.generate([5] * (model.n_ctx_train + 1), GREEDY)


def test_messages_go_through_the_template(default_model):
    with pantheon.load(default_model) as model:
        answer = "".join(c.text for c in model.generate([{"role": "system", "content": ""}, {
            "role": "user", "content": "What is the capital of France?"}], GREEDY, max_tokens=16))
    assert "Paris" in answer


def test_an_answer_that_is_dropped_frees_its_state(model):
    chunks = model.generate(PROMPT, GREEDY, max_tokens=50)
    next(chunks)
    assert len(model.open_states()) == 1
    chunks.close()
    assert model.open_states() == []
