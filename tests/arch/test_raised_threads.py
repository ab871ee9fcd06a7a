"""A model's threads may be changed whatever states there are: the same bits, and memory where more of it is needed."""
import pytest
from support import every_architecture

import pantheon

pytestmark = pytest.mark.equivalence

PROMPT = [5, 6, 7, 8]


def answers(model, state):
    """Logits of single tokens, of a prompt and of a batch, one after the other."""
    state.reset()
    rows = [model.forward(5, state), model.prefill(PROMPT, state), model.forward(6, state),
            model.forward_batch([7], [state])]
    return b"".join(row.tobytes() for row in rows)


@pytest.mark.parametrize("name", every_architecture.NAMES)
def test_threads_raised_after_a_state_was_made(name, tmp_path, monkeypatch):
    with pantheon.load(every_architecture.model_path(name, tmp_path, monkeypatch), threads=1) as model:
        with model.new_state(64) as state:
            expected = answers(model, state)
            for threads in (2, 5, 1, 3):
                model.threads = threads
                assert answers(model, state) == expected, threads
                held = state.nbytes
                with model.new_state(64) as fresh:           # made for as many
                    assert answers(model, fresh) == expected
                    assert fresh.nbytes <= held
        with model.new_state(64) as state:                   # the first use after the change is a single token
            model.threads = 48
            assert len(model.forward(5, state)) == model.n_vocab
