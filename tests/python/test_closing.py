"""close() from anywhere: another thread, a signal handler, user code in the middle of a call's arguments."""
import copy
import gc
import pickle
import threading
import time

import numpy as np
import pytest
from support.every_architecture import NAMES, model_path

import pantheon
from pantheon._core.base.weak import WeakRegistry
from pantheon._core.python import state as states

LONG = 4000                              # tokens of a prompt whose prefill takes a while on the default model


def wait_until_fed(state):
    """Until a prefill in another thread has done its first window, and is in one of the next."""
    while state.pos == 0:
        time.sleep(0.001)


class Saboteur:
    """An argument that runs `deed` whenever anything is asked of it, and answers like the value it stands for."""

    def __init__(self, value, deed):
        self.value, self.deed = value, deed

    def __index__(self):
        self.deed()
        return self.value

    def __array__(self, dtype=None, copy=None):
        self.deed()
        return np.array(self.value, dtype)

    def __iter__(self):
        self.deed()
        return iter(self.value)

    def __len__(self):
        self.deed()
        return len(self.value)

    def __bool__(self):
        self.deed()
        return bool(self.value)

    def __hash__(self):
        self.deed()
        return hash(self.value)

    def __eq__(self, other):
        self.deed()
        return self.value == other

    def __le__(self, other):
        self.deed()
        return self.value <= other

    def __lt__(self, other):
        self.deed()
        return self.value < other

    __ge__ = __gt__ = __le__


CALLS = {
    "new_state": lambda m, s, bad: m.new_state(bad(16)),
    "new_state kv_type": lambda m, s, bad: m.new_state(16, bad("f16")),
    "forward": lambda m, s, bad: m.forward(bad(1), s),
    "prefill": lambda m, s, bad: m.prefill(bad([1, 2, 3]), s),
    "prefill all": lambda m, s, bad: m.prefill([1, 2, 3], s, bad(True)),
    "forward_batch": lambda m, s, bad: m.forward_batch(bad([1]), [s]),
    "forward_batch states": lambda m, s, bad: m.forward_batch([1], bad([s])),
    "step_begin": lambda m, s, bad: m.step_begin(bad(1), s),
    "threads": lambda m, s, bad: setattr(m, "threads", bad(2)),
    "cost": lambda m, s, bad: m.cost(bad(16)),
    "cost window": lambda m, s, bad: m.cost(16, None, bad(4)),
    "cost kv_type": lambda m, s, bad: m.cost(16, bad("f16")),
    "admit": lambda m, s, bad: m.admit(bad(3)),
    "admit max_tokens": lambda m, s, bad: m.admit(3, bad(3)),
    "admit n_ctx": lambda m, s, bad: m.admit(3, 3, bad(16)),
    "admit window": lambda m, s, bad: m.admit(3, 3, window=bad(4)),
    "admit kv_type": lambda m, s, bad: m.admit(3, 3, kv_type=bad("f16")),
    "admit checkpoints": lambda m, s, bad: m.admit(3, 3, checkpoints=bad(1)),
    "admit state": lambda m, s, bad: m.admit(bad(3), state=s),
    "reserve": lambda m, s, bad: m.reserve(bad(3)),
    "reserve state": lambda m, s, bad: m.reserve(3, bad(1), state=s),
    "reserve timeout": lambda m, s, bad: m.reserve(3, 1, timeout=bad(0)),
    "generate": lambda m, s, bad: list(m.generate(bad([1, 2, 3]), max_tokens=2)),
    "generate max_tokens": lambda m, s, bad: list(m.generate([1, 2, 3], max_tokens=bad(2))),
    "generate state": lambda m, s, bad: list(m.generate(bad([1, 2, 3]), max_tokens=2, state=s)),
    "truncate": lambda m, s, bad: s.truncate(bad(0)),
    "embd_override": lambda m, s, bad: setattr(s, "embd_override", bad([0.0] * m.config["n_embd"])),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("what", ["model", "state"])
def test_arguments_that_close(llama, call, what):
    """Whatever code an argument runs, the call ends with an error of its own or as if nothing had been."""
    model = pantheon.load(llama)
    state = model.new_state(32)

    def bad(value):
        return Saboteur(value, (model if what == "model" else state).close)

    try:
        call(model, state, bad)
    except ValueError as error:
        assert "closed" in str(error) or "is not" in str(error) or "not one of" in str(error)
    except TypeError as error:
        assert "Saboteur" in str(error) or "must be" in str(error)
    model.close()
    gc.collect()


def test_dies_whose_length_lies(llama):
    """len() said one; the numbers go to an array on the stack."""
    class Dies(list):
        def __len__(self):
            return 1

    with pytest.raises(ValueError, match="dies: 100 given"):
        pantheon.load(llama, dies=Dies(range(100)))


def test_tokens_that_change_while_they_are_read(llama):
    """The engine reads checked copies: what another thread writes into the array is no way outside the vocabulary."""
    with pantheon.load(llama) as model:
        given, stop = np.ones(60, np.uint32), threading.Event()

        def scribble():
            while not stop.is_set():
                given[:] = 2**31
                given[:] = 1

        thread = threading.Thread(target=scribble)
        thread.start()
        state = model.new_state(64)
        good = 0
        try:
            while good < 20:
                try:
                    model.prefill(given, state)
                    good += 1
                except ValueError as error:          # seen when it was copied
                    assert "is not in" in str(error)
                state.reset()
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("use", ["prefill", "forward_batch", "generate", "reserve", "admit", "new_state", "checkpoint"])
def test_close_against_calls_of_other_threads(llama, use):
    """Closed in the middle of everything: ValueError in the threads, and no memory that anyone still reads."""
    def work(model, errors):
        try:
            while True:
                if use == "generate":
                    list(model.generate([1, 2, 3], max_tokens=4))
                elif use == "reserve":
                    model.reserve(3, 4).release()
                elif use == "admit":
                    model.admit(3, 4)
                elif use == "new_state":
                    model.new_state(16)
                else:
                    state = model.new_state(64)
                    if use == "prefill":
                        model.prefill([1] * 60, state)
                    elif use == "forward_batch":
                        model.forward_batch([1, 2], [state, model.new_state(16)])
                    else:
                        model.prefill([1] * 8, state)
                        state.restore(state.checkpoint())
        except BaseException as error:
            errors.append(error)

    for _ in range(20):
        model = pantheon.load(llama)
        model.use_prefix_cache(1 << 20)
        errors = []
        threads = [threading.Thread(target=work, args=(model, errors)) for _ in range(3)]
        for thread in threads:
            thread.start()
        model.close()
        for thread in threads:
            thread.join(60)
        assert len(errors) == 3
        for error in errors:
            assert type(error) is ValueError and "closed" in str(error), repr(error)
        assert model.open_states() == []


def test_close_ends_a_running_prefill(default_model):
    """It does not wait for it, and the call ends in the middle."""
    model = pantheon.load(default_model)
    state = model.new_state(LONG + 8)
    outcome = []

    def run():
        try:
            model.prefill([100] * LONG, state)
        except ValueError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until_fed(state)
    model.close()
    assert model.closed and state.closed and not outcome
    thread.join(60)
    assert outcome == ["the model is closed"]


def test_a_closed_state_ends_its_own_prefill_only(default_model):
    with pantheon.load(default_model) as model:
        state = model.new_state(LONG + 8)
        outcome = []

        def run():
            try:
                model.prefill([100] * LONG, state)
            except ValueError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        wait_until_fed(state)
        state.close()
        thread.join(60)
        assert outcome == ["the state is closed"]
        assert model.forward(1, model.new_state(8)).shape == (model.n_vocab,)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_goes_on_after_its_checkpoint_was_dropped(name, tmp_path, monkeypatch):
    with pantheon.load(model_path(name, tmp_path, monkeypatch)) as model:
        state = model.new_state(32)
        model.forward(1, state)
        checkpoint = state.checkpoint()
        assert checkpoint.valid
        state.close()
        assert not checkpoint.valid and checkpoint.nbytes == 0
        state = model.new_state(32)
        model.forward(1, state)
        checkpoint = state.checkpoint()
        del state
        gc.collect()
        assert not checkpoint.valid and checkpoint.nbytes == 0


def test_nothing_is_copied_or_pickled(llama):
    """A second object over the same memory would end the first one's."""
    with pantheon.load(llama) as model:
        model.use_prefix_cache(1 << 20)
        state = model.new_state(16)
        generation = model.generate([1, 2, 3], max_tokens=8)
        first = next(generation)
        things = (model, state, state.checkpoint(), generation, model.reserve(3), model.prefix_cache)
        for thing in things:
            for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError):
                    attempt(thing)
        rest = list(generation)
        assert len(rest) == 7 and first is not None


def test_checkpoints_and_states_are_not_made_by_hand():
    for cls in (pantheon.Checkpoint, pantheon.State):
        with pytest.raises(TypeError, match="made by"):
            cls()
    empty = states.State.__new__(states.State)
    with pytest.raises(ValueError, match="closed"):
        empty.reset()


def test_registry_while_others_add():
    """Listing never fails for an addition in between, and holds nothing alive."""
    class Thing:
        pass

    registry, stop = WeakRegistry(), threading.Event()

    def add():
        while not stop.is_set():
            registry.add(Thing())

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept = Thing()
    registry.add(kept)
    for _ in range(2000):
        assert kept in registry.alive()
    stop.set()
    for thread in threads:
        thread.join()
    assert registry.alive() == [kept]
    registry.discard(kept)
    assert registry.alive() == [] and kept not in registry
