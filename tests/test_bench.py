"""pantheon.bench: what it counts, and that its parts add up. No test asserts a time."""
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import namedtuple
from types import SimpleNamespace

import pytest
from support import rwkv_models
from support.fixture_paths import TINY
from support.odd_path import OddPath

import pantheon
from pantheon import bench, errors
from pantheon._core.base import phases
from pantheon._core.kernels import table
from pantheon._core.probes import rates
from pantheon._core.python.admission import work_bytes
from pantheon.verdict import Verdict

T = namedtuple("T", "name shape nbytes type", defaults=["F32"])


def test_active_counts_one_row_of_an_embedding_that_is_not_the_head():
    counts = bench.active([T("token_embd.weight", (100, 8), 3200), T("output.weight", (100, 8), 1600),
                           T("blk.0.attn_norm.weight", (8,), 32), T("blk.0.attn_q.weight", (16, 8), 72)], 0, 0)
    assert counts == (32 + 1600 + 32 + 72, 16 * 8, 800)


def test_active_knows_the_names_of_rwkv():
    counts = bench.active([T("rwkv.emb.weight", (100, 8), 3200), T("rwkv.head.weight", (100, 8), 1600),
                           T("rwkv.blocks.0.att.key.weight", (8, 8), 256)], 0, 0)
    assert counts == (32 + 1600 + 256, 64, 800)


def test_active_knows_the_names_of_hugging_face():
    counts = bench.active([
        T("model.language_model.embed_tokens.weight", (10, 8), 160), T("lm_head.weight", (10, 8), 160),
        T("model.language_model.layers.0.mlp.gate.weight", (4, 8), 64),
        T("model.language_model.layers.0.mlp.experts.2.up_proj.weight", (6, 8), 96),
        T("model.language_model.layers.0.mlp.experts.gate_up_proj", (4, 12, 8), 768),
        T("model.language_model.layers.0.mlp.shared_expert.up_proj.weight", (6, 8), 96),
        T("model.language_model.layers.0.self_attn.o_proj.weight", (2, 8), 16, "U8"),
        T("model.visual.patch_embed.weight", (100, 8), 1600), T("mtp.fc.weight", (100, 8), 1600)], 4, 1)
    assert counts == (16 + 160 + 64 + 24 + 192 + 96 + 16, 32 + 12 + 96 + 48 + 64, 80)


def test_active_bytes_of_matrices_that_are_packed_when_loaded():
    """bitnet-online has floats in its file; the engine reads four weights of a layer's matrix from each byte."""
    with pantheon.load(TINY.parent / "hf" / "bitnet-online") as model, model.safetensors() as file:
        matrices = [t for t in file.tensors if t.name.endswith("_proj.weight")]
        assert {(len(t.shape), t.type) for t in matrices} == {(2, "BF16")}
        as_floats = sum(t.nbytes for t in matrices)
        unpacked = bench.active(file.tensors, 0, 0)
        assert bench.active_bytes(model) == unpacked.nbytes - as_floats + as_floats // 8
        assert bench._active_of(model)[1:] == unpacked[1:]


def test_an_error_that_cannot_be_sent_to_another_process():
    with pytest.raises(RuntimeError, match="^Odd: two parts$"):
        bench.measure_apart(bench.Job(OddPath()))


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_can_be_sent_to_another_process(name):
    verdict = Verdict("DENIED", 3, 0, 5, 4, None, 1, (), "why")
    error = getattr(errors, name)(*(("it is", verdict) if name == "AdmissionError" else ("it is",)))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == "it is"
    assert vars(again) == vars(error)


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


@pytest.mark.parametrize("folder", ["llama-sharded", "qwen35-moe", "ternary-llama"])
def test_measure_of_a_folder(folder):
    """Safetensors, with experts and with recurrent layers, several sequences too."""
    result = bench.measure(bench.Job(str(TINY.parent / "hf" / folder), n_prompt=9, n_decode=2, repeats=1, batches=(2,)))
    assert result["active_bytes"] > 0 and result["decode_tokens_per_s"] > 0
    assert set(result["batch_per_s"]) == {"2"}


def test_measure_of_rwkv(tmp_path):
    rwkv_models.write(rwkv_models.RECIPES["rwkv7"], tmp_path / "m.safetensors")
    (tmp_path / "vocab.txt").write_text("1 'a' 1\n")
    job = bench.Job(str(tmp_path / "m.safetensors"), n_prompt=9, n_decode=2, repeats=1, batches=(2,),
                    vocab_path=str(tmp_path / "vocab.txt"))
    assert bench.measure(job)["prefill_tokens_per_s"] > 0
    with pytest.raises(OSError, match="no-such"):
        bench.measure(job._replace(vocab_path="no-such"))


def test_the_measuring_process_ends_with_the_measurement(llama, monkeypatch):
    """Ended from outside, and when the caller is interrupted."""
    job = bench.Job(str(llama), n_prompt=8, n_decode=8, repeats=1 << 30)

    def soon(action):
        def act():
            while not (children := multiprocessing.active_children()):
                time.sleep(0.01)
            action(children[0].pid)
        threading.Thread(target=act).start()

    soon(lambda pid: os.kill(pid, signal.SIGKILL))
    with pytest.raises(RuntimeError, match="ended with status -9"):
        bench.measure_apart(job)
    soon(lambda pid: (os.kill(pid, signal.SIGINT), os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        bench.measure_apart(job)
    assert multiprocessing.active_children() == []


def test_a_batch_that_just_fits(llama, monkeypatch):
    """Work buffers and logits are there once, whatever the batch."""
    n, job = 64, bench.Job(str(llama), n_prompt=4, n_decode=4, batches=(64,))
    with pantheon.load(llama, threads=2) as model:
        states = [model.new_state(bench.BATCH_PROMPT + 4) for _ in range(n)]
        for state in states:
            model.prefill([5] * bench.BATCH_PROMPT, state)
        logits = model.forward_batch([5] * n, states)
        taken = sum(state.nbytes for state in states) + work_bytes(model) + logits.nbytes
        for have in (taken, int(taken * 0.98)):
            monkeypatch.setattr(type(model), "admit", lambda *_, have=have: SimpleNamespace(have_bytes=have))
            if have == taken:
                bench._check(job, model)
            else:
                with pytest.raises(ValueError, match=f"a batch of 64 takes [0-9]+ bytes, and {have} can be had"):
                    bench._check(job, model)


def test_measure_names_what_does_not_fit(llama):
    with pytest.raises(ValueError, match="a batch of 1000000000 takes"):
        bench.measure(bench.Job(str(llama), n_prompt=4, n_decode=4, batches=(10**9,)))
    with pytest.raises(ValueError, match="positions are more than the model's context"):
        bench.measure(bench.Job(str(llama), n_prompt=1 << 20))
    with pytest.raises(OSError, match="no-such"):
        bench.measure_apart(bench.Job("no-such.gguf"))


@pytest.mark.parametrize("level", table.levels_supported())
def test_peaks(level):
    for floats in (False, True):
        peak = rates.multiply_peak(level, threads=2, floats=floats, passes=1)
        assert (peak is None) == (level == "ref")
        assert peak is None or peak > 0


def test_read_probe():
    probe = rates.ReadProbe(1 << 20)
    assert probe.bandwidth(threads=2, passes=2) > 0
    with pytest.raises(ValueError, match="threads is 0"):
        probe.bandwidth(threads=0)
    with pytest.raises(ValueError, match="too few"):
        rates.ReadProbe(1024).bandwidth(threads=3)
