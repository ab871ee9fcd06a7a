"""`pantheon bench`: its arguments and what it prints; the measuring itself is tests/test_bench.py."""
import json

import pytest

from pantheon import bench
from pantheon.cli import main

RESULT = {
    "model": "m.gguf", "arch": "llama", "level": "avx2", "threads": 2, "n_prompt": 10, "n_decode": 4, "repeats": 1,
    "load_s": 0.002, "peak_rss_bytes": 5_000_000, "state_bytes": 1000, "active_bytes": 2_000_000,
    "prefill_s": 0.1, "prefill_tokens_per_s": 100.0, "prefill_multiply_adds_per_s": 1e9,
    "peak_multiply_adds_per_s": 4e9, "prefill_of_peak": 0.25,
    "decode_s": 0.5, "decode_tokens_per_s": 8.0, "decode_read_bytes_per_s": 16e6, "probe_read_bytes_per_s": 32e6,
    "decode_of_probe": 0.5, "batch_per_s": {},
    "breakdown_s": {"products": 0.08, "attention": 0.004, "waiting": 0.006, "vectors": 0.005, "sampling": 0.003,
                    "python": 0.002},
}


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that were measured; each gives RESULT with the batches it asked for."""
    asked = []

    def measure_apart(job):
        asked.append(job)
        return RESULT | {"batch_per_s": {str(n): 8.0 * n ** 0.5 for n in job.batches}}

    monkeypatch.setattr(bench, "measure_apart", measure_apart)
    return asked


def test_defaults(capsys, model, jobs):
    assert main(["bench", model.path]) == 0
    assert jobs == [bench.Job(model.path, 512, 64, None, 5, (), None)]
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line.split() for line in out.splitlines()]
    assert ["load", "2.0", "ms"] in lines
    assert ["prefill", "10", "100.0", "tokens/s"] in lines
    assert "1.0 G multiply-adds/s, 25% of 4.0 G (instructions alone)" in out
    assert ["matrix", "products", "80000", "us", "80.0%"] in lines
    assert ["all", "but", "products,", "attention", "and", "waiting", "10000", "us", "10.0%"] in lines
    assert "x one" not in out


def test_batches_are_compared_with_one(capsys, model, jobs):
    assert main(["bench", "-p", "7", "-n", "3", "-t", "1", "-r", "2", "--batch", "4", model.path]) == 0
    assert jobs == [bench.Job(model.path, 7, 3, 1, 2, (1, 4))]
    assert ["4", "16.0", "tokens/s", "2.00", "x", "one"] in [
        line.split() for line in capsys.readouterr().out.splitlines()]


def test_json(capsys, model, jobs):
    assert main(["bench", "--json", model.path]) == 0
    assert json.loads(capsys.readouterr().out) == RESULT


def test_level_without_a_peak(capsys, model, jobs, monkeypatch):
    monkeypatch.setitem(RESULT, "peak_multiply_adds_per_s", None)
    monkeypatch.setitem(RESULT, "prefill_of_peak", None)
    assert main(["bench", model.path]) == 0
    assert "instructions alone" not in capsys.readouterr().out
