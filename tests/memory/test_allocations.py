"""What the engine itself allocates: exactly what the price list says; and when one allocation fails, whichever it is, a
MemoryError that leaves nothing behind.

Child processes run with allocations.c in front of the C library, which sees every allocation of Pantheon's modules.
"""
import ctypes
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from support import every_architecture

from pantheon._core.base.arena import Arena

SOURCE = Path(__file__).with_name("allocations.c")

pytestmark = [
    pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "__libc_memalign"), reason="the library in front needs glibc"),
    pytest.mark.skipif(any(name in os.environ.get("LD_PRELOAD", "") for name in ("asan", "tsan")),
                       reason="a sanitizer is in front already"),
]

PROLOGUE = """
    import ctypes, gc, json, os, sys
    import numpy as np
    import pantheon
    from pantheon._core.python import admission

    shim = ctypes.CDLL(None)
    shim.allocations_live.restype = shim.allocations_peak.restype = shim.allocations_fail.restype = ctypes.c_long
    shim.allocations_fail.argtypes = [ctypes.c_long]
    live, peak, path = shim.allocations_live, shim.allocations_peak, sys.argv[1]
    shim.allocations_arm()
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The compiled library."""
    library = tmp_path_factory.mktemp("shim") / "allocations.so"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    subprocess.run([*compiler, "-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-fno-builtin", str(SOURCE), "-o",
                    str(library), "-ldl"], check=True)
    return library


def child(shim, path, code, *arguments, watched="0"):
    """What the code prints as JSON, run with the library in front."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PANTHEON_MEM")}
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(PROLOGUE) + textwrap.dedent(code), str(path),
                             *arguments],
                            capture_output=True, text=True, timeout=600,
                            env={**environment, "LD_PRELOAD": str(shim), "PANTHEON_MEMWATCH": watched})
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(params=every_architecture.NAMES)
def name(request):
    return request.param


@pytest.fixture
def path(name, tmp_path, monkeypatch):
    return every_architecture.model_path(name, tmp_path, monkeypatch)


STRUCTS = 5632               # of a state and what is in it: no part of a price that grows
POINTERS = 8 * 40            # of a batch's states


@pytest.mark.skipif(Arena(64).debug, reason="arenas of a debug build have room for guards beside what they hold")
def test_prices_are_what_is_allocated(shim, name, path):
    """States of every type and size, then work buffers of a prompt, of a prompt with all logits and of a batch."""
    seen = child(shim, path, """
        found = []
        with pantheon.load(path, threads=2) as model:
            for kv_type in sys.argv[2:]:
                for part in (0.07, 0.5, 1.0):
                    n_ctx = max(1, int(min(model.n_ctx_train, 4096) * part))
                    cost, before = model.cost(n_ctx, kv_type), live()
                    with model.new_state(n_ctx, kv_type) as state:
                        assert cost.kv_type == state.kv_type == kv_type
                        found.append((f"state {n_ctx} {kv_type}", cost.kv_bytes + cost.state_bytes, live() - before))
        runs = [("prompt", dict(window=40)), ("all logits", dict(window=40, all_logits=True)),
                ("batch", dict(batch=40))]
        for name, sizes in runs:
            with pantheon.load(path, threads=2) as model:
                states = [model.new_state(64) for _ in range(40)]
                cost, before, held = model.cost(64, **{"window": 1, **sizes}), live(), admission.work_bytes(model)
                peak()
                if name == "batch":
                    logits = model.forward_batch([5] * 40, states)
                else:
                    logits = model.prefill([5] * 40, states[0], sizes.get("all_logits", False))
                found.append((name, cost.scratch_bytes, peak() - before + held))
                assert logits.nbytes == cost.logits_bytes, (name, logits.nbytes, cost)
        print(json.dumps(found))
    """, *every_architecture.kv_types(name))
    for what, price, taken in seen:
        if what == "batch":                              # in RWKV it takes less than a prompt of that length
            assert price * 0.99 <= taken <= price + POINTERS, (what, price, taken)
        elif what.startswith("state"):
            assert price <= taken <= price + STRUCTS, (what, price, taken)
        else:
            assert taken == price, (what, price, taken)


def test_any_allocation_may_fail(shim, path):
    """Each allocation of each call in turn. Nothing is left behind, and the same call then gives what it should."""
    seen = child(shim, path, """
        tokens = [5, 6, 7, 8]

        def attempt(call, undo):
            \"\"\"call with its k-th allocation failing, for every k: how many there are.\"\"\"
            undo(call())                                 # what is made once is made now
            gc.collect()
            shim.allocations_fail(0)
            kept = live()
            undo(call())
            gc.collect()
            n, k = shim.allocations_fail(0), 1
            assert live() == kept, ("leaks without a failure", live() - kept)
            while k <= n:
                shim.allocations_fail(k)
                try:
                    undo(call())
                except MemoryError as e:
                    assert str(e), f"allocation {k} of {n} has no name"
                else:
                    raise AssertionError(f"allocation {k} of {n} failed, and nobody said so")
                finally:
                    shim.allocations_fail(0)
                gc.collect()
                assert live() == kept, (f"allocation {k} of {n} failed", live() - kept)
                k += max(1, n // 64)                     # a long list is sampled
            undo(call())
            return n

        counts = {}
        counts["load"] = attempt(lambda: pantheon.load(path, threads=2), lambda model: model.close())
        model = pantheon.load(path, threads=2)
        counts["state"] = attempt(lambda: model.new_state(64), lambda state: state.close())
        state = model.new_state(64)
        expected = model.prefill(tokens, state).copy()
        state.reset()

        # Work buffers grow with the run, so every attempt has a new model.
        def run(what):
            fresh = pantheon.load(path, threads=2)
            s = [fresh.new_state(64) for _ in range(3)]
            shim.allocations_fail(0)
            try:
                what(fresh, s)
                n = shim.allocations_fail(0)
            finally:
                fresh.close()
            for k in range(1, n + 1):
                fresh = pantheon.load(path, threads=2)
                s = [fresh.new_state(64) for _ in range(3)]
                shim.allocations_fail(k)
                try:
                    what(fresh, s)
                    raise AssertionError(f"allocation {k} of {n} failed, and nobody said so")
                except MemoryError as e:
                    assert str(e), f"allocation {k} of {n} has no name"
                finally:
                    shim.allocations_fail(0)
                assert [x.pos for x in s] == [0, 0, 0]
                assert (fresh.prefill(tokens, s[0]) == expected).all()
                fresh.close()
            return n

        counts["prefill"] = run(lambda m, s: m.prefill(tokens, s[0]))
        counts["all logits"] = run(lambda m, s: m.prefill(tokens, s[0], all_logits=True))
        counts["batch"] = run(lambda m, s: m.forward_batch([5, 6, 7], s))
        counts["forward"] = run(lambda m, s: m.forward(5, s[0]))

        def raised(m, s):
            m.forward(5, s[0])
            s[0].reset()
            m.threads = 9                                # a state that was made for fewer
            m.forward(5, s[0])
            s[0].reset()

        counts["raised threads"] = run(raised)
        model.prefill(tokens, state)
        counts["checkpoint"] = attempt(state.checkpoint, lambda checkpoint: None)
        print(json.dumps(counts))
    """)
    assert min(seen["load"], seen["state"], seen["prefill"], seen["batch"]) > 0, seen


@pytest.mark.parametrize("name", ["llama3", "qwen35moe", "rwkvx"])
def test_a_request_ends_with_its_failure(shim, name, path, tmp_path):
    """Whichever of its allocations fails: its state and its reservation go, and the next one is served."""
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    assert child(shim, path, """
        from pantheon._core.memory import ladder, memwatch
        options = dict(threads=1, vocab_path=sys.argv[2] if "rwkv" in path else None)
        ladder.configure(window=4, window_tight=4, window_critical=4)        # prompts are fed in parts
        memwatch.start()

        def answer(model):
            greedy = pantheon.SamplingParams(temperature=0)
            return [chunk.token for chunk in model.generate([5] * 10, greedy, max_tokens=4)]

        for _ in range(2):                               # what a thread makes once is made by the first
            with pantheon.load(path, **options) as model:
                shim.allocations_fail(0)
                expected = answer(model)
                n = shim.allocations_fail(0)
        for k in range(1, n + 1):
            with pantheon.load(path, **options) as model:
                shim.allocations_fail(k)
                try:
                    answer(model)
                except MemoryError as e:
                    assert str(e), f"allocation {k} of {n} has no name"
                else:
                    raise AssertionError(f"allocation {k} of {n} failed, and nobody said so")
                finally:
                    shim.allocations_fail(0)
                assert model.open_states() == [] and memwatch.read()["host_reserved"] == 0
                assert answer(model) == expected
        print(json.dumps(n))
    """, str(vocab), watched="1") > 3


def test_a_sampler_without_memory(shim, llama):
    """Its scratch is made by the thread's first call."""
    seen = child(shim, llama, """
        import threading
        logits = np.arange(300, dtype=np.float32)
        params = lambda: pantheon.SamplingParams(seed=1, repeat_penalty=1.1, dry_multiplier=0.8)
        recent = list(range(50)) * 2
        expected = pantheon.sample(logits.copy(), params(), recent)
        found = []

        def attempt(k):
            shim.allocations_fail(k)
            try:
                found.append(pantheon.sample(logits.copy(), params(), recent))
            except MemoryError as e:
                found.append(str(e))
            finally:
                shim.allocations_fail(0)
                assert pantheon.sample(logits.copy(), params(), recent) == expected

        for k in range(1, 20):
            thread = threading.Thread(target=attempt, args=(k,))
            thread.start()
            thread.join()
        assert found[-1] == expected
        print(json.dumps(sorted({str(f) for f in found if f != expected})))
    """)
    assert seen == ["no memory for the sampler's scratch"]
