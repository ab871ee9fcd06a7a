"""The decision for a model on a made-up machine, and reservations. The pure function: test_admit_request.py."""
import logging
import threading
import time

import pytest

import pantheon
from pantheon import admission
from pantheon._core.memory import ladder, memwatch
from pantheon._core.memory.ladder import LEVELS
from pantheon._core.python import admission as core

GIB = 1 << 30
FREE = {"OK": 0.5, "WATCH": 0.15, "TIGHT": 0.09, "CRITICAL": 0.04}


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


@pytest.fixture
def quantised():
    """A model whose heads are wide enough for a quantised cache."""
    from support.fixture_paths import TINY

    with pantheon.load(TINY / "llama-blocks32.gguf") as model:
        yield model


def leave(machine, nbytes, total=64 * GIB):
    """Puts the machine where new work may have nbytes (to a KiB, rounded up)."""
    kept = int(ladder.DEFAULTS["keep"] * total)
    machine.memory(total, (nbytes + kept + 1023) // 1024 * 1024)


# ---- a model ---------------------------------------------------------------------------------------------------------

def test_fit(machine, model):
    verdict = model.admit(30, 64)
    assert (verdict.status, verdict.n_tokens, verdict.fit_tokens, verdict.reason) == ("FIT", 94, 94, "")
    assert verdict.steps == () and verdict.kv_type == "f16"
    assert verdict.have_bytes == 64 * GIB - int(0.02 * 64 * GIB)
    cost = model.cost(94, window=30)
    assert verdict.need_bytes == cost.total


def test_capped_and_denied(machine, model):
    fifty = model.admit(20, 30).need_bytes
    leave(machine, fifty)
    verdict = model.admit(20, 100)
    assert verdict.status == "CAPPED" and 20 < verdict.fit_tokens < 120
    assert verdict.need_bytes > verdict.have_bytes
    assert verdict.reason.startswith(f"memory: {verdict.fit_tokens} of 120 tokens fit")
    assert any(step.startswith("rung 5: CRITICAL, max_tokens 100 -> ") for step in verdict.steps)
    assert model.admit(20, verdict.fit_tokens - 20).status == "FIT"
    leave(machine, fifty // 100)
    verdict = model.admit(50)
    assert (verdict.status, verdict.fit_tokens) == ("DENIED", 0)
    assert verdict.steps[-1] == "rung 6: CRITICAL, denied"


class Index:
    """An integer that knows no arithmetic."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_numbers_are_whatever_has_an_index(machine, model):
    """Arguments are converted once: what is said of them, too, is said of plain integers."""
    plain = {"n_prompt": 20, "max_tokens": 100, "window": 8, "checkpoints": 1, "batch": 2}
    objects = {name: Index(value) for name, value in plain.items()}
    leave(machine, model.admit(**{**plain, "max_tokens": 30}).need_bytes)
    for call in (model.admit, lambda **request: model.reserve(**request, timeout=Index(1)).verdict):
        assert call(**objects) == call(**plain) and call(**plain).status == "CAPPED"
    leave(machine, 1000)
    with pytest.raises(pantheon.AdmissionError) as refused:
        model.reserve(**plain, n_ctx=128)
    with pytest.raises(pantheon.AdmissionError) as refused_too:
        model.reserve(**objects, n_ctx=Index(128))
    assert refused.value.args[0] == refused_too.value.args[0]
    with pytest.raises(TypeError, match="timeout must be a number, not str"):
        model.reserve(3, timeout="1")


def test_the_context_caps_too(machine, model):
    verdict = model.admit(10, 8192)
    assert (verdict.status, verdict.fit_tokens) == ("CAPPED", model.n_ctx_train)
    assert verdict.reason == f"context: {model.n_ctx_train} of 8202 tokens fit"
    assert verdict.need_bytes < verdict.have_bytes


def test_what_is_there_already_is_not_paid_again(machine, model):
    with model.new_state(model.n_ctx_train, "f32") as state:
        model.prefill([5] * 100, state)
        again = model.admit(8, state=state)
        assert again.kv_type == "f32" and again.need_bytes < model.cost(8, "f32").total
        leave(machine, again.need_bytes)
        assert model.admit(8, state=state).status == "FIT"
        leave(machine, 0)
        assert model.admit(8, state=state).status == "DENIED"


@pytest.mark.parametrize("level", LEVELS)
def test_the_window_of_each_level(machine, model, level, caplog):
    """The model's context is small, so are the windows: the log line has the numbers of this ladder."""
    ladder.configure(window=64, window_tight=32, window_critical=16)
    machine.memory(64 * GIB, int(FREE[level] * 64 * GIB))
    verdict = model.admit(100, window=64)
    window = {"OK": 64, "WATCH": 64, "TIGHT": 32, "CRITICAL": 16}[level]
    assert verdict.prefill_window == window
    line = f"[ladder] {level} -> prefill window clamped 64 -> {window}"
    assert [r.getMessage() for r in caplog.records] == ([line] if window < 64 else [])
    assert (f"rung 3: {level}, prefill window 64 -> {window}" in verdict.steps) == (window < 64)
    assert model.admit(100, window=8).prefill_window == 8       # never above what the caller had


def test_the_exact_log_line(machine, caplog, long_context):
    """A model with a context of more than 16384, under TIGHT."""
    machine.memory(64 * GIB, int(0.09 * 64 * GIB))
    with pantheon.load(long_context) as model, caplog.at_level(logging.INFO, logger="pantheon"):
        assert model.admit(20000).prefill_window == 8192
        assert "[ladder] TIGHT -> prefill window clamped 16384 -> 8192" in caplog.messages
        machine.memory(64 * GIB, int(0.05 * 64 * GIB))
        assert model.admit(20000).prefill_window == 4096
        assert caplog.messages[-1] == "[ladder] CRITICAL -> prefill window clamped 16384 -> 4096"


def test_one_request_writes_one_line(machine, model, caplog, monkeypatch):
    """However often it is decided: before and after idle memory goes, and for the hints of a refusal."""
    ladder.configure(window=64, window_tight=32, window_critical=16)
    monkeypatch.setitem(admission._reclaimers, 1, [(lambda nbytes: 1, lambda: 1)])
    monkeypatch.setitem(admission._reclaimers, 4, [(lambda nbytes: 1, lambda: 1)])
    machine.memory(64 * GIB, int(0.05 * 64 * GIB))
    model.reserve(100, window=64).release()
    assert caplog.messages == ["[ladder] CRITICAL -> prefill window clamped 64 -> 16"]
    caplog.clear()
    leave(machine, 0)
    with pytest.raises(pantheon.AdmissionError):
        model.reserve(100, window=64)
    assert len(caplog.messages) == 1


def test_max_seq_of_the_environment(machine, model, monkeypatch):
    monkeypatch.setenv("QWEN35_MAX_SEQ", "24")
    assert model.admit(100).prefill_window == 24
    for text in ("", "-1", "many", "99999999999999999999"):
        monkeypatch.setenv("QWEN35_MAX_SEQ", text)
        assert model.admit(100).prefill_window == model.n_ctx_train


def test_the_worst_die_counts_for_models_in_gpu_memory(machine, model, llama):
    """The host has plenty; the tighter of two dies is CRITICAL. Only a model that runs there is held back."""
    ladder.configure(window=64, window_tight=32, window_critical=16)
    try:
        memwatch.set_dies([(12 * GIB, 6 * GIB), (12 * GIB, GIB // 2)])
        assert model.admit(100, window=64).prefill_window == 64
        core.set_gpu_resident(model)
        verdict = model.admit(100, window=64)
        assert (verdict.prefill_window, verdict.steps) == (16, ("rung 3: CRITICAL, prefill window 64 -> 16",))
        memwatch.set_dies([(12 * GIB, 6 * GIB), (12 * GIB, GIB)])
        assert model.admit(100, window=64).prefill_window == 32
    finally:
        core.set_gpu_resident(None)
        memwatch.set_dies([])
    assert model.admit(100, window=64).prefill_window == 64


@pytest.mark.parametrize(("level", "kv_type"), [("OK", "f16"), ("WATCH", "q8_0"), ("TIGHT", "q8_0")])
def test_an_open_kv_type_is_lowered(machine, quantised, level, kv_type):
    machine.memory(64 * GIB, int(FREE[level] * 64 * GIB))
    verdict = quantised.admit(20)
    assert verdict.kv_type == kv_type
    assert (f"rung 2: {level}, KV cache q8_0 instead of f16" in verdict.steps) == (level != "OK")
    with quantised.new_state() as state:
        assert state.kv_type == kv_type
    for named in ("f16", "f32", "q4_0"):
        assert quantised.admit(20, kv_type=named).kv_type == named
        with quantised.new_state(kv_type=named) as state:
            assert state.kv_type == named


def test_a_model_without_quantised_caches_keeps_f16(machine, model, caplog):
    machine.memory(64 * GIB, int(0.15 * 64 * GIB))
    assert model.admit(20).kv_type == "f16" and model.admit(20).steps == ()
    with model.new_state() as state:
        assert state.kv_type == "f16"
    assert caplog.messages == []


def test_without_memwatch_everything_fits(machine, model):
    leave(machine, 0)
    assert model.admit(100).status == "DENIED"
    memwatch.stop()
    verdict = model.admit(100)
    assert (verdict.status, verdict.fit_tokens) == ("FIT", 100) and "not checked" in verdict.reason
    with model.reserve(100) as reservation:
        assert reservation.verdict.status == "FIT" and reservation.nbytes == 0
    memwatch.start()
    assert model.admit(100).status == "DENIED"


@pytest.mark.parametrize(("arguments", "error", "match"), [
    ((-1,), ValueError, r"n_prompt is -1, not in 0\.\.128"), ((129,), ValueError, r"n_prompt is 129, not in 0\.\.128"),
    ((2**70,), ValueError, "n_prompt"), ((0,), ValueError, r"not in 1\.\.128"), ((1.5,), TypeError, "n_prompt"),
    ((True,), TypeError, "n_prompt"), ((1, -1), ValueError, r"max_tokens is -1, not in 0\.\."),
    ((1, 2**31), ValueError, "max_tokens"), ((1, 1, 0), ValueError, r"n_ctx is 0, not in 1\.\.128"),
    ((1, 1, 129), ValueError, r"n_ctx is 129, not in 1\.\.128"),
    ((20, 1, 16), ValueError, r"n_prompt is 20, not in 0\.\.16"),
    ((1, "2"), TypeError, "max_tokens"),
])
def test_counts_that_cannot_be(machine, model, arguments, error, match):
    assert model.n_ctx_train == 128
    for call in (model.admit, model.reserve):
        with pytest.raises(error, match=match):
            call(*arguments)
    assert memwatch.read()["host_reserved"] == 0


def test_a_state_of_another_model(machine, model, llama):
    with pantheon.load(llama) as other, other.new_state() as state, pytest.raises(ValueError, match="another model"):
        model.admit(1, state=state)


# ---- reservations ----------------------------------------------------------------------------------------------------

def test_two_that_fit_alone_but_not_together(machine, model):
    need = model.admit(100, 28).need_bytes
    leave(machine, need + need // 3)
    assert model.admit(100, 28).status == "FIT"
    with model.reserve(100, 28) as first:
        assert (first.verdict.status, first.nbytes) == ("FIT", need)
        assert memwatch.read()["host_reserved"] == need
        with pytest.raises(pantheon.AdmissionError) as refused:
            model.reserve(120)
        assert refused.value.verdict.status == "DENIED" and isinstance(refused.value, MemoryError)
        assert memwatch.read()["host_reserved"] == need
    assert memwatch.read()["host_reserved"] == 0
    with model.reserve(100, 28) as again:
        assert again.verdict.status == "FIT"


def test_the_second_is_capped_to_what_the_first_left(machine, model):
    need = model.admit(20, 100).need_bytes
    leave(machine, 2 * need - 3000)
    with model.reserve(20, 100), model.reserve(20, 100) as second:
        assert second.verdict.status == "CAPPED" and 20 < second.verdict.fit_tokens < 120
        assert second.nbytes <= need - 3000 + 1024          # the machine counts in KiB
        state = memwatch.read()
        assert state["host_reserved"] <= state["host_avail"]


def test_the_second_waits_for_the_first(machine, model):
    need = model.admit(100).need_bytes
    leave(machine, need + need // 3)
    first = model.reserve(100)
    got = []
    thread = threading.Thread(target=lambda: got.append(model.reserve(100, timeout=60)))
    thread.start()
    time.sleep(0.3)                      # long enough to be refused, or to be granted what there is not
    assert got == [] and thread.is_alive()
    first.release()
    thread.join()
    assert got[0].verdict.status == "FIT"
    got[0].release()


def test_what_was_touched_is_no_longer_promised(machine, model):
    """It is in the next sample instead; until then it counts twice rather than not at all."""
    with model.reserve(100, 28) as reservation:
        promised = memwatch.read()["host_reserved"]
        reservation.progress(64)
        assert memwatch.read()["host_reserved"] == promised
        memwatch.sample()
        assert 0 < memwatch.read()["host_reserved"] < promised
        reservation.progress(128)
        reservation.progress(1)
        memwatch.sample()
        assert memwatch.read()["host_reserved"] == 0
    assert reservation.nbytes == 0
    reservation.release()


def test_a_forgotten_reservation_goes_with_its_object(machine, model):
    reservation = model.reserve(50)
    assert memwatch.read()["host_reserved"] > 0
    del reservation
    assert memwatch.read()["host_reserved"] == 0


def test_many_threads_never_promise_more_than_there_is(machine, model):
    need = model.admit(64).need_bytes
    leave(machine, 3 * need + need // 2)
    most, denied = [], []

    def work():
        for _ in range(200):
            try:
                with model.reserve(64):
                    state = memwatch.read()
                    most.append(state["host_reserved"])
            except pantheon.AdmissionError:
                denied.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 3 * need
    assert len(most) + len(denied) == 1200 and most
    assert memwatch.read()["host_reserved"] == 0


def test_idle_models_go_before_work_is_refused(machine, model, monkeypatch):
    """Rung 4: whoever holds idle models is asked for what is missing, after the caches."""
    need = model.admit(100).need_bytes
    leave(machine, need // 2)
    asked = []

    def unload(nbytes):
        asked.append(nbytes)
        leave(machine, 2 * need)
        return 3 * need

    monkeypatch.setitem(admission._reclaimers, 4, [])
    admission.register_reclaimer(4, unload, lambda: 3 * need)
    assert model.admit(100).status == "FIT"             # asking counts what could be freed
    assert asked == []
    with model.reserve(100) as reservation:
        assert reservation.verdict.status == "FIT"
        assert any(step.startswith("rung 4: CRITICAL, idle models unloaded") for step in reservation.verdict.steps)
    assert len(asked) == 1 and asked[0] >= need // 2


def test_each_is_asked_for_what_those_before_it_left(monkeypatch):
    asked = []
    monkeypatch.setitem(admission._reclaimers, 1, [
        (lambda nbytes, gives=gives: asked.append(nbytes) or gives, lambda: 0) for gives in (400, 600, 1)])
    assert admission._reclaim(1, 1000) == 1000
    assert asked == [1000, 600]


def test_a_refusal_offers_nothing_that_would_not_help(machine, quantised):
    leave(machine, 0)
    with pytest.raises(pantheon.AdmissionError, match="does not fit into memory") as refused:
        quantised.reserve(100, kv_type="f16")
    assert "q8_0" not in str(refused.value)


def test_a_refusal_says_what_would_fit(machine, quantised):
    f16, q8 = quantised.admit(100, kv_type="f16").need_bytes, quantised.admit(100, kv_type="q8_0").need_bytes
    leave(machine, (f16 + q8) // 2)
    with pytest.raises(pantheon.AdmissionError, match="with a q8_0 cache 100 tokens fit") as refused:
        quantised.reserve(100, kv_type="f16")
    verdict = refused.value.verdict
    assert str(verdict.need_bytes) in str(refused.value) and str(verdict.have_bytes) in str(refused.value)
    assert "a smaller context" in str(refused.value)


def test_a_refusal_for_a_state_says_what_another_would_hold(machine, wide):
    """The state goes on from 40 tokens; in its place a q8_0 one would hold all of them."""
    with pantheon.load(wide) as model:
        with model.new_state(1024, "f16") as state:
            model.prefill([5] * 40, state)
            leave(machine, model.admit(900, state=state).need_bytes * 3 // 4)
            with pytest.raises(pantheon.AdmissionError, match="with a q8_0 cache 940 tokens fit; a smaller context"):
                model.reserve(900, state=state)
        with model.new_state(1024, "q8_0") as state, pytest.raises(pantheon.AdmissionError) as refused:
            leave(machine, 0)
            model.reserve(80, state=state)
        assert "q8_0" not in str(refused.value)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_times_that_cannot_be(machine, model, timeout):
    leave(machine, 0)
    with pytest.raises(ValueError, match="timeout is .*, not a number of seconds from 0 on"):
        model.reserve(10, timeout=timeout)


@pytest.mark.parametrize("checkpoints", [-1, 2**31])
def test_checkpoints_that_cannot_be(machine, model, checkpoints):
    with pytest.raises(ValueError, match=rf"checkpoints is {checkpoints}, not in 0\.\.2147483647"):
        model.admit(10, checkpoints=checkpoints)


@pytest.fixture
def stopped():
    """memwatch does not run, and no call has set a limit."""
    memwatch.configure()
    memwatch.stop()
    yield
    memwatch.stop()
    memwatch.configure()
    memwatch.start()


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("6g", 6 * GIB), (" 512M ", 512 << 20), ("2T", 2 << 40),
                                             ("3K", 3072), ("4611686018427387904", 2**62), ("4294967296G", 2**62),
                                             ("", None)])
def test_limits_of_the_environment(stopped, monkeypatch, text, value):
    with monkeypatch.context() as patch:
        patch.setenv("PANTHEON_MEMORY_LIMIT", text)
        memwatch.start()
        assert memwatch.limit() == value
        memwatch.stop()
    memwatch.start()                     # without it there is none any more
    assert memwatch.limit() is None


@pytest.mark.parametrize("text", ["0", "-1", "6 G", "six", "0G", "99999999999999999999", "1e9", "4611686018427387905",
                                  "4294967297G", "G", "5GG", "\udcff"])
def test_limits_that_are_none(stopped, monkeypatch, text):
    with monkeypatch.context() as patch:
        patch.setenv("PANTHEON_MEMORY_LIMIT", text)
        with pytest.raises(ValueError, match=r"PANTHEON_MEMORY_LIMIT is '.*', not in 1\.\.4611686018427387904 bytes"):
            memwatch.start()
        assert not memwatch.running()


def test_a_limit_that_a_call_set_counts_for_more(stopped, monkeypatch):
    memwatch.configure(limit=3 * GIB)
    with monkeypatch.context() as patch:
        patch.setenv("PANTHEON_MEMORY_LIMIT", "2G")
        memwatch.start()
        assert memwatch.limit() == 3 * GIB
        memwatch.stop()


# ---- batches, and the logits of every token --------------------------------------------------------------------------

def test_a_batch_is_reserved_with_its_rows(machine, model):
    alone = model.admit(10, 20)
    for options in ({"batch": 1}, {"batch": 1, "all_logits": False}):
        assert model.admit(10, 20, **options) == alone
    more = model.admit(10, 20, batch=8).need_bytes - alone.need_bytes
    assert more >= 7 * 4 * model.n_vocab
    rows = model.admit(10, 20, all_logits=True).need_bytes - alone.need_bytes
    assert rows >= 9 * 4 * model.n_vocab
    with model.reserve(10, 20, batch=8, all_logits=True) as reservation:
        assert reservation.nbytes == reservation.verdict.need_bytes >= alone.need_bytes + max(more, rows)
        assert memwatch.read()["host_reserved"] == reservation.nbytes
    leave(machine, alone.need_bytes)
    assert model.admit(10, 20).status == "FIT" and model.admit(10, 20, batch=8).status != "FIT"
    with pytest.raises(pantheon.AdmissionError):
        model.reserve(10, 20, batch=1000)


@pytest.mark.parametrize("batch", [0, -1, 2**31, 1.5, "2", True])
def test_batches_that_cannot_be(machine, model, batch):
    for call in (model.admit, model.reserve):
        with pytest.raises((ValueError, TypeError), match="batch"):
            call(10, batch=batch)
    with pytest.raises((ValueError, TypeError), match="batch"):
        model.cost(batch=batch)


# ---- what the environment says ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "text"), [("QWEN35_MAX_SEQ", "a few"), ("QWEN35_MAX_SEQ", "0"),
                                            ("QWEN35_KV_Q4", "no")])
def test_a_wrong_value_of_the_environment_is_warned_of_once(machine, tiny, monkeypatch, caplog, name, text):
    """Whatever is asked, of whatever model: one line, and another one for another value."""
    for value in (f"{text} {tiny.stem}", f"{text} {tiny.stem}, too"):
        monkeypatch.setenv(name, value)
        caplog.clear()
        with pantheon.load(tiny) as model:
            for _ in range(2):
                model.admit(4, 4)
                model.reserve(4, 4).release()
                model.cost(kv_type="f16")
                with model.new_state(8) as state:
                    model.prefill([5, 5], state)
                list(model.generate([5, 5], max_tokens=2))
        assert [message for message in caplog.messages if name in message] == [
            {"QWEN35_MAX_SEQ": "QWEN35_MAX_SEQ is not a positive number: 16384 is used",
             "QWEN35_KV_Q4": "QWEN35_KV_Q4 is neither 0 nor 1: 1 is used"}[name]]


@pytest.mark.parametrize("value", ["", "24", "1000000"])
def test_a_right_value_is_not_warned_of(machine, model, monkeypatch, caplog, value):
    monkeypatch.setenv("QWEN35_MAX_SEQ", value)
    monkeypatch.setenv("QWEN35_KV_Q4", {"24": "0", "": ""}.get(value, "1"))
    model.reserve(4, 4).release()
    assert caplog.messages == []
