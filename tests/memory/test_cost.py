"""The cost function against the sizes that states, caches and work buffers report; test_allocations.py counts bytes."""
import itertools
import json

import pytest
from support import every_architecture

import pantheon
from pantheon._core.python import admission
from pantheon._core.registry import architectures
from pantheon.cli import main


@pytest.fixture
def path(name, tmp_path, monkeypatch):
    return every_architecture.model_path(name, tmp_path, monkeypatch)


every_model = pytest.mark.parametrize("name", every_architecture.NAMES)


def test_no_architecture_is_left_out(tmp_path, monkeypatch):
    found = set()
    for name in every_architecture.NAMES:
        with pantheon.load(every_architecture.model_path(name, tmp_path, monkeypatch)) as model:
            found.add(model.arch_name)
    assert found == set(architectures())


@every_model
def test_a_state_costs_what_it_says(name, path):
    with pantheon.load(path) as model:
        for kv_type, part in itertools.product(every_architecture.kv_types(name), (0.07, 0.5, 1.0)):
            n_ctx = max(1, int(min(model.n_ctx_train, 4096) * part))
            cost = model.cost(n_ctx, kv_type)
            with model.new_state(n_ctx, kv_type) as state:
                assert (cost.n_ctx, cost.kv_type) == (state.n_ctx, kv_type) == (state.n_ctx, state.kv_type)
                assert cost.kv_bytes + cost.state_bytes == pytest.approx(state.nbytes, rel=0.01)


@every_model
def test_a_checkpoint_costs_what_it_says(path):
    """In memory mode, where prompts are fed whole, an RWKV-X checkpoint also has what it selected."""
    with pantheon.load(path) as model, model.new_state(64) as state:
        model.prefill([5] * 9, state)
        held = state.checkpoint().nbytes
        if model.whole_prompts:
            assert 0 < model.cost().checkpoint_bytes < held
        else:
            assert model.cost().checkpoint_bytes == held
        assert (held > 0) == (model.arch_name in ("qwen35", "qwen35moe", "rwkvx"))


def test_the_table_of_info_is_that_price(long_context, capsys):
    """`pantheon info MODEL --ctx 32768 --kv q8_0`, against a state of that size."""
    assert main(["info", str(long_context), "--ctx", "32768", "--kv", "f32", "--json"]) == 0
    row, = json.loads(capsys.readouterr().out)["states"]
    with pantheon.load(long_context) as model:
        assert row["n_ctx"] == 32768 and row["bytes"] == model.cost(32768, "f32").total
        with model.new_state(32768, "f32") as state:
            assert row["kv_bytes"] + row["state_bytes"] == pytest.approx(state.nbytes, rel=0.01)
    assert main(["info", str(long_context), "--ctx", "32768", "--kv", "q8_0"]) == 0
    assert any(line.split()[:1] == ["32768"] for line in capsys.readouterr().out.splitlines())
    assert main(["info", str(long_context), "--ctx", "32769"]) == 1
    assert "n_ctx is 32769, not in 1..32768" in capsys.readouterr().err


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("window", [1, 13, 64, 100000])
def test_a_prefill_takes_what_it_says(tiny, window, threads):
    with pantheon.load(tiny, threads=threads) as model, model.new_state(model.n_ctx_train) as state:
        cost = model.cost(window=window)
        assert cost.window == min(window, model.n_ctx_train, 512)
        assert admission.work_bytes(model) == 0
        tokens = [5] * min(model.n_ctx_train, 3 * window)
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
