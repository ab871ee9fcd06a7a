"""memwatch from C: limits, and who answers for the dies."""
import ast
import os
import subprocess
import sys
import textwrap

import pytest

import pantheon

GIB = 1 << 30


def child(probe, code, *arguments, **environment):
    """Runs code with the probe imported, in a process of its own: it changes what is of the whole process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PANTHEON_MEM")}
    start = f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("probe", {probe.__file__!r})
        probe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(probe)
    """
    code = textwrap.dedent(start) + textwrap.dedent(code)
    result = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True,
                            timeout=300, env={**clean, **environment})
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_dies_may_be_asked_through_python(probe, llama):
    """Nobody holds a lock meanwhile, or this would not end."""
    out = child(probe, "print(probe.dies_from_python(sys.argv[1]))", llama)
    status, asked, n_dies, total, free = ast.literal_eval(out)
    assert (status, n_dies, total, free) == (0, 1, GIB, GIB // 2) and asked >= 20


@pytest.mark.parametrize(("environment", "limit", "expected"), [
    ({}, 3 * GIB, 3 * GIB), ({"PANTHEON_MEMORY_LIMIT": "2G"}, None, 2 * GIB),
    ({"PANTHEON_MEMORY_LIMIT": "2G"}, 3 * GIB, 3 * GIB), ({"PANTHEON_MEMORY_LIMIT": "2G"}, 0, 2 * GIB),
    ({"PANTHEON_MEMORY_LIMIT": ""}, 1 << 20, 1 << 20),
])
def test_limits(probe, environment, limit, expected):
    """By a call, by the environment when memwatch starts, and the call counts for more."""
    out = child(probe, f"""
        from pantheon._core.memory import memwatch
        print(probe.limited({limit}, True)[:3], memwatch.limit())
        memwatch.sample()
        print(memwatch.read()["host_total"])
    """, **environment)
    assert out == f"(0, 0, True) {expected}\n{expected}\n"


def test_limits_that_are_none(probe):
    out = child(probe, "print(probe.limited(None, True))", PANTHEON_MEMORY_LIMIT="lots")
    assert out.startswith("(0, -1, False, ") and "PANTHEON_MEMORY_LIMIT is 'lots', not in 1..4611686018427387904" in out
    out = child(probe, f"print(probe.limited({2**63}, False))")
    assert out.startswith("(-1, 0, False, ") and "the memory limit is not in 0..4611686018427387904 bytes" in out


def test_prices_from_c(probe, tiny):
    """The same as Python's, of a state that is made for just these tokens."""
    with pantheon.load(tiny) as model:
        for kv_type, number in (("f16", 1), ("f32", 2)):
            n_ctx = min(model.n_ctx_train, 96)
            price, same = probe.price(str(tiny), 40, n_ctx - 40, 0, number), model.cost(n_ctx, kv_type, 40)
            for key in ("kv_bytes", "state_bytes", "scratch_bytes", "logits_bytes", "window"):
                assert price[key] == getattr(same, key), key
            assert price["total"] == price["need"] == same.total and price["kv"] == same.kv_bytes
            assert (price["dies"], price["die"]) == (0, 0) and 40 <= price["fit"] < n_ctx
        shorter = probe.price(str(tiny), 40, 8, 16, 1)
        assert shorter["window"] == 16 and shorter["scratch_bytes"] < price["scratch_bytes"]
        assert probe.price(str(tiny), 40, 50, 16, 1)["scratch_bytes"] == shorter["scratch_bytes"]
