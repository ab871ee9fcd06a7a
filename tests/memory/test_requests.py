"""Whole requests: reserved before any work, finished within the budget, and nothing left behind however they end."""
import logging
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import pantheon
from pantheon import SamplingParams
from pantheon._core.memory import ladder, memwatch

GIB = 1 << 30
PROMPT = [5, 17, 99, 120]


def greedy():
    return SamplingParams(temperature=0)


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


def leave(machine, nbytes, total=64 * GIB):
    machine.memory(total, (nbytes + int(ladder.DEFAULTS["keep"] * total) + 1023) // 1024 * 1024)


def spy(model, monkeypatch):
    """Lengths of the prefill calls from now on."""
    calls, prefill = [], model.prefill

    def counted(tokens, state, all_logits=False):
        calls.append(len(tokens))
        return prefill(tokens, state, all_logits)

    monkeypatch.setattr(model, "prefill", counted)
    return calls


def child(code, *arguments):
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True,
                            text=True, timeout=600)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_what_an_answer_touched_is_no_longer_promised(machine, wide):
    params = SamplingParams(temperature=0, logit_bias={2: -1000.0})          # no end of text
    with pantheon.load(wide) as model:
        chunks = model.generate(PROMPT, params, max_tokens=400)
        next(chunks)
        memwatch.sample()
        before = memwatch.read()["host_reserved"]
        for _ in range(300):
            next(chunks)
        memwatch.sample()
        assert 0 < memwatch.read()["host_reserved"] < before // 2
        chunks.close()


def test_a_request_that_is_ended_while_its_prompt_is_fed_is_fed_no_further(machine, model, monkeypatch):
    ladder.configure(window=16, window_tight=16, window_critical=16)
    calls, prefill = [], model.prefill

    def closing(tokens, state):
        calls.append(len(tokens))
        logits = prefill(tokens, state)
        chunks.close()
        return logits

    monkeypatch.setattr(model, "prefill", closing)
    chunks = model.generate([5] * 100, greedy(), max_tokens=3)
    assert list(chunks) == []
    assert calls == [16]
    assert memwatch.read()["host_reserved"] == 0 and model.open_states() == []


def test_the_reservation_lasts_as_long_as_the_request(machine, model):
    need = model.admit(4, 20).need_bytes
    chunks = model.generate(PROMPT, greedy(), max_tokens=20)
    assert memwatch.read()["host_reserved"] == need
    assert chunks.verdict.status == "FIT" and chunks.verdict.need_bytes == need
    next(chunks)
    assert 0 < memwatch.read()["host_reserved"] <= need
    assert list(chunks)[-1].finish_reason is not None
    assert memwatch.read()["host_reserved"] == 0 and model.open_states() == []


@pytest.mark.parametrize("end", ["close before the first chunk", "close", "drop", "the last chunk"])
def test_every_end_gives_the_memory_back(machine, model, end):
    chunks = model.generate(PROMPT, greedy(), max_tokens=3)
    if end == "the last chunk":
        while next(chunks).finish_reason is None:
            pass
    elif end != "close before the first chunk":
        next(chunks)
    if end.startswith("close"):
        chunks.close()
    if end == "drop":
        del chunks
    assert memwatch.read()["host_reserved"] == 0 and model.open_states() == []


def test_a_refused_prompt_costs_nothing(machine, model, monkeypatch):
    leave(machine, model.admit(100).need_bytes - 5000)
    calls = spy(model, monkeypatch)
    text = r"100 tokens does not fit .*a prompt of up to \d+ tokens fits"
    with pytest.raises(pantheon.AdmissionError, match=text) as e:
        model.generate([5] * 100, greedy(), max_tokens=5)
    assert e.value.verdict.status == "DENIED" and e.value.verdict.need_bytes > e.value.verdict.have_bytes
    assert calls == [] and model.open_states() == [] and memwatch.read()["host_reserved"] == 0
    assert list(model.generate(PROMPT, greedy(), max_tokens=3))


def test_an_answer_is_capped_where_all_can_see_it(machine, model, caplog):
    whole = [c.token for c in model.generate(PROMPT, greedy(), max_tokens=60)]
    assert len(whole) == 60
    leave(machine, model.admit(4, 28).need_bytes)
    chunks = model.generate(PROMPT, greedy(), max_tokens=60)
    verdict = chunks.verdict
    assert verdict.status == "CAPPED" and verdict.fit_tokens == 32
    answer = list(chunks)
    assert [c.token for c in answer] == whole[:28] and answer[-1].finish_reason == "length"
    assert f"max_tokens capped 60 -> 28: memory: 32 of 64 tokens fit, {verdict.need_bytes} bytes" in caplog.text


def test_an_open_end_is_capped_quietly(machine, model, caplog):
    leave(machine, model.admit(4, 28).need_bytes)
    with caplog.at_level(logging.WARNING, logger="pantheon"):
        answer = list(model.generate(PROMPT, greedy()))
    assert len(answer) == 28 and answer[-1].finish_reason == "length"
    assert not any("max_tokens" in message for message in caplog.messages)


def test_a_prompt_longer_than_the_tight_window(machine, long_context, monkeypatch, caplog):
    """16384 tokens of one call become 8192 under TIGHT, with the same logits bit for bit."""
    prompt = np.random.default_rng(3).integers(3, 250, 9000).tolist()
    with pantheon.load(long_context) as model:
        calls = spy(model, monkeypatch)

        def answer():
            calls.clear()
            return [(c.token, c.logprob) for c in model.generate(prompt, greedy(), max_tokens=3, logprobs=True)]

        roomy = answer()
        assert calls == [9000]
        machine.memory(64 * GIB, int(0.09 * 64 * GIB))
        assert answer() == roomy
        assert calls == [8192, 808]
        assert "[ladder] TIGHT -> prefill window clamped 16384 -> 8192" in caplog.messages


def test_short_windows_change_no_bit(machine, tiny, monkeypatch):
    """Under CRITICAL, with a ladder for small contexts; the logits themselves are compared."""
    with pantheon.load(tiny) as model, model.new_state(kv_type="f16") as state:
        prompt = np.random.default_rng(4).integers(3, 200, 100).tolist()
        expected = model.prefill(prompt, state)
        seen, prefill = [], model.prefill
        monkeypatch.setattr(model, "prefill",
                            lambda ids, s: seen.append((len(ids), prefill(ids, s))) or seen[-1][1].copy())
        ladder.configure(window=64, window_tight=32, window_critical=12)
        machine.memory(64 * GIB, int(0.05 * 64 * GIB))
        with model.new_state(kv_type="f16") as other:
            next(model.generate(prompt, greedy(), max_tokens=1, state=other))
        assert [n for n, _ in seen] == [12] * 8 + [4]
        assert seen[-1][1].tobytes() == expected.tobytes()


@pytest.mark.parametrize("given", [False, True])
def test_no_memory_in_the_second_window(machine, model, monkeypatch, given):
    """Of NumPy, for the logits; test_allocations.py lets the engine's own allocations fail."""
    expected = [c.token for c in model.generate([5] * 60, greedy(), max_tokens=4)]
    ladder.configure(window=32, window_tight=32, window_critical=32)
    calls, empty = [], np.empty

    def failing(shape, *rest, **options):
        calls.append(shape)
        if len(calls) == 2:
            raise MemoryError("no memory for logits")
        return empty(shape, *rest, **options)

    state = model.new_state() if given else None
    chunks = model.generate([5] * 60, greedy(), max_tokens=4, state=state)
    monkeypatch.setattr(np, "empty", failing)
    with pytest.raises(MemoryError, match="no memory for logits"):
        next(chunks)
    monkeypatch.undo()
    assert len(calls) == 2
    assert memwatch.read()["host_reserved"] == 0
    assert model.open_states() == ([state] if given else [])
    with pytest.raises(StopIteration):
        next(chunks)
    assert [c.token for c in model.generate([5] * 60, greedy(), max_tokens=4)] == expected
    if given:
        assert state.pos == 32
        state.close()


def test_no_address_space_for_the_work_buffers(wide):
    """The system refuses the engine's own allocation in the middle of a request: a MemoryError, and life goes on."""
    assert child("""
        import resource, sys
        import pantheon
        from pantheon._core.memory import memwatch
        model = pantheon.load(sys.argv[1], threads=1)
        greedy = pantheon.SamplingParams(temperature=0)
        expected = [c.token for c in model.generate([5] * 300, greedy, max_tokens=3, state=model.new_state(400, "f32"))]
        model.close()
        model = pantheon.load(sys.argv[1], threads=1)
        list(model.generate([5], greedy, max_tokens=2))
        memwatch.trim()
        state = model.new_state(400, "f32")
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        chunks = model.generate([5] * 300, greedy, max_tokens=3, state=state)
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), unlimited[1]))
        try:
            next(chunks)
        except MemoryError as e:
            print(e)
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        print(memwatch.read()["host_reserved"], state.pos)
        print([c.token for c in model.generate([5] * 300, greedy, max_tokens=3, state=state)] == expected)
    """, wide).splitlines()[1:] == ["0 0", "True"]


def test_the_second_waits_and_the_first_finishes(machine, model):
    list(model.generate([7] * 100, greedy(), max_tokens=2))        # from now on the work buffers are there
    need = model.admit(60, 40).need_bytes
    leave(machine, need + need // 4)
    alone = [c.token for c in model.generate([7] * 60, greedy(), max_tokens=40)]
    first = model.generate([7] * 60, greedy(), max_tokens=40)
    with pytest.raises(pantheon.AdmissionError):
        model.generate([8] * 100, greedy(), max_tokens=4)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        [c.token for c in model.generate([8] * 100, greedy(), max_tokens=4, timeout=60)]))
    thread.start()
    assert [c.token for c in first] == alone
    thread.join()
    assert len(answers[0]) >= 1
    assert memwatch.read()["host_reserved"] == 0


