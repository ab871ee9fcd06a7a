"""Same input, same bits, wherever RWKV models promise it; in memory mode a prompt is one call by definition."""
import os
import signal
import threading

import numpy as np
import pytest
from support import rwkv_models
from support.rwkv_models import RECIPES

import pantheon

pytestmark = pytest.mark.equivalence

MODELS = ["rwkv7", "rwkvx-full", "rwkvx"]
EVERY_TOKEN = ["rwkv7", "rwkvx-full"]     # any cut of a prompt is the same


def same(a, b):
    return a.dtype == b.dtype == np.float32 and a.shape == b.shape and a.tobytes() == b.tobytes()


def tokens(name, n, salt=0):
    return rwkv_models.tokens(RECIPES[name.removesuffix("-full")], n, salt)


@pytest.fixture
def load(rwkv, monkeypatch):
    opened = []

    def load(name, **options):
        path = rwkv(name.removesuffix("-full"))
        if name.endswith("-full"):
            monkeypatch.setenv("RWKVX_MODE", "full")
        opened.append(pantheon.load(path, **options))
        return opened[-1]

    yield load
    for model in opened:
        model.close()


def stepwise(model, ids, **options):
    with model.new_state(**options) as state:
        return np.stack([model.forward(token, state) for token in ids])


def prompt_and_steps(model, name, state=None, n=70):
    """Logits of a prompt, all positions, then of twenty single tokens."""
    state = model.new_state() if state is None else state
    first = model.prefill(tokens(name, n), state, all_logits=True)
    return np.concatenate([first, [model.forward(token, state) for token in tokens(name, 20, 1)]])


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("name", EVERY_TOKEN)
def test_prefill_is_single_steps_in_any_chunks(load, name, quantize):
    ids = tokens(name, 300)
    for threads in (1, 2):
        model = load(name, threads=threads, quantize=quantize)
        steps = stepwise(model, ids)
        for chunk in (1, 7, 64, 300):
            state = model.new_state()
            parts = [model.prefill(ids[i:i + chunk], state, all_logits=True) for i in range(0, len(ids), chunk)]
            assert same(np.concatenate(parts), steps), chunk
            assert state.pos == 300


@pytest.mark.parametrize("kv_type", ["f16", "f32", "q8_0", "q4_0"])
def test_full_mode_with_every_kv_type(load, kv_type):
    model = load("rwkvx-full")
    ids = tokens("rwkvx", 90)
    with model.new_state(kv_type=kv_type) as state:
        assert state.kv_type == kv_type
        assert same(model.prefill(ids, state, all_logits=True), stepwise(model, ids, kv_type=kv_type))


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_thread_counts_agree(load, name, quantize):
    results = [prompt_and_steps(load(name, threads=n, quantize=quantize), name, n=270) for n in (1, 2, 3, 5)]
    assert all(same(results[0], other) for other in results[1:])


def test_threads_may_change_under_a_state(load):
    model = load("rwkvx", threads=1)
    expected = prompt_and_steps(model, "rwkvx")
    state = model.new_state()
    got = [model.prefill(tokens("rwkvx", 70), state, all_logits=True)]
    for i, token in enumerate(tokens("rwkvx", 20, 1)):
        model.threads = 1 + i % 4
        got.append(model.forward(token, state)[None])
    assert same(np.concatenate(got), expected)


def test_a_prompt_of_one_token_is_a_single_step(load):
    model = load("rwkvx")
    ids = tokens("rwkvx", 12)
    state = model.new_state()
    assert same(np.stack([model.prefill([token], state) for token in ids]), stepwise(model, ids))


def test_last_logits_are_those_of_the_last_position(load):
    model = load("rwkvx")
    ids = tokens("rwkvx", 300)
    assert same(model.prefill(ids, model.new_state()), model.prefill(ids, model.new_state(), all_logits=True)[-1])


def test_memory_mode_replaces_what_was_remembered(load):
    """Two calls are not one, and the second forgets the first's keys but not its recurrent state (spec section 4)."""
    model = load("rwkvx")
    ids = tokens("rwkvx", 60)
    assert model.whole_prompts
    halves, whole = model.new_state(), model.new_state()
    model.prefill(ids[:30], halves)
    second = model.prefill(ids[30:], halves, all_logits=True)
    assert np.abs(second - model.prefill(ids, whole, all_logits=True)[30:]).max() > 1e-3
    assert np.abs(second - model.prefill(ids[30:], model.new_state(), all_logits=True)).max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_batched_and_interleaved_sequences_are_alone(load, name):
    model = load(name, threads=2)
    n = 19
    lengths = [0, 1, 5, *range(2, n - 1)]
    alone, batched, mixed = ([model.new_state() for _ in range(n)] for _ in range(3))
    for states in (alone, batched, mixed):
        for length, state in zip(lengths, states, strict=True):
            if length:
                model.prefill(tokens(name, length), state)
    ids = np.stack([tokens(name, n, 10 + i) for i in range(6)])
    expected = [np.stack([model.forward(token, state) for token in ids[:, i]]) for i, state in enumerate(alone)]
    together = np.stack([model.forward_batch(row, batched) for row in ids])
    turns = np.stack([[model.forward(token, state) for token, state in zip(row, mixed, strict=True)] for row in ids])
    for i in range(n):
        assert same(together[:, i], expected[i])
        assert same(turns[:, i], expected[i])
    assert [state.pos for state in batched] == [length + 6 for length in lengths]


@pytest.mark.parametrize("name", MODELS)
def test_reset_is_fresh(load, name):
    model = load(name)
    expected = prompt_and_steps(model, name)
    state = model.new_state()
    model.prefill(tokens(name, 90, 5), state)
    state.reset()
    assert state.pos == 0
    assert same(prompt_and_steps(model, name, state), expected)
    state.reset()
    assert same(np.stack([model.forward(t, state) for t in tokens(name, 9)]), stepwise(model, tokens(name, 9)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("before", [0, 1, 40])
def test_checkpoint_and_go_on(load, name, before):
    model = load(name)

    def start():
        state = model.new_state()
        if before:
            model.prefill(tokens(name, before), state)
            model.forward(3, state)
        return state

    expected = np.stack([model.forward(t, state) for state in [start()] for t in tokens(name, 20, 1)])
    state = start()
    checkpoint = state.checkpoint()
    assert checkpoint.nbytes > 0
    for salt in (2, 3):                   # it may be used again
        model.prefill(tokens(name, 50, salt), state)
        state.restore(checkpoint)
        assert state.pos == checkpoint.pos
        assert same(np.stack([model.forward(t, state) for t in tokens(name, 20, 1)]), expected)


def test_truncate_goes_to_the_start_or_nowhere(load):
    model = load("rwkv7")
    state = model.new_state()
    model.prefill(tokens("rwkv7", 20), state)
    state.truncate(20)
    with pytest.raises(ValueError, match="cannot go back to position 7"):
        state.truncate(7)
    assert same(model.forward(5, state), stepwise(model, [*tokens("rwkv7", 20), 5])[-1])
    state.truncate(0)
    assert same(model.prefill(tokens("rwkv7", 9), state, all_logits=True), stepwise(model, tokens("rwkv7", 9)))


def test_an_interrupted_prompt_leaves_a_state_that_says_so(load):
    """Ctrl-C within a prompt: the state refuses use until it is reset or restored."""
    model = load("rwkvx", threads=1)
    state = model.new_state(n_ctx=200_000)
    checkpoint = state.checkpoint()
    long = np.resize(tokens("rwkvx", 5000), 100_000)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.prefill(long, state)
    timer.join()
    assert state.pos == 0
    for call in (lambda: model.forward(1, state), lambda: model.prefill([1, 2], state), state.checkpoint):
        with pytest.raises(RuntimeError, match="interrupted"):
            call()
    state.restore(checkpoint)
    assert same(prompt_and_steps(model, "rwkvx", state), prompt_and_steps(model, "rwkvx"))


def test_embedding_override_equals_the_token(load, rwkv):
    model = load("rwkvx")
    table = rwkv_models.tensors(RECIPES["rwkvx"])["rwkv.emb.weight"]
    a, b = model.new_state(), model.new_state()
    b.embd_override = table[17]
    assert same(model.forward(17, a), model.forward(3, b))
    b.embd_override = None
    assert same(model.forward(18, a), model.forward(18, b))


def test_a_state_has_its_context(load):
    model = load("rwkvx")
    with model.new_state(n_ctx=16) as state:
        model.prefill(tokens("rwkvx", 15), state)
        model.forward(1, state)
        with pytest.raises(pantheon.ContextFullError):
            model.forward(1, state)
