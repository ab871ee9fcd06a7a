"""A generation that several threads have: one call at a time, and an end that gives everything back."""
import sys
import threading

import pytest

import pantheon

GREEDY = pantheon.SamplingParams(temperature=0)


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


@pytest.fixture
def quick_switches():
    """Threads change places every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_share_a_generation(model, quick_switches):
    """Each chunk goes to one of them, the others get BusyError, and at the end nothing is held."""
    expected = [chunk.token for chunk in model.generate([1, 2, 3], GREEDY, max_tokens=60)]
    for _ in range(2):
        generation = model.generate([1, 2, 3], GREEDY, max_tokens=60)
        tokens, others = [], []

        def take(generation=generation, tokens=tokens, others=others):
            while True:
                try:
                    tokens.append(next(generation).token)
                except pantheon.BusyError:
                    continue
                except StopIteration:
                    return
                except BaseException as error:
                    others.append(error)
                    return

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert others == [] and sorted(tokens) == sorted(expected)
        assert model.open_states() == [] and generation._request.reservation.nbytes == 0


@pytest.mark.parametrize("cached", [False, True])
def test_closed_while_a_chunk_is_made(model, quick_switches, cached):
    """Whoever comes last gives the state and the reservation back, once."""
    if cached:
        model.use_prefix_cache(1 << 24)
    for _ in range(50):
        generation = model.generate([1, 2, 3] * 8, GREEDY, max_tokens=40)
        errors = []

        def take(generation=generation, errors=errors):
            try:
                for _ in generation:
                    pass
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        generation.close()
        thread.join(60)
        assert errors == []
        assert next(generation, None) is None
        assert generation._request.reservation.nbytes == 0
        assert len(model.open_states()) == (len(model.prefix_cache) if cached else 0)


def test_a_model_closed_while_a_request_is_given_back(model):
    """The position of a state that is closed just then is not to be had; the reservation ends all the same."""
    model.use_prefix_cache(1 << 24)
    generation = model.generate([1, 2, 3] * 8, GREEDY, max_tokens=40)
    next(generation)
    state = generation._request.state

    class ClosedJustNow:
        closed = False

        @property
        def pos(self):
            model.close()
            return state.pos

    generation._request.state = ClosedJustNow()
    generation.close()
    assert generation._request.reservation.nbytes == 0


def test_stopped_when_the_prompt_has_just_been_fed(model):
    """What closes the state to end the feeding may come late: it ends the next chunk, without an error."""
    generation = model.generate([1, 2, 3] * 8, GREEDY, max_tokens=40)
    next(generation)
    generation._request.stopping = generation._request.feeding = True
    generation._request.stop_feeding()
    assert next(generation, None) is None
    assert model.open_states() == [] and generation._request.reservation.nbytes == 0


def test_closing_stops_a_prompt_between_windows(default_model):
    with pantheon.load(default_model) as model:
        generation = model.generate([100] * 4000, GREEDY, max_tokens=8)
        state, chunks = generation._request.state, []
        thread = threading.Thread(target=lambda: chunks.extend(generation))
        thread.start()
        while state.pos == 0:
            threading.Event().wait(0.001)
        generation.close()
        thread.join(120)
        assert chunks == [] and state.closed and generation._request.reservation.nbytes == 0


def test_states_and_caches_are_listed_while_others_come_and_go(model, quick_switches):
    """Lists of what is open, reclaiming and closing, against threads that make more of it."""
    stop, errors = threading.Event(), []

    def churn():
        try:
            while not stop.is_set():
                model.new_state(8)
                model.use_prefix_cache(1 << 20)
                list(model.generate([1, 2, 3] * 8, GREEDY, max_tokens=1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            model.open_states()
            pantheon.admission.reclaimable_bytes()
            pantheon.prefix_cache.evict_idle(1 << 10)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert errors == []
