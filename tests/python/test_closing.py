"""close() from anywhere: another thread, a signal handler, user code in the middle of a call's arguments."""
import copy
import gc
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from support.every_architecture import NAMES, model_path

import pantheon
from pantheon._core.base.weak import WeakRegistry
from pantheon._core.python import state as states

LONG = 4000                              # tokens of a prompt whose prefill takes a while on the default model


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


def closed_in_the_middle(model, state, what):
    """Text of the error that ends a long prefill of another thread when `what` is closed."""
    outcome = []

    def run():
        try:
            model.prefill([100] * LONG, state)
        except ValueError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    while state.pos == 0:                # until it has done its first window, and is in one of the next
        time.sleep(0.001)
    what.close()
    assert state.closed and not outcome          # it does not wait
    thread.join(60)
    return outcome[0]


def test_close_ends_a_running_prefill(default_model):
    model = pantheon.load(default_model)
    assert closed_in_the_middle(model, model.new_state(LONG + 8), model) == "the model is closed"
    assert model.closed


def test_a_closed_state_ends_its_own_prefill_only(default_model):
    with pantheon.load(default_model) as model:
        state = model.new_state(LONG + 8)
        assert closed_in_the_middle(model, state, state) == "the state is closed"
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


def test_checkpoints_and_states_are_not_made_by_hand(llama):
    for cls in (pantheon.Checkpoint, pantheon.State):
        with pytest.raises(TypeError, match="made by"):
            cls()
    empty = states.State.__new__(states.State)
    with pytest.raises(ValueError, match="closed"):
        empty.reset()
    never = pantheon.Checkpoint.__new__(pantheon.Checkpoint)
    assert not never.valid and never.nbytes == 0
    with pantheon.load(llama) as model, model.new_state(16) as state:
        with pytest.raises(ValueError, match="another state's"):
            state.restore(never)
        model.forward(1, state)          # nobody has it


def test_a_model_closes_while_another_thread_is_in_its_prefix_cache(llama):
    model = pantheon.load(llama)
    cache, state = model.use_prefix_cache(1 << 24), model.new_state(32)
    model.prefill([1] * 20, state)
    cache.put([1] * 20, state)
    held, done = threading.Event(), threading.Event()

    def hold():
        with cache._lock:
            held.set()
            done.wait()

    holder, closer = threading.Thread(target=hold), threading.Thread(target=model.close)
    holder.start()
    held.wait()
    closer.start()
    closer.join(60)
    waits = closer.is_alive()
    done.set()
    holder.join()
    closer.join()
    assert not waits and model.closed and state.closed and len(cache) == 0 == cache.nbytes


def test_what_a_handler_raises_while_checkpoints_end(llama):
    """Wherever it comes: the state is free again, and no checkpoint is left beyond its position."""
    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pantheon.load(llama) as model:
            state = model.new_state(16)
            for i in range(40):
                model.prefill([1, 2, 3], state)
                checkpoints = [state.checkpoint() for _ in range(2000)]
                end = state.reset if i % 2 else lambda: state.truncate(0)
                with pytest.raises(Stop):
                    signal.setitimer(signal.ITIMER_REAL, 2e-5 * (i + 1))
                    end()
                    while True:
                        time.sleep(0.001)
                assert state.pos == 0 or all(c.valid for c in checkpoints)
                state.reset()
                assert not any(c.valid for c in checkpoints)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_garbage_frees_states_before_their_model(llama):
    """What a cycle of references holds is cleared in any order, and a model that still has states is not freed. The
    collector clears in the order of its list, to whose end it moves what it first took for garbage: here the state,
    behind its handle."""
    code = """
        import gc, sys
        import pantheon

        gc.disable()
        early = []
        model = pantheon.load(sys.argv[1])
        state = model.new_state(16)
        early += [model, *gc.get_referents(state)]
        cycle = [state]
        cycle.append(cycle)
        del model, state
        gc.collect()
        early.clear()
        del cycle
        gc.collect()
        print(sys.argv[1] in open("/proc/self/maps").read())
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(llama)], capture_output=True, text=True,
                            timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "False\n", "")


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
