"""States kept for reuse: found by their tokens, bounded, evicted in order, and never visible in an answer."""
import gc
import threading

import numpy as np
import pytest

import pantheon
from pantheon import SamplingParams, prefix_cache
from pantheon._core.memory import ladder, memwatch
from pantheon._core.python.admission import touched_bytes

GIB = 1 << 30
RNG = np.random.default_rng(11)
SYSTEM = RNG.integers(3, 200, 40).tolist()


@pytest.fixture
def model(tiny):
    with pantheon.load(tiny) as model:
        yield model


@pytest.fixture
def one(llama):
    with pantheon.load(llama) as model:
        yield model


def ask(model, prompt, n=5):
    return [(c.token, c.logprob) for c in model.generate(prompt, SamplingParams(temperature=0), max_tokens=n,
                                                         logprobs=True)]


def fed(model, monkeypatch):
    calls, prefill = [], model.prefill
    monkeypatch.setattr(model, "prefill", lambda tokens, state: calls.append(len(tokens)) or prefill(tokens, state))
    return calls


@pytest.mark.parametrize(("a", "b", "n"), [([], [1], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2),
                                           ([2], [1], 0)])
def test_common_prefix(a, b, n):
    assert prefix_cache.common_prefix(a, b) == prefix_cache.common_prefix(b, a) == n


def test_cold_and_warm_answers_are_the_same(model, monkeypatch):
    """A conversation, an edited turn, and the same prompt again, against a model without a cache; bit for bit."""
    first = SYSTEM + [9, 8, 7]
    answers = [ask(model, first)]
    second = first + [token for token, _ in answers[0]] + [4, 4, 4]
    edited = first[:-1] + [3, 3]
    prompts = [first, second, edited, edited, SYSTEM + [5] * 20]
    cold = [ask(model, prompt) for prompt in prompts]
    cache = model.use_prefix_cache(64 << 20)
    calls, counts = fed(model, monkeypatch), []
    for prompt, expected in zip(prompts, cold, strict=True):
        calls.clear()
        assert ask(model, prompt) == expected
        counts.append(sum(calls))
    assert counts[0] == len(first)
    if model.config["rope_scaling"] == "longrope":       # the second reaches beyond the short factors: it is fed anew
        assert len(first) + 5 == model.config["rope_orig_ctx"] and counts[1] == len(second) and len(cache) == 2
    else:
        assert counts[1] == 4 and len(cache) == 1        # the answer's last token was never fed, and the new turn
    assert counts[2:4] == [2, 1]                         # at least the last token is fed
    assert memwatch.read()["host_reserved"] == 0


MESSAGE_END = 2                                         # of the tiny models' vocabulary


@pytest.fixture(params=["qwen35", "qwen35moe"])
def recurrent(request):
    from support.fixture_paths import TINY

    with pantheon.load(TINY / f"{request.param}.gguf") as model:
        yield model


def test_conversations_share_their_system_message(recurrent, monkeypatch):
    """A recurrent state goes back to the end of a message: two prompts that begin alike, and a third with another
    second turn, each feed only what is new, and answer as without a cache."""
    system = [*SYSTEM, MESSAGE_END, 5]
    turn = [*system, *[6] * 9, MESSAGE_END, 5]
    prompts = [[*system, 7, 7, 7], [*system, 8, 8], [*turn, 9, 9, 9, 9], [*turn, 3, 3]]
    cold = [ask(recurrent, prompt) for prompt in prompts]
    recurrent.use_prefix_cache(64 << 20)
    calls, counts = fed(recurrent, monkeypatch), []
    for prompt, expected in zip(prompts, cold, strict=True):
        calls.clear()
        assert ask(recurrent, prompt) == expected
        counts.append(sum(calls))
    after_end = len(SYSTEM) + 1
    assert counts[0] == len(prompts[0])
    assert counts[1] == len(prompts[1]) - after_end
    assert counts[2] == len(prompts[2]) - after_end
    assert counts[3] == len(prompts[3]) - (len(turn) - 1)


def test_checkpoints_are_paid_for(machine, recurrent):
    """They are in what the request reserves, as many as it takes, and in what the cache counts."""
    prompt = [*SYSTEM, MESSAGE_END, *SYSTEM, MESSAGE_END, 5, 5, 5]
    one = recurrent.cost().checkpoint_bytes
    assert one > 0
    recurrent.use_prefix_cache(64 << 20)
    chunks = recurrent.generate(prompt, SamplingParams(temperature=0), max_tokens=20)
    n_ctx = recurrent.prefix_cache.n_ctx
    plain = recurrent.admit(len(prompt), 20, n_ctx)
    assert chunks.verdict.need_bytes == plain.need_bytes + 3 * one
    assert recurrent.admit(len(prompt), 20, n_ctx, checkpoints=3).need_bytes == chunks.verdict.need_bytes
    next(chunks)                                         # all three are there now, and no longer promised
    memwatch.sample()
    assert memwatch.read()["host_reserved"] < plain.need_bytes
    list(chunks)
    assert memwatch.read()["host_reserved"] == 0
    with recurrent.new_state(n_ctx) as state:
        recurrent.prefill(prompt, state)
        assert recurrent.prefix_cache.nbytes >= touched_bytes(state) + 3 * one


def test_at_most_a_few_checkpoints(recurrent):
    recurrent.use_prefix_cache(64 << 20)
    prompt = [token for i in range(9) for token in ([10 + i] * 20 + [MESSAGE_END])] + [5]
    chunks = recurrent.generate(prompt, SamplingParams(temperature=0), max_tokens=2)
    next(chunks)
    taken = chunks._request.checkpoints
    assert [c.pos for c in taken] == [126, 147, 168, 189]
    chunks.close()


def test_where_going_back_is_truncating_nothing_is_remembered(one):
    one.use_prefix_cache(64 << 20)
    chunks = one.generate([*SYSTEM, MESSAGE_END, 5, 5], SamplingParams(temperature=0), max_tokens=2)
    next(chunks)
    assert chunks._request.checkpoints == []
    assert one.admit(40, checkpoints=4).need_bytes == one.admit(40).need_bytes
    chunks.close()


def test_a_taken_entry_is_nobody_elses(one):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, SYSTEM)
    assert len(cache) == 1
    chunks = one.generate(SYSTEM + [5], SamplingParams(temperature=0), max_tokens=4)
    assert len(cache) == 0
    assert ask(one, SYSTEM + [6])                        # a second request at the same time gets a state of its own
    assert len(cache) == 1
    list(chunks)
    assert len(cache) == 2


def test_half_an_entry_must_be_shared(one, monkeypatch):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, SYSTEM + [7] * 60)
    calls = fed(one, monkeypatch)
    ask(one, SYSTEM + [6] * 3)                           # shares 40 of 104: the long entry stays
    assert calls == [43] and len(cache) == 2
    ask(one, [5] * 10)                                   # shorter than is worth keeping
    assert len(cache) == 2


def test_a_longer_request_than_the_entry_can_hold(one, monkeypatch):
    one.use_prefix_cache(64 << 20, n_ctx=48)
    cold_prompt = SYSTEM + [5] * 20
    ask(one, SYSTEM, 2)
    calls = fed(one, monkeypatch)
    warm = ask(one, cold_prompt)
    assert calls == [60]
    one.prefix_cache.clear()
    assert ask(one, cold_prompt) == warm


def test_bytes_are_bounded(one):
    with one.new_state() as state:
        one.prefill(SYSTEM + [1] * 4, state)
        size = touched_bytes(state)
    cache = one.use_prefix_cache(3 * size)
    for i in range(6):
        ask(one, [10 + i] * 40)
        assert 0 < cache.nbytes <= 3 * size
    assert len(cache) == 3 and len(one.open_states()) == 3
    assert cache.take([15] * 40, "f16") is not None      # the latest is there, the first is not
    assert cache.take([10] * 40, "f16") is None
    small = one.use_prefix_cache(size // 2)
    ask(one, SYSTEM)
    assert (len(small), small.nbytes) == (0, 0)


def test_what_can_never_fit_drives_nothing_out(one):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, SYSTEM)
    cache.max_bytes = cache.nbytes
    state = one.new_state(kv_type="f32")
    one.prefill([7] * 120, state)
    assert touched_bytes(state) > cache.max_bytes
    cache.put([7] * 120, state)
    assert state.closed and len(cache) == 1
    assert cache.take(SYSTEM + [5], "f16") is not None


def test_the_latest_checkpoints_are_kept():
    from support.fixture_paths import TINY

    tokens = (SYSTEM * 2)[:64]
    with pantheon.load(TINY / "qwen35.gguf") as model:
        cache, checkpoints = model.use_prefix_cache(64 << 20), []
        state = model.new_state(cache.n_ctx)
        for end in (20, 28, 36, 44, 52, 60):
            model.prefill(tokens[state.pos:end], state)
            checkpoints.append(state.checkpoint())
        model.prefill(tokens[60:], state)
        cache.put(tokens, state, checkpoints)
        prefix = cache.take([*tokens, 5], state.kv_type)
        assert [c.pos for c in prefix.checkpoints] == [36, 44, 52, 60]


def test_least_recently_used_goes_first(one):
    cache = one.use_prefix_cache(64 << 20)
    for i in range(3):
        ask(one, [10 + i] * 40)
    ask(one, [10] * 41)                                  # used again: now 11 is the oldest
    assert cache.evict(1) > 0
    assert cache.take([11] * 40, "f16") is None
    for token in (10, 12):
        prefix = cache.take([token] * 40, "f16")
        assert prefix is not None
        prefix.state.close()


def test_the_oldest_of_all_models_goes_first(one, llama):
    with pantheon.load(llama) as other:
        caches = one.use_prefix_cache(64 << 20), other.use_prefix_cache(64 << 20)
        for i in range(2):
            ask(one, [10 + i] * 40)
            ask(other, [10 + i] * 40)
        assert prefix_cache.idle_bytes() == sum(cache.nbytes for cache in caches)
        prefix_cache.evict_idle(1)
        assert [len(cache) for cache in caches] == [1, 2]
        prefix_cache.evict_idle(1)
        assert [len(cache) for cache in caches] == [1, 1]
        assert prefix_cache.evict_idle(1 << 40) > 0
        assert [len(cache) for cache in caches] == [0, 0]


def test_the_kv_type_is_part_of_the_key():
    from support.fixture_paths import TINY

    with pantheon.load(TINY / "llama-blocks32.gguf") as model:
        cache = model.use_prefix_cache(64 << 20)
        ask(model, SYSTEM)
        assert cache.take(SYSTEM, "q8_0") is None
        assert cache.take(SYSTEM, "f16").state.kv_type == "f16"


def leave(machine, nbytes, total=64 * GIB):
    machine.memory(total, (nbytes + int(ladder.DEFAULTS["keep"] * total) + 1023) // 1024 * 1024)


def test_the_ladder_evicts_before_it_decides(machine, one, monkeypatch):
    """A request that does not fit beside idle entries fits when they are gone, and asking knows it."""
    cache = one.use_prefix_cache(64 << 20)
    for i in range(3):
        ask(one, [10 + i] * 40)
    need = one.admit(100, n_ctx=one.n_ctx_train).need_bytes
    held = cache.nbytes
    leave(machine, need - held // 2)
    trim = memwatch.trim

    def freed_memory_shows():
        leave(machine, need - held // 2 + held - cache.nbytes)
        trim()

    monkeypatch.setattr(memwatch, "trim", freed_memory_shows)
    assert one.admit(100, n_ctx=one.n_ctx_train).status == "FIT"
    assert len(cache) == 3
    with one.reserve(100, n_ctx=one.n_ctx_train) as reservation:
        assert reservation.verdict.status == "FIT"
        assert any("idle prefix-cache entries evicted" in step for step in reservation.verdict.steps)
    assert len(cache) < 3


def test_the_requesters_own_prefix_is_no_victim(machine, one, monkeypatch):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, [11] * 40)                                  # the oldest, and the one that the next prompt begins with
    for i in range(2):
        ask(one, [20 + i] * 40)
    calls = fed(one, monkeypatch)
    machine.memory(64 * GIB, int(0.15 * 64 * GIB))       # WATCH: everything idle is to go
    chunks = one.generate([11] * 50, SamplingParams(temperature=0), max_tokens=2)
    assert len(cache) == 0
    assert any("rung 1: WATCH" in step for step in chunks.verdict.steps)
    list(chunks)
    assert calls == [50 - 40]                            # the forty tokens that it shares were kept
    assert len(cache) == 0                               # and nothing is kept while memory is short


def test_a_request_that_fails_puts_its_prefix_back(one, monkeypatch):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, SYSTEM)

    def refuse(*request, **more):
        raise pantheon.PantheonError("not today")

    monkeypatch.setattr(one, "reserve", refuse)
    with pytest.raises(pantheon.PantheonError, match="not today"):
        one.generate(SYSTEM + [5] * 10, max_tokens=5)
    assert len(cache) == 1 and cache.take([*SYSTEM, 5], "f16").state.pos == len(SYSTEM)


def test_a_denied_request_leaves_nothing_behind(machine, one):
    cache = one.use_prefix_cache(64 << 20)
    ask(one, SYSTEM)
    leave(machine, 0, total=64 * GIB)
    before = one.open_states()
    with pytest.raises(pantheon.AdmissionError):
        one.generate(SYSTEM + [5] * 60, max_tokens=5)
    assert len(one.open_states()) <= len(before) and memwatch.read()["host_reserved"] == 0
    machine.memory(64 * GIB, 64 * GIB)
    assert ask(one, SYSTEM + [5])
    assert len(cache) == 1


def test_a_failed_request_keeps_nothing(one, monkeypatch):
    cache = one.use_prefix_cache(64 << 20)

    def fail(tokens, state):
        raise MemoryError("here")

    monkeypatch.setattr(one, "prefill", fail)
    with pytest.raises(MemoryError, match="here"):
        ask(one, SYSTEM)
    assert len(cache) == 0 and one.open_states() == []


def test_closing(llama):
    model = pantheon.load(llama)
    cache = model.use_prefix_cache(64 << 20)
    ask(model, SYSTEM)
    chunks = model.generate(SYSTEM + [7] * 30, SamplingParams(temperature=0), max_tokens=20)
    next(chunks)
    model.close()
    chunks.close()
    assert (len(cache), cache.nbytes) == (0, 0)
    del model, chunks
    gc.collect()
    assert cache.take(SYSTEM, "f16") is None


@pytest.mark.parametrize(("arguments", "match"), [((0,), "max_bytes is 0, not in 1"), ((-1,), "max_bytes is -1"),
                                                  ((2**63,), "max_bytes"), ((1, 0), "n_ctx is 0, not in 1..128"),
                                                  ((1, 129), "n_ctx is 129")])
def test_arguments(one, arguments, match):
    with pytest.raises(ValueError, match=match):
        one.use_prefix_cache(*arguments)
    assert one.prefix_cache is None


@pytest.mark.parametrize("arguments", [(1.5,), (True,), ("x",), (1, 100.5), (1, "16"), (1, True)])
def test_arguments_that_are_no_integers(one, arguments):
    with pytest.raises(TypeError, match="must be an integer, not"):
        one.use_prefix_cache(*arguments)
    assert one.prefix_cache is None


def test_from_many_threads(one):
    """Requests with shared beginnings from four threads: the answers are those of a cold model."""
    prompts = [SYSTEM + [i] * (5 + i) for i in range(8)]
    cold = [ask(one, prompt) for prompt in prompts]
    cache = one.use_prefix_cache(1 << 20)
    wrong = []

    def work(offset):
        for i in range(24):
            j = (i + offset) % 8
            if ask(one, prompts[j]) != cold[j]:
                wrong.append(j)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < cache.nbytes <= 1 << 20 and len(one.open_states()) == len(cache)


class Recurrent:
    """A state that can only go back to its checkpoints."""

    def __init__(self, pos):
        self.pos = pos

    def truncate(self, pos):
        if pos != self.pos:
            raise ValueError("cannot go back")

    def restore(self, checkpoint):
        self.pos = checkpoint.pos

    def reset(self):
        self.pos = 0


class Mark:
    def __init__(self, pos, valid=True):
        self.pos, self.valid = pos, valid


@pytest.mark.parametrize(("keep", "marks", "expected"), [
    (100, [], 100), (99, [], 0), (99, [Mark(40), Mark(80), Mark(100)], 80), (80, [Mark(40), Mark(80)], 80),
    (79, [Mark(40), Mark(80)], 40), (39, [Mark(40)], 0), (90, [Mark(40), Mark(80, valid=False)], 40),
])
def test_states_that_cannot_go_back_just_anywhere(keep, marks, expected):
    state = Recurrent(100)
    assert prefix_cache.cut_back(state, keep, marks) == expected == state.pos
