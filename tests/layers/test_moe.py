"""Mixture of experts: the router, mixed states of LongRoPE, what the models' files may look like."""
import math
import re

import gguf
import numpy as np
import pytest
from support.fixture_paths import TINY

import pantheon
from pantheon._core.layers import moe

EXPERT = re.compile(r"blk\.(\d+)\.(ffn_\w+)\.\d+\.weight")


def softmax(logits):
    x = np.exp(np.float64(logits) - max(logits))
    return x / x.sum()


def test_router():
    logits = [0.5, 3.0, -1.0, 2.0, 2.5]
    p = softmax(logits)
    chosen, weights = moe.route(logits, 3)
    assert chosen == [1, 4, 3]
    np.testing.assert_allclose(weights, p[chosen] / p[chosen].sum(), rtol=1e-6)
    chosen, weights = moe.route(logits, 3, renormalise=False, scale=2.5)
    assert chosen == [1, 4, 3]
    np.testing.assert_allclose(weights, 2.5 * p[chosen], rtol=1e-6)
    assert moe.route(logits, 5)[0] == [1, 4, 3, 0, 2]


def test_router_against_a_sort():
    rng = np.random.default_rng(3)
    for n in (1, 2, 60, 256):
        for used in {1, min(n, 8), n}:
            logits = rng.integers(-6, 6, n).astype(np.float32)           # many ties
            expected = sorted(range(n), key=lambda e: (-logits[e], e))[:used]
            chosen, weights = moe.route(logits, used)
            assert chosen == expected
            assert math.isclose(sum(weights), 1.0, rel_tol=1e-5)


def test_router_with_a_sum_near_zero():
    """Weights are divided by 2^-14 at least."""
    p = 2.0**-20
    logits = [math.log(p)] * 2 + [0.0]
    chosen, weights = moe.route(logits, 3)
    assert chosen == [2, 0, 1]
    logits = [0.0] * 2**17                                              # each 2^-17: four add up to 2^-15
    chosen, weights = moe.route(logits, 4)
    assert chosen == [0, 1, 2, 3]
    np.testing.assert_allclose(weights, 2.0**-3, rtol=1e-5)


@pytest.mark.parametrize("logits", [[math.nan] * 6, [math.inf] * 6, [-math.inf] * 6, [1, math.nan, 2, math.inf, 0, 1]])
def test_router_without_numbers(logits):
    """Broken weights give broken numbers, never experts that do not exist or one twice."""
    chosen, _ = moe.route(logits, 4)
    assert len(set(chosen)) == 4
    assert set(chosen) <= set(range(6))


@pytest.mark.parametrize("n_used", [0, -1, 4])
def test_router_arguments(n_used):
    with pytest.raises(ValueError, match=f"n_used is {n_used}, not in 1..3"):
        moe.route([1, 2, 3], n_used)


def test_files_of_one_model_agree(tmp_path):
    """Experts stacked, gate and up fused, or one tensor each: the same bits."""
    source = TINY / "mixtral-split.gguf"
    tokens = np.random.default_rng(5).integers(3, 250, 40).astype(np.uint32)
    reader = gguf.GGUFReader(source)
    parts = {}
    for tensor in reader.tensors:
        if match := EXPERT.fullmatch(tensor.name):
            parts.setdefault(match.groups(), []).append(np.array(tensor.data))
    assert parts
    stacked = {f"blk.{layer}.{part}_exps.weight": np.stack(data) for (layer, part), data in parts.items()}
    fused = {name: data for name, data in stacked.items() if "_down_" in name}
    for name, gate in stacked.items():
        if "_gate_" in name:
            up = stacked[name.replace("_gate_", "_up_")]
            fused[name.replace("_gate_", "_gate_up_")] = np.concatenate([gate, up], axis=1)
    results = [run(source, tokens)]
    for name, experts in (("stacked", stacked), ("fused", fused)):
        path = tmp_path / f"{name}.gguf"
        rewrite(reader, experts, path)
        results.append(run(path, tokens))
    assert results[0] == results[1] == results[2]


def rewrite(reader, experts, path):
    """The model of reader with its experts in other tensors, and others in the place of some."""
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.architecture", "tokenizer.")):
            continue
        writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        if not EXPERT.fullmatch(tensor.name) and tensor.name not in experts:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    for name, data in experts.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(path, tokens):
    with pantheon.load(path) as model, model.new_state() as state:
        assert model.config.n_experts == 4
        return model.prefill(tokens, state, all_logits=True).tobytes()


def test_only_the_chosen_experts_are_read(tmp_path):
    """A router of zeros chooses the experts of the lowest numbers; the others hold no numbers."""
    source = TINY / "mixtral-split.gguf"
    tokens = np.random.default_rng(5).integers(3, 250, 40).astype(np.uint32)
    reader = gguf.GGUFReader(source)
    experts = {t.name: np.array(t.data) for t in reader.tensors if EXPERT.fullmatch(t.name)}
    routers = {t.name: np.zeros_like(t.data) for t in reader.tensors if "ffn_gate_inp" in t.name}
    assert routers
    results = []
    for value in (None, math.nan):
        data = {name: np.full_like(array, value) if value is not None and name.endswith(".3.weight") else array
                for name, array in experts.items()}
        path = tmp_path / f"{value}.gguf"
        rewrite(reader, data | routers, path)
        with pantheon.load(path) as model, model.new_state() as a, model.new_state() as b:
            assert model.config.n_experts_used == 3
            results.append(model.prefill(tokens, a, all_logits=True))
            results.append(np.stack([model.forward(token, b) for token in tokens]))
    assert np.isfinite(results[0]).all() and np.ptp(results[0], axis=1).min() > 0.1
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_states_of_both_factors_in_one_batch():
    """LongRoPE: each state keeps the factors that its own n_ctx asks for."""
    tokens = np.random.default_rng(6).integers(3, 250, 12).astype(np.uint32)
    with pantheon.load(TINY / "phi3-longrope.gguf") as model:
        alone = {}
        for n_ctx in (48, 49):
            with model.new_state(n_ctx=n_ctx) as state:
                alone[n_ctx] = np.stack([model.forward(token, state) for token in tokens])
        assert np.abs(alone[48] - alone[49]).max() > 0.1
        with model.new_state(n_ctx=48) as short, model.new_state(n_ctx=49) as long:
            for i, token in enumerate(tokens):
                both = model.forward_batch([token, token], [short, long])
                assert both[0].tobytes() == alone[48][i].tobytes()
                assert both[1].tobytes() == alone[49][i].tobytes()
