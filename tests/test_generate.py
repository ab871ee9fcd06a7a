"""The generation loop on tiny models: stopping, streaming, seeds, states, arguments."""
import json
import shutil

import numpy as np
import pytest
from support.fixture_paths import HF

import pantheon
from pantheon import ContextFullError, SamplingParams

GREEDY = SamplingParams(temperature=0)
PROMPT = [5, 17, 99, 120]


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


def greedy_ids(model, prompt, n):
    with model.new_state(reach=len(prompt) + n) as state:
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
        assert chunks[-1].finish_reason == "length"
        assert state.pos == 8
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
    from support.fixture_paths import TINY

    with pantheon.load(TINY / "qwen2-yarn.gguf") as model:
        assert model.tokenizer.n_tokens < model.n_vocab
        params = SamplingParams(temperature=50.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
        tokens = [chunk.token for _ in range(5) for chunk in model.generate(PROMPT, params, max_tokens=80)]
    assert max(tokens) < model._tokenizer.n_tokens
    assert len(set(tokens)) > 50


@pytest.mark.parametrize(("arguments", "match"), [
    ({"prompt": []}, "no tokens"),
    ({"prompt": PROMPT, "max_tokens": -1}, "max_tokens is -1"),
    ({"prompt": PROMPT, "stop": [""]}, "stop"),
    ({"prompt": [5, -1]}, "prompt: a token is -1, not in 0"),
    ({"prompt": [5, 2**31]}, "prompt: a token is 2147483648, not in 0"),
    ({"prompt": [5, 2**70]}, "prompt: a token is beyond 2.63, not in 0"),
    ({"prompt": np.array([5, 100000])}, "prompt: a token is 100000"),
])
def test_bad_arguments_fail_at_once(model, arguments, match):
    with pytest.raises(ValueError, match=match):
        model.generate(**arguments)


@pytest.mark.parametrize(("arguments", "match"), [
    ({"prompt": 5}, "prompt must be .* not int"),
    ({"prompt": None}, "prompt must be .* not NoneType"),
    ({"prompt": b"text"}, "prompt must be .* not bytes"),
    ({"prompt": [5, "a"]}, "prompt: str among its items"),
    ({"prompt": [5, 1.0]}, "prompt: float among its items"),
    ({"prompt": [5, True]}, "prompt: bool among its items"),
    ({"prompt": [5, {"role": "user", "content": "a"}]}, "prompt: dict among its items"),
    ({"prompt": [[5, 6]]}, "prompt: list among its items"),
    ({"prompt": PROMPT, "params": {"temperature": 0}}, "params must be SamplingParams or None, not dict"),
    ({"prompt": PROMPT, "state": 5}, "state must be a State or None, not int"),
    ({"prompt": PROMPT, "max_tokens": 1.5}, "max_tokens must be an integer, not float"),
    ({"prompt": PROMPT, "max_tokens": True}, "max_tokens must be an integer, not bool"),
    ({"prompt": PROMPT, "stop": 5}, "stop must be a str or several, not int"),
    ({"prompt": PROMPT, "stop": b"a"}, "stop must be a str or several, not bytes"),
])
def test_arguments_of_wrong_types_fail_at_once(model, arguments, match):
    with pytest.raises(TypeError, match=match):
        model.generate(**arguments)
    assert model.open_states() == []


def test_states_of_others_and_closed_ones_fail_at_once(model, llama):
    with (pantheon.load(llama) as other, other.new_state() as state,
          pytest.raises(ValueError, match="state is one of another model")):
        model.generate(PROMPT, state=state)
    state = model.new_state()
    state.close()
    with pytest.raises(ValueError, match="state is closed"):
        model.generate(PROMPT, state=state)


def test_no_tokens_are_a_prefill(model):
    with model.new_state() as state, model.new_state() as fed:
        chunks = list(model.generate(PROMPT, GREEDY, max_tokens=0, state=state))
        assert chunks == [("", None, None, "length")]
        assert state.pos == len(PROMPT)
        model.prefill(PROMPT, fed)
        assert model.forward(7, state).tobytes() == model.forward(7, fed).tobytes()
    assert list(model.generate(PROMPT, GREEDY, max_tokens=0, logprobs=True)) == [("", None, None, "length")]
    assert model.open_states() == []
    with model.new_state(n_ctx=8) as full:
        assert list(model.generate([5] * 8, GREEDY, max_tokens=0, state=full)) == [("", None, None, "length")]


# ---- stop strings and control tokens ---------------------------------------------------------------------------------

@pytest.fixture
def says(model, monkeypatch):
    """says(*ids): what the model answers from then on, whatever it is asked."""
    def script(*ids):
        left = iter(ids)
        monkeypatch.setattr("pantheon.generate.sample", lambda *_: next(left))

    return script


def control_token(model):
    """A control token that ends nothing, and its text."""
    tokenizer = model.tokenizer
    token = next(i for i in range(tokenizer.n_tokens) if tokenizer.is_special(i) and i not in tokenizer.eog_ids)
    return token, tokenizer.piece(token).decode()


def answer(model, stop):
    chunks = list(model.generate(PROMPT, GREEDY, max_tokens=8, stop=stop))
    return "".join(chunk.text for chunk in chunks), len(chunks), chunks[-1].finish_reason


def test_a_stop_that_is_a_control_token(model, says):
    control, text = control_token(model)
    a, b = (model.tokenizer.encode(c, add_bos=False)[0] for c in "ab")
    script = (a, b, control, a, b, a, b, a)
    says(*script)
    whole = answer(model, [])
    assert whole == ("abababa", 8, "length") and text not in whole[0]
    for stop, expected in (([text], ("ab", 3, "stop")),
                           ([f"b{text}"], ("a", 3, "stop")),            # it may begin before the token ...
                           ([f"{text}ab"], ("ab", 5, "stop")),          # ... end behind it ...
                           ([f"ab{text}ab"], ("", 5, "stop")),          # ... or both
                           ([text[1:]], whole), ([text[:-1]], whole),   # but not begin or end inside of it
                           ([f"{text}b"], whole)):
        says(*script)
        assert answer(model, stop) == expected, stop


def test_a_stop_with_an_end_of_generation(model, says):
    """The token ends the answer anyway; what stands before it in a stop string is no part of the answer."""
    end = min(model.tokenizer.eog_ids)
    a, b = (model.tokenizer.encode(c, add_bos=False)[0] for c in "ab")
    text = model.tokenizer.piece(end).decode()
    says(a, b, end)
    assert answer(model, [f"b{text}"]) == ("a", 3, "stop")
    says(a, b, end)
    assert answer(model, [f"b{text}!"]) == ("ab", 3, "stop")


# ---- DRY's breakers --------------------------------------------------------------------------------------------------

def test_dry_has_the_usual_breakers(model, monkeypatch):
    """A colon in the repeated text: what stands before it does not count, unless no breakers are asked for."""
    tokenizer = model.tokenizer
    colon, a, b, c = (tokenizer.encode(text, add_bos=False)[0] for text in ":abc")
    prompt = [a, b, colon, c, a, b, colon]
    seen = []

    def look(logits, params, recent):
        before = logits[c]
        token = pantheon.sample(logits, params, recent)
        seen.append(float(before - logits[c]))
        return token

    monkeypatch.setattr("pantheon.generate.sample", look)
    dry = {"dry_multiplier": 4.0, "dry_base": 1.0, "dry_allowed_length": 2, "temperature": 0.0}
    params = SamplingParams(**dry)
    list(model.generate(prompt, params, max_tokens=1))
    list(model.generate(prompt, SamplingParams(**dry, dry_breakers=[]), max_tokens=1))
    list(model.generate(prompt, SamplingParams(**dry, dry_breakers=[[a]]), max_tokens=1))
    assert seen == pytest.approx([0.0, 4.0, 4.0], abs=1e-4)
    assert params.dry_breakers is None           # the caller's own stay as they are
    logits = np.zeros(model.n_vocab, np.float32)
    pantheon.sample(logits, params, prompt)
    assert logits[c] == -4.0                     # sample() has none


def test_the_random_state_of_dry_is_the_callers(model):
    def draw(params, n):
        return [chunk.token for chunk in model.generate(PROMPT, params, max_tokens=n)]

    options = {"temperature": 3.0, "top_k": 0, "seed": 5, "dry_multiplier": 1.0}
    params = SamplingParams(**options)
    plain = SamplingParams(**options, dry_breakers=[])
    assert (draw(params, 6), draw(params, 6)) == (draw(plain, 6), draw(plain, 6))


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


CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]


@pytest.fixture
def templated(model):
    """The model with templates that show what they are given."""
    model.tokenizer.chat_templates = {
        "default": "{% for m in messages %}{{ m.content }} | {% endfor %}{{ x }}{{ add_generation_prompt }}",
        "tool_use": "T{% for x in (tools or []) + (documents or []) %}{{ x.name }}{{ x.title }}{% endfor %}",
    }
    return model


@pytest.mark.parametrize(("arguments", "text"), [
    ({}, "a | b c | True"),
    ({"template_args": {"x": [1]}}, "a | b c | [1]True"),
    ({"template_args": {"x": 1, "add_generation_prompt": False}}, "a | b c | 1False"),
    ({"tools": [{"name": "f"}], "documents": [{"title": "t"}]}, "Tft"),
    ({"template_args": {"template": "tool_use"}}, "T"),
    ({"continue_last": True}, "a | b c"),
])
def test_arguments_of_the_template(templated, monkeypatch, arguments, text):
    fed = []
    monkeypatch.setattr(templated.tokenizer, "encode_chat", lambda segments: fed.append(
        "".join(s.text for s in segments)) or PROMPT)
    list(templated.generate(CHAT, GREEDY, max_tokens=1, **arguments))
    assert fed == [text]


@pytest.mark.parametrize(("prompt", "arguments", "error", "match"), [
    (PROMPT, {"tools": []}, ValueError, "tools: only chat messages"),
    ("text", {"continue_last": True}, ValueError, "continue_last: only chat messages"),
    (CHAT, {"template_args": [1]}, TypeError, "template_args"),
    (CHAT, {"template_args": {1: 2}}, TypeError, "template_args"),
    (CHAT, {"template_args": {"template": [1]}}, TypeError, "template must be the name of a template, not list"),
    (CHAT, {"template_args": {"messages": []}}, ValueError, "template_args: 'messages'"),
    (CHAT, {"template_args": {"self": 1}}, ValueError, "template_args: 'self'"),
    (CHAT, {"tools": [], "template_args": {"tools": []}}, ValueError, "template_args: 'tools'"),
    (CHAT, {"continue_last": True, "tools": []}, ValueError, "continue_last: the template does not show"),
    (CHAT, {"continue_last": True, "template_args": {"add_generation_prompt": True}}, ValueError, "exclude each other"),
    (CHAT, {"continue_last": "reasoning"}, ValueError, "continue_last: the last message has no text in 'reasoning'"),
    (CHAT, {"template_args": {"template": "rag"}}, ValueError, "no chat template 'rag', but default, tool_use"),
    (CHAT, {"template_args": {"x": object()}}, TypeError, "x: object is not plain data"),
])
def test_wrong_arguments_of_the_template(templated, prompt, arguments, error, match):
    with pytest.raises(error, match=match):
        templated.generate(prompt, GREEDY, **arguments)
    assert not templated.open_states()


def test_an_answer_that_is_dropped_frees_its_state(model):
    chunks = model.generate(PROMPT, GREEDY, max_tokens=50)
    next(chunks)
    assert len(model.open_states()) == 1
    chunks.close()
    assert model.open_states() == []


# ---- folders whose tokenizer has less than the logits, or says less than its older files ----------------------------

@pytest.fixture
def folder(tmp_path):
    """A folder whose tokenizer.json lacks the last id, 287, and of whose files none names an end."""
    folder = shutil.copytree(HF / "llama-sharded", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer_config.json").write_text("{}")
    data = json.loads((folder / "tokenizer.json").read_text())
    last = max(data["model"]["vocab"], key=data["model"]["vocab"].get)
    assert data["model"]["vocab"].pop(last) == 287
    data["model"]["merges"] = [m for m in data["model"]["merges"]
                               if (m.replace(" ", "", 1) if isinstance(m, str) else "".join(m)) != last]
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return folder


def test_an_end_that_only_the_older_files_name(folder, monkeypatch):
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<stop>"}')
    (folder / "added_tokens.json").write_text('{"<stop>": 287}')
    monkeypatch.setattr("pantheon.generate.sample", lambda *_: 287)
    with pantheon.load(folder) as model:
        chunks = list(model.generate(PROMPT, GREEDY, max_tokens=5))
    assert [(chunk.text, chunk.token, chunk.finish_reason) for chunk in chunks] == [("", 287, "stop")]


def test_a_logit_that_no_token_stands_for_is_never_sampled(folder, monkeypatch):
    def highest_last(call):
        def changed(*arguments):
            logits = call(*arguments)
            logits[287] = 1e9
            return logits
        return changed

    for name in ("prefill", "forward"):
        monkeypatch.setattr(pantheon.Model, name, highest_last(getattr(pantheon.Model, name)))
    with pantheon.load(folder) as model:
        assert (model.tokenizer.n_tokens, model.n_vocab) == (287, 288)
        with model.new_state() as state:
            assert model.prefill(PROMPT, state).argmax() == 287
        for params in (GREEDY, SamplingParams(temperature=5.0, top_k=0, seed=1)):
            tokens = [chunk.token for chunk in model.generate(PROMPT, params, max_tokens=12)]
            assert tokens and max(tokens) < 287
