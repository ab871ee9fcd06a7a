"""LongRoPE: short or long factors follow what a sequence can reach, not the room that its state has."""
import numpy as np
import pytest
from support.fixture_paths import TINY

import pantheon
from pantheon import ContextFullError, SamplingParams
from pantheon.cli.session import Session

GREEDY = SamplingParams(temperature=0)
SHORT = 48                              # positions of the short factors
PROMPT = np.random.default_rng(21).integers(3, 250, 30).tolist()


@pytest.fixture
def model():
    with pantheon.load(TINY / "phi3-longrope.gguf") as model:
        assert model.config.rope_orig_ctx == SHORT and model.n_ctx_train >= 96
        yield model


def logits(model, n_ctx, reach=None, prompt=PROMPT):
    with model.new_state(n_ctx=n_ctx, reach=reach) as state:
        return model.prefill(prompt, state)


def answer(model, prompt, n, **options):
    return [(c.token, c.logprob) for c in model.generate(prompt, GREEDY, max_tokens=n, logprobs=True, **options)]


def test_the_reach_decides_and_n_ctx_without_one(model):
    short, long = logits(model, SHORT), logits(model, SHORT + 1)
    assert np.abs(short - long).max() > 0.1
    for n_ctx, reach, expected in ((96, SHORT, short), (96, 31, short), (96, SHORT + 1, long), (96, 96, long),
                                   (SHORT, SHORT, short), (SHORT, 96, long), (96, None, long)):
        assert logits(model, n_ctx, reach).tobytes() == expected.tobytes(), (n_ctx, reach)


def test_a_state_keeps_its_rotation_until_it_is_reset(model):
    with model.new_state(n_ctx=96, reach=40) as state:
        assert (state.n_ctx, state.reach) == (96, SHORT)
        short = model.prefill(PROMPT, state)
        state.set_reach(SHORT)           # nothing changes
        for reach in (SHORT + 1, 96, None):
            with pytest.raises(ValueError, match="another rotation than the 30 positions of the state: reset it first"):
                state.set_reach(reach)
        state.reset()
        assert model.prefill(PROMPT, state).tobytes() == short.tobytes()
        state.reset()
        state.set_reach(None)
        assert state.reach == 96
        assert model.prefill(PROMPT, state).tobytes() == logits(model, 96).tobytes()


def test_a_state_is_full_where_its_rotation_ends(model):
    with model.new_state(n_ctx=96, reach=40) as state:
        model.prefill([5] * SHORT, state)
        with pytest.raises(ContextFullError, match="48 of reach 48 are used"):
            model.forward(5, state)
        with pytest.raises(ContextFullError, match="0 of reach 48 are free"):
            model.generate([5], GREEDY, state=state)
        state.truncate(40)
        chunks = list(model.generate([5], GREEDY, state=state))
        assert chunks[-1].finish_reason in ("length", "stop") and state.pos <= SHORT


@pytest.mark.parametrize("reach", [0, -1, 2**31, 2**70, 129])
def test_bad_reach(model, reach):
    with pytest.raises(ValueError, match="reach"):
        model.new_state(reach=reach)
    with model.new_state() as state, pytest.raises(ValueError, match="reach"):
        state.set_reach(reach)
    with pytest.raises(TypeError, match="reach must be an integer, not float"):
        model.new_state(reach=1.0)


def test_other_rotations_have_one_reach(llama):
    with pantheon.load(llama) as model, model.new_state(n_ctx=32, reach=1) as state:
        assert state.reach == state.n_ctx == 32
        model.prefill(PROMPT, state)
        state.set_reach(5)
        assert model.forward(5, state).shape == (model.n_vocab,)


def test_generate_takes_what_prompt_and_answer_reach(model):
    with model.new_state(n_ctx=SHORT) as short, model.new_state(n_ctx=96) as long:
        assert answer(model, PROMPT, 18) == answer(model, PROMPT, 18, state=short)
        assert answer(model, PROMPT, 19) == answer(model, PROMPT, 19, state=long)


def test_a_larger_context_does_not_change_a_short_answer(model):
    def said(n_ctx, n):
        with Session(model, n_ctx) as session:
            return [chunk.token for chunk in session.answer(PROMPT, GREEDY, n, [])]

    assert said(SHORT, 12) == said(96, 12)
    with model.new_state(n_ctx=96) as long:
        assert said(96, 30) == [token for token, _ in answer(model, PROMPT, 30, state=long)]


def test_a_conversation_that_outgrows_the_short_range_is_fed_anew(model):
    with Session(model, 96) as session:
        said = [chunk.token for chunk in session.answer(PROMPT, GREEDY, 4, [])]
        second = PROMPT + said + [7, 8]
        list(session.answer(second, GREEDY, 4, []))
        assert session.timing.n_cached >= len(PROMPT)
        third = second + [9] * 10
        got = [chunk.token for chunk in session.answer(third, GREEDY, 10, [])]
        assert session.timing.n_cached == 0 and session.timing.n_prompt == len(third)
        list(session.answer(PROMPT, GREEDY, 4, []))      # and back: short again
        assert session.timing.n_cached == 0 and session.state.reach == SHORT
    assert got == [token for token, _ in answer(model, third, 10)]


def test_cached_prefixes_have_the_rotation_of_the_request(model):
    prompts = [(PROMPT, 4), (PROMPT + [7], 40), (PROMPT + [8], 4), (PROMPT + [9], 40)]
    cold = [answer(model, prompt, n) for prompt, n in prompts]
    cache = model.use_prefix_cache(64 << 20, n_ctx=96)
    assert [answer(model, prompt, n) for prompt, n in prompts] == cold
    assert len(cache) == 2 and sorted(entry.state.reach for entry in cache._entries) == [SHORT, 96]
