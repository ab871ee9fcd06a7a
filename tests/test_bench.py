"""pantheon.bench: what it counts, and that its parts add up. No test asserts a time."""
import math
from collections import namedtuple

import pytest

import pantheon
from pantheon import bench
from pantheon._core import phases
from pantheon._core.kernels import probes, table

T = namedtuple("T", "name shape nbytes")


def test_active_counts_one_row_of_an_embedding_that_is_not_the_head():
    counts = bench.active([T("token_embd.weight", (100, 8), 3200), T("output.weight", (100, 8), 1600),
                           T("blk.0.attn_norm.weight", (8,), 32), T("blk.0.attn_q.weight", (16, 8), 72)], 0, 0)
    assert counts == (32 + 1600 + 32 + 72, 16 * 8, 800)


def test_active_knows_the_names_of_rwkv():
    counts = bench.active([T("rwkv.emb.weight", (100, 8), 3200), T("rwkv.head.weight", (100, 8), 1600),
                           T("rwkv.blocks.0.att.key.weight", (8, 8), 256)], 0, 0)
    assert counts == (32 + 1600 + 256, 64, 800)


def test_active_counts_a_tied_embedding_whole():
    counts = bench.active([T("token_embd.weight", (100, 8), 3200), T("blk.0.attn_q.weight", (16, 8), 72)], 0, 0)
    assert counts == (3272, 128, 800)


def test_active_counts_the_experts_that_are_used():
    counts = bench.active([T("token_embd.weight", (10, 8), 80), T("blk.0.ffn_gate_inp.weight", (4, 8), 128),
                           T("blk.0.ffn_up_exps.weight", (4, 6, 8), 400)], 4, 1)
    assert counts == (80 + 128 + 100, 32 + 48, 80)


def test_active_bytes_of_a_model_are_all_of_its_weights(llama):
    with pantheon.load(llama) as model:
        tensors = model.gguf().tensors
        embedding = next(t for t in tensors if t.name == "token_embd.weight")
        unread = 0
        if any(t.name == "output.weight" for t in tensors):
            unread = embedding.nbytes - embedding.nbytes // model.n_vocab
        assert bench.active_bytes(model) == sum(t.nbytes for t in tensors) - unread


def test_phases_count_every_moment_once(llama):
    with pantheon.load(llama, threads=2) as model, model.new_state() as state:
        plain = model.prefill([5, 6, 7], state)
        state.reset()
        phases.start()
        measured = model.prefill([5, 6, 7], state)
        seconds = phases.stop()
        assert tuple(seconds) == phases.NAMES
        assert all(seconds[kind] > 0 for kind in ("outside", "vectors", "products", "attention"))
        model.forward(8, state)
        phases.start()
        assert sum(value for kind, value in phases.stop().items() if kind != "outside") == 0
    assert (plain == measured).all()


def test_measure(llama):
    job = bench.Job(str(llama), n_prompt=9, n_decode=3, threads=2, repeats=2, batches=(1, 2))
    result = bench.measure_apart(job)
    assert result["model"] == str(llama) and result["threads"] == 2
    assert result["level"] == table.cpu_info()["level"]
    assert set(result["breakdown_s"]) == set(bench.BREAKDOWN)
    assert all(seconds >= 0 for seconds in result["breakdown_s"].values())
    assert set(result["batch_per_s"]) == {"1", "2"}
    for key in ("load_s", "prefill_tokens_per_s", "decode_tokens_per_s", "decode_of_probe", "peak_rss_bytes"):
        assert result[key] > 0 and math.isfinite(result[key]), key
    assert math.isclose(result["decode_read_bytes_per_s"] * result["decode_s"], 3 * result["active_bytes"])


def test_measure_names_what_does_not_fit(llama):
    with pytest.raises(ValueError, match="positions are more than the model's context"):
        bench.measure(bench.Job(str(llama), n_prompt=1 << 20))
    with pytest.raises(OSError, match="no-such"):
        bench.measure_apart(bench.Job("no-such.gguf"))


@pytest.mark.parametrize("level", table.levels_supported())
def test_peaks(level):
    for floats in (False, True):
        peak = probes.multiply_peak(level, threads=2, floats=floats, passes=1)
        assert (peak is None) == (level == "ref")
        assert peak is None or peak > 0


def test_read_probe():
    probe = probes.ReadProbe(1 << 20)
    assert probe.bandwidth(threads=2, passes=2) > 0
    with pytest.raises(ValueError, match="threads is 0"):
        probe.bandwidth(threads=0)
    with pytest.raises(ValueError, match="too few"):
        probes.ReadProbe(1024).bandwidth(threads=3)
