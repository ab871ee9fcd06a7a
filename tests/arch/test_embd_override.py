"""embd_override is forward's alone: prompts and batches take their tokens' embeddings, in every architecture."""
import numpy as np
import pytest
from support import every_architecture

import pantheon

pytestmark = pytest.mark.equivalence


@pytest.mark.parametrize("name", every_architecture.NAMES)
def test_only_forward_looks_at_it(name, tmp_path, monkeypatch):
    calls = {"one": lambda state: model.prefill([5], state), "three": lambda state: model.prefill([5, 6, 7], state),
             "all": lambda state: model.prefill([5, 6, 7], state, all_logits=True),
             "batch": lambda state: model.forward_batch([5], [state]), "forward": lambda state: model.forward(5, state)}
    with (pantheon.load(every_architecture.model_path(name, tmp_path, monkeypatch), threads=1) as model,
          model.new_state(64) as state):
        row = np.linspace(-1, 1, model.config["n_embd"], dtype=np.float32)
        for call, run in calls.items():
            state.reset()
            expected = run(state).tobytes()
            state.reset()
            state.embd_override = row
            assert (run(state).tobytes() == expected) == (call != "forward"), call
            state.embd_override = None
