"""The cost function against what is really allocated."""
import pytest

import pantheon
from pantheon._core import admission

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("part", [0.07, 0.5, 1.0])
def test_a_state_costs_what_it_says(tiny, kv_type, part):
    with pantheon.load(tiny) as model:
        n_ctx = max(1, int(model.n_ctx_train * part))
        cost = model.cost(n_ctx, kv_type)
        with model.new_state(n_ctx, kv_type) as state:
            assert (cost.n_ctx, cost.kv_type) == (state.n_ctx, state.kv_type)
            assert cost.kv_bytes + cost.state_bytes == pytest.approx(state.nbytes, rel=0.01)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("window", [1, 13, 64, 100000])
def test_a_prefill_takes_what_it_says(tiny, window, threads):
    with pantheon.load(tiny, threads=threads) as model, model.new_state(model.n_ctx_train) as state:
        cost = model.cost(window=window)
        assert cost.window == min(window, model.n_ctx_train, 512)
        assert admission.work_bytes(model) == 0
        tokens = [5] * model.n_ctx_train
        for first in range(0, len(tokens), window):
            logits = model.prefill(tokens[first:first + window], state)
        assert cost.scratch_bytes == pytest.approx(admission.work_bytes(model), rel=0.01)
        assert cost.logits_bytes == logits.nbytes


def test_only_positions_grow(llama):
    with pantheon.load(llama) as model:
        short, long = model.cost(8), model.cost(64)
        assert long.kv_bytes == 8 * short.kv_bytes
        assert short[3:] != long[3:] and short[4:] == long[4:]
        assert model.cost(57) == long
        assert long.total == sum(long[3:7])
        assert model.cost().n_ctx == min(4096, model.n_ctx_train)


def test_a_state_touches_what_its_positions_take(llama):
    """Bytes of a state with room to spare: up to a page more per head, never more than the whole."""
    with pantheon.load(llama) as model, model.new_state(model.n_ctx_train, "f32") as state:
        empty = admission.touched_bytes(state)
        model.prefill([5] * 8, state)
        some = admission.touched_bytes(state)
        model.prefill([5] * (state.n_ctx - 8), state)
        assert empty < some <= admission.touched_bytes(state) == state.nbytes


@pytest.mark.parametrize(("arguments", "match"), [
    ({"n_ctx": 0}, r"n_ctx is 0, not in 1\.\."), ({"n_ctx": -5}, "n_ctx is -5"), ({"n_ctx": 2**70}, "n_ctx is"),
    ({"kv_type": "q3_0"}, "not one of f16, f32, q8_0, q4_0"), ({"window": 0}, r"window is 0, not in 1\.\."),
])
def test_bad_arguments(llama, arguments, match):
    with pantheon.load(llama) as model, pytest.raises(ValueError, match=match):
        model.cost(**arguments)
