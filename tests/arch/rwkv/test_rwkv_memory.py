"""What an RWKV-X sequence costs, and that a prompt in memory mode is priced and fed whole."""
import pytest
from support import rwkv_models

import pantheon
from pantheon._core.memory import ladder, memwatch
from pantheon._core.python import admission


@pytest.fixture(params=sorted(rwkv_models.RECIPES))
def model(request, rwkv):
    with pantheon.load(rwkv(request.param), threads=2) as model:
        yield model


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("n_ctx", [8, 100, 512])
def test_a_state_costs_what_it_says(model, kv_type, n_ctx):
    cost = model.cost(n_ctx, kv_type)
    with model.new_state(n_ctx, kv_type) as state:
        assert cost.kv_type == state.kv_type
        assert cost.kv_bytes + cost.state_bytes == pytest.approx(state.nbytes, rel=0.01)


def test_a_prompt_takes_what_it_says(model):
    """The price has the work buffers, and what a prompt holds while it is worked through."""
    short, long = model.cost(window=10), model.cost(window=300)
    with model.new_state(512) as state:
        model.prefill([5] * 10, state)
        assert 0 < admission.work_bytes(model) < short.scratch_bytes < long.scratch_bytes
        if model.whole_prompts:
            assert (short.window, long.window) == (10, 300)


def test_a_whole_prompt_is_not_cut(model):
    """Its logits depend on where it is cut: not even a short window of the ladder does that."""
    memwatch.start()
    try:
        ladder.configure(window=64, window_tight=32, window_critical=16)
        window = model.admit(300).prefill_window
    finally:
        ladder.configure()
    assert window >= 300 if model.whole_prompts else window == 64
