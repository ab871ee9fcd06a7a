"""Same input, same bits: whatever the chunking, the thread count, the company or the history of a sequence."""
import os
import threading

import numpy as np
import pytest
from support.fixture_paths import HF_MODELS, TINY, TINY_MODELS
from support.wide_heads import widened

import pantheon

pytestmark = pytest.mark.equivalence

TOKENS = np.random.default_rng(7).integers(3, 250, 90).astype(np.uint32)
OTHER = np.random.default_rng(8).integers(3, 250, 90).astype(np.uint32)
RECURRENT = {"qwen35", "qwen35moe"}  # go back to checkpoints only


# every GGUF file and every Hugging Face folder
ALL_MODELS = {**{name: TINY / f"{name}.gguf" for name in TINY_MODELS},
              **{f"hf-{path.name}": path for path in HF_MODELS}}


@pytest.fixture(params=ALL_MODELS)
def tiny(request):
    return ALL_MODELS[request.param]


def same(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def stepwise(model, tokens, **options):
    """(n, n_vocab) logits of single steps."""
    with model.new_state(**options) as state:
        return np.stack([model.forward(token, state) for token in tokens])


@pytest.fixture(params=[1, 2])
def model(tiny, request):
    with pantheon.load(tiny, threads=request.param) as model:
        yield model


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wide")


@pytest.fixture(params=TINY_MODELS)
def wide(request, wide_folder):
    """Each GGUF model with heads that a quantised cache can hold."""
    return widened(TINY / f"{request.param}.gguf", wide_folder / f"{request.param}.gguf")


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_prefill_is_single_steps(model, kv_type):
    steps = stepwise(model, TOKENS, kv_type=kv_type)
    with model.new_state(kv_type=kv_type) as state:
        assert state.kv_type == kv_type
        assert same(model.prefill(TOKENS, state, all_logits=True), steps)
        assert state.pos == len(TOKENS)
    with model.new_state(kv_type=kv_type) as state:
        assert same(model.prefill(TOKENS, state), steps[-1])
    assert np.isfinite(steps).all()
    assert np.ptp(steps, axis=1).min() > 0.1


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_prefill_in_chunks(model, chunk):
    steps = stepwise(model, TOKENS)
    with model.new_state() as state:
        parts = [model.prefill(TOKENS[i:i + chunk], state, all_logits=True) for i in range(0, len(TOKENS), chunk)]
    assert same(np.concatenate(parts), steps)


def test_prefill_longer_than_one_window(default_model):
    """Windows, then pieces that end elsewhere; attention over several tiles."""
    tokens = np.random.default_rng(9).integers(100, 40000, 600).astype(np.uint32)
    with pantheon.load(default_model) as model:
        whole, parts = model.new_state(n_ctx=640), model.new_state(n_ctx=640)
        logits = model.prefill(tokens, whole)
        for i in range(0, 600, 101):
            last = model.prefill(tokens[i:i + 101], parts)
        assert same(logits, last)


def test_thread_counts_agree(tiny):
    results = []
    for threads in (1, 2, 3, 5):
        with pantheon.load(tiny, threads=threads) as model, model.new_state() as state:
            prompt = model.prefill(TOKENS[:50], state, all_logits=True)
            results.append(np.concatenate([prompt, stepwise(model, TOKENS[:20])]))
    assert all(same(results[0], other) for other in results[1:])


def test_batched_sequences_are_alone(model):
    alone = [stepwise(model, TOKENS[:40]), stepwise(model, OTHER[:40])]
    with model.new_state() as a, model.new_state(kv_type=a.kv_type) as b:
        batched = [model.forward_batch([TOKENS[i], OTHER[i]], [a, b]) for i in range(40)]
        assert (a.pos, b.pos) == (40, 40)
    assert same(np.stack([logits[0] for logits in batched]), alone[0])
    assert same(np.stack([logits[1] for logits in batched]), alone[1])


def test_a_batch_at_different_positions(model):
    """Seventeen sequences of different lengths, one pass."""
    states = [model.new_state() for _ in range(17)]
    for i, state in enumerate(states):
        if i:
            model.prefill(TOKENS[:i], state)
    checkpoints = [state.checkpoint() for state in states]
    batched = model.forward_batch(OTHER[:17], states)
    for i, state in enumerate(states):
        state.restore(checkpoints[i])
        assert same(model.forward(OTHER[i], state), batched[i])


def test_interleaved_sequences_are_alone(model):
    alone = [stepwise(model, TOKENS[:30]), stepwise(model, OTHER[:30])]
    with model.new_state() as a, model.new_state() as b:
        mixed = [(model.forward(x, a), model.forward(y, b)) for x, y in zip(TOKENS[:30], OTHER[:30], strict=True)]
    assert same(np.stack([m[0] for m in mixed]), alone[0])
    assert same(np.stack([m[1] for m in mixed]), alone[1])


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_reset_is_fresh(model, kv_type):
    with model.new_state(kv_type=kv_type) as state:
        model.prefill(OTHER, state)
        state.reset()
        assert state.pos == 0
        assert same(model.prefill(TOKENS, state, all_logits=True), stepwise(model, TOKENS, kv_type=kv_type))


@pytest.mark.parametrize("cut", [0, 1, 37, 64, 89])
def test_truncate_and_go_on(model, cut):
    straight = stepwise(model, TOKENS)
    with model.new_state() as state:
        model.prefill(np.concatenate([TOKENS[:cut], OTHER[:38]]), state)
        if model.arch in RECURRENT:
            with pytest.raises(ValueError, match="recurrent state cannot be truncated"):
                state.truncate(cut)
            assert state.pos == cut + 38
            return
        state.truncate(cut)
        assert state.pos == cut
        assert same(model.prefill(TOKENS[cut:], state, all_logits=True), straight[cut:])


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_all_of_it_with_a_quantised_cache(wide, kv_type):
    """Groups of eight positions share nothing but a place: cuts, chunks and turns fall into the middle of them."""
    cut = 37
    with pantheon.load(wide, threads=1) as model:
        steps, f16 = stepwise(model, TOKENS, kv_type=kv_type), stepwise(model, TOKENS, kv_type="f16")
    assert np.abs(steps - f16).max() > 1e-3              # it is quantised
    with pantheon.load(wide, threads=3) as model:

        def start(n=0):
            state = model.new_state(kv_type=kv_type)
            assert state.kv_type == kv_type
            if n:
                model.prefill(TOKENS[:n], state)
            return state

        state = start()
        assert same(model.prefill(TOKENS, state, all_logits=True), steps)
        state.reset()
        parts = [model.prefill(TOKENS[i:i + 7], state, all_logits=True) for i in range(0, len(TOKENS), 7)]
        assert same(np.concatenate(parts), steps)
        if model.arch not in RECURRENT:
            state.truncate(cut)
            model.prefill(OTHER[:20], state)
            state.truncate(cut)
            assert same(model.prefill(TOKENS[cut:], state, all_logits=True), steps[cut:])
        state = start(cut)
        checkpoint = state.checkpoint()
        model.prefill(OTHER[:38], state)
        state.restore(checkpoint)
        assert same(model.prefill(TOKENS[cut:], state, all_logits=True), steps[cut:])
        states = [start(n) for n in range(17)]
        batched = model.forward_batch(TOKENS[:17], states)
        assert same(batched, steps[:17])


@pytest.mark.parametrize("cut", [0, 1, 2, 33, 64, 89])
def test_checkpoint_and_go_on(model, cut):
    """Back to a checkpoint twice, from further on and from a different continuation."""
    straight = stepwise(model, TOKENS)
    with model.new_state() as state:
        if cut:
            model.prefill(TOKENS[:cut], state)
        checkpoint = state.checkpoint()
        for detour in (OTHER[:38], OTHER[40:41]):
            model.prefill(detour, state)
            state.restore(checkpoint)
            assert state.pos == cut
            assert checkpoint.valid
        assert same(model.prefill(TOKENS[cut:], state, all_logits=True), straight[cut:])


def test_embedding_override_equals_the_token(model):
    table = embedding_table(model)
    with model.new_state() as a, model.new_state() as b:
        model.prefill(TOKENS[:5], a)
        model.prefill(TOKENS[:5], b)
        b.embd_override = table[17]
        assert same(model.forward(17, a), model.forward(3, b))
        b.embd_override = None
        assert same(model.forward(18, a), model.forward(18, b))


def embedding_table(model):
    import gguf

    if model.container == "safetensors":
        return hf_embedding_table(model)
    for tensor in gguf.GGUFReader(model.path).tensors:
        if tensor.name == "token_embd.weight":
            return gguf.dequantize(tensor.data, tensor.tensor_type).reshape(model.n_vocab, model.config.n_embd)
    raise AssertionError("no embedding table")


def hf_embedding_table(model):
    from pantheon._core.files.safetensors import SafetensorsFile

    index = os.path.join(model.path, "model.safetensors.index.json")
    with SafetensorsFile(index if os.path.exists(index) else os.path.join(model.path, "model.safetensors")) as file:
        info = next(t for t in file.tensors if t.name.endswith("embed_tokens.weight"))
        data = file.tensor(info.name)
        if info.type == "BF16":
            return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
        return data.view({"F32": np.float32, "F16": np.float16}[info.type]).astype(np.float32).reshape(info.shape)


def test_models_run_from_many_threads(tiny):
    """Eight threads with states of their own on one model: calls queue, results stay."""
    with pantheon.load(tiny, threads=2) as model:
        expected = stepwise(model, TOKENS[:20])
        failures = []

        def work():
            if not same(stepwise(model, TOKENS[:20]), expected):
                failures.append(threading.current_thread().name)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
