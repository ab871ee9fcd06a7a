"""The sampler and its record: freshness, threads, forks, the seqlock."""
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from pathlib import Path

import pytest

import pantheon
from pantheon._core.base import pool
from pantheon._core.memory import memwatch

GIB = 1 << 30
HARNESS = Path(__file__).with_name("seqlock_harness.c")


# a build without threads has no sampler: whoever decides, samples
needs_threads = pytest.mark.skipif(not pool.threads_built(), reason="a build without threads")


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def child(code):
    """What a process prints that runs code; it and what it forked are gone afterwards, whatever happens."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert (process.returncode, errors) == (0, "")
    return out


@needs_threads
def test_the_sampler_publishes(machine):
    memwatch.start(1)
    before = memwatch.read()
    (machine.proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    eventually(lambda: memwatch.read()["host_total"] == 1000 * 1024)
    after = memwatch.read()
    assert after["seq"] > before["seq"] and after["stamp_ns"] > before["stamp_ns"]
    memwatch.stop()
    memwatch.stop()
    assert not memwatch.running()
    seq = memwatch.read()["seq"]
    time.sleep(0.05)
    assert memwatch.read()["seq"] == seq
    memwatch.start()
    memwatch.start()
    eventually(lambda: memwatch.read()["seq"] > seq)


@pytest.mark.parametrize("interval", [0, -1, 60001, 10**9])
def test_intervals_that_cannot_be(interval):
    with pytest.raises(ValueError, match=rf"interval_ms is {interval}, not in 1\.\.60000"):
        memwatch.start(interval)


def test_a_stuck_sampler_freezes_no_verdict(machine, llama):
    """The thread is gone; a stale record is not trusted, in either direction."""
    with pantheon.load(llama) as model:
        memwatch.start(1)
        machine.memory(64 * GIB, 0)
        memwatch.halt()
        assert memwatch.running()
        assert model.admit(10).status == "DENIED"
        (machine.proc / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {60 << 20} kB\n")
        assert memwatch.read()["host_avail"] == 0
        time.sleep(0.02)
        assert model.admit(10).status == "FIT"
        (machine.proc / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: 0 kB\n")
        time.sleep(0.02)
        with pytest.raises(pantheon.AdmissionError):
            model.reserve(10)


def test_a_fresh_record_is_trusted(machine, llama):
    with pantheon.load(llama) as model:
        memwatch.start(60000)
        machine.memory(64 * GIB, 60 * GIB)
        (machine.proc / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: 0 kB\n")
        assert model.admit(10).status == "FIT"


def test_unreadable_numbers_refuse_nothing(machine, llama):
    with pantheon.load(llama) as model:
        (machine.proc / "meminfo").write_text("")
        memwatch.sample()
        verdict = model.admit(10)
        assert verdict.status == "FIT" and "knows nothing" in verdict.reason


def test_readers_and_writers_together(machine):
    """Samples and reservations from many threads; every record is whole: avail and total always come together."""
    stop, wrong = threading.Event(), []

    def look():
        while not stop.is_set():
            state = memwatch.read()
            if state["host_total"] != 2 * state["host_avail"]:
                wrong.append(state)

    machine.memory(2 * GIB, GIB)
    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(60):
        machine.memory((2 + i % 7) * GIB, (2 + i % 7) * GIB // 2)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_loading_starts_it_unless_told_not_to(llama):
    code = f"""
        import pantheon
        from pantheon._core.memory import memwatch
        assert not memwatch.running()
        with pantheon.load({str(llama)!r}) as model:
            print(memwatch.running(), model.admit(5).reason)
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PANTHEON_MEM")}
    for setting, expected in (("1", "True \n"), ("0", "False not checked: memwatch is off or knows nothing\n")):
        result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True,
                                env={**environment, "PANTHEON_MEMWATCH": setting}, timeout=60)
        assert (result.stdout, result.stderr) == (expected, "")


@needs_threads
def test_forks(llama):
    """The child has no sampler thread and may be forked at any moment; it decides, samples and forks on."""
    assert child(f"""
        import os, sys, threading
        import pantheon
        from pantheon._core.memory import memwatch
        model = pantheon.load({str(llama)!r}, threads=1)
        memwatch.start(1)
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                model.reserve(8).release()
        thread = threading.Thread(target=busy)
        thread.start()
        for i in range(100):
            pid = os.fork()
            if pid == 0:
                ok = model.admit(5).status == "FIT" and memwatch.running()
                with model.reserve(8, 8) as reservation:
                    ok = ok and reservation.nbytes > 0
                before = memwatch.read()["seq"]
                while memwatch.read()["seq"] < before + 3:      # the thread is back
                    pass
                memwatch.stop()
                os._exit(0 if ok and not memwatch.running() else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        thread.join()
        print("done")
    """) == "done\n"


def test_idle_it_uses_no_cpu():
    memwatch.start()
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.25


def build(folder, *flags):
    program = folder / "harness"
    include = Path(memwatch.__file__).parent
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-std=gnu11", "-O2", "-Wall", "-Werror", *flags, f"-I{include}", str(HARNESS),
                    "-pthread", "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize(("flags", "reads"), [((), 2_500_000), (("-fsanitize=thread", "-g"), 20_000)],
                         ids=["plain", "tsan"])
def test_no_record_is_torn(tmp_path, flags, reads):
    """A record of the engine's own size, ten million reads of it. The sanitizer finds a race in the order of events,
    whether or not it did harm: some thousand reads show it all there is."""
    program = build(tmp_path, *flags)
    result = subprocess.run([program, str(memwatch.RECORD_WORDS), str(reads)], capture_output=True, text=True,
                            timeout=600)
    assert (result.returncode, result.stderr) == (0, "")
    done, torn, backwards, generations = map(int, result.stdout.split())
    assert (done, torn, backwards) == (4 * reads, 0, 0)
    assert generations > 4              # the readers did see the record change
