"""What is particular to Qwen3.5: recurrent state and its checkpoints, its environment, its files."""
import json
import os
import subprocess
import sys
import textwrap

import gguf
import numpy as np
import pytest
from support.fixture_paths import TINY

import pantheon
from pantheon._core.arch.qwen35.ops import probe
from pantheon._core.layers.rope import mrope_table

Q = gguf.GGMLQuantizationType
TOKENS = np.random.default_rng(3).integers(3, 280, 80).astype(np.uint32)


@pytest.fixture(params=["qwen35", "qwen35moe"])
def model(request):
    with pantheon.load(TINY / f"{request.param}.gguf") as model:
        yield model


@pytest.fixture
def moe():
    with pantheon.load(TINY / "qwen35moe.gguf") as model:
        yield model


# ---- numbers ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["qwen35", "qwen35moe"])
def test_five_hundred_steps_agree_with_transformers(name):
    """One token at a time; the reference ran its chunked form over all of them at once."""
    golden = np.load(TINY / f"{name}.npz")
    tokens, logits = golden["long_tokens"], golden["long_logits"]
    stride = len(tokens) // len(logits)
    assert len(tokens) >= 500
    with pantheon.load(TINY / f"{name}.gguf") as model, model.new_state(kv_type="f32") as state:
        for i, token in enumerate(tokens):
            got = model.forward(token, state)
            assert np.isfinite(got).all(), i
            if (i + 1) % stride == 0:
                np.testing.assert_allclose(got, logits[i // stride], rtol=0, atol=2e-3, err_msg=str(i))


def test_interleaved_mrope():
    """Which of the 32 pairs of the published model follow which position."""
    cs = mrope_table(64, 1e7, [11, 11, 10], [5, 700, 9000])
    pos = np.full(32, 5.0)
    pos[np.arange(1, 32, 3)] = 700
    pos[np.arange(2, 30, 3)] = 9000
    assert (pos == 5).sum() == 11 and (pos == 700).sum() == 11 and (pos == 9000).sum() == 10
    angles = pos * 1e7 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(cs, np.stack([np.cos(angles), np.sin(angles)], axis=1), atol=1e-6)
    text = mrope_table(64, 1e7, [11, 11, 10], [7, 7, 7])
    np.testing.assert_array_equal(text, mrope_table(64, 1e7, [0, 0, 0], [7, 1, 1]))


# ---- states ----------------------------------------------------------------------------------------------------------

def test_a_checkpoint_holds_the_recurrent_state(model):
    """Its size does not depend on the position."""
    with model.new_state() as state:
        first = state.checkpoint()
        model.prefill(TOKENS[:50], state)
        second = state.checkpoint()
        assert first.nbytes == second.nbytes > 1000
        assert first.nbytes < state.nbytes
        assert (first.pos, second.pos) == (0, 50)


def test_restoring_an_earlier_checkpoint_ends_the_later_ones(model):
    with model.new_state() as state:
        model.prefill(TOKENS[:10], state)
        early = state.checkpoint()
        model.prefill(TOKENS[10:20], state)
        late = state.checkpoint()
        state.restore(late)
        assert early.valid and late.valid
        state.restore(early)
        assert early.valid and not late.valid
        assert late.nbytes == 0
        with pytest.raises(ValueError, match="reset or truncated"):
            state.restore(late)
        state.reset()
        assert not early.valid
        with pytest.raises(ValueError, match="reset or truncated"):
            state.restore(early)


def test_checkpoints_end_with_their_state(model):
    state = model.new_state()
    model.prefill(TOKENS[:5], state)
    checkpoint = state.checkpoint()
    assert checkpoint.valid and checkpoint.nbytes > 0
    state.close()
    assert not checkpoint.valid and checkpoint.nbytes == 0
    with model.new_state() as other, pytest.raises(ValueError, match="another state"):
        other.restore(checkpoint)


def test_an_interrupted_prefill_is_refused_until_reset_or_restore():
    """Interrupts arrive inside long calls, between two layers of a chunk."""
    code = f"""
        import signal
        import numpy as np
        import pantheon
        model = pantheon.load({str(TINY / "qwen35moe.gguf")!r}, threads=1)
        tokens = np.arange(1000, dtype=np.uint32) % 280
        state, other = model.new_state(n_ctx=1024), model.new_state(n_ctx=1024)
        model.prefill(tokens[:7], state)
        checkpoint = state.checkpoint()
        expected = model.prefill(tokens[:40], other)
        armed = False

        def handler(*_):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt

        def interrupt():
            # until one came inside a chunk
            global armed
            while True:
                try:
                    armed = True
                    while True:
                        model.prefill(tokens[:900], state)
                        state.restore(checkpoint)
                except KeyboardInterrupt:
                    pass
                try:
                    state.checkpoint()
                except RuntimeError as error:
                    assert "interrupted" in str(error)
                    return
                state.restore(checkpoint)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        for call in (lambda: model.forward(1, state), lambda: model.prefill([1, 2], state),
                     lambda: model.forward_batch([1, 2], [other, state]), lambda: state.truncate(state.pos)):
            interrupt()
            pos = state.pos
            assert pos == 7 or (pos - 7) % 256 == 0, pos
            try:
                call()
            except (RuntimeError, ValueError) as error:
                print("refused")
            assert (state.pos, other.pos) == (pos, 40)
            state.restore(checkpoint)
            assert (model.prefill(tokens[7:40], state) == expected).all()
            state.restore(checkpoint)
        interrupt()
        signal.setitimer(signal.ITIMER_REAL, 0)
        state.reset()
        assert (model.prefill(tokens[:40], state) == expected).all()
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "refused\n" * 4, "")


# ---- environment -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("value", "kind"), [(None, "q4_0"), ("", "q4_0"), ("1", "q4_0"), ("0", "f16")])
def test_kv_type_of_the_experts_model(moe, monkeypatch, value, kind):
    monkeypatch.delenv("QWEN35_KV_Q4", raising=False)
    if value is not None:
        monkeypatch.setenv("QWEN35_KV_Q4", value)
    assert moe.new_state().kv_type == kind
    assert moe.new_state(kv_type="q8_0").kv_type == "q8_0"


def test_the_dense_model_has_the_common_default(monkeypatch):
    monkeypatch.setenv("QWEN35_MAX_SEQ", "64")
    with pantheon.load(TINY / "qwen35.gguf") as model:
        assert model.new_state().kv_type == "f16"
        assert model.new_state(n_ctx=128).n_ctx == 128


@pytest.mark.parametrize(("value", "n_ctx"), [(None, 1024), ("256", 256), ("100", 104), ("999999999999999999999", 1024),
                                              ("0", 1024), ("-5", 1024), ("many", 1024), ("", 1024)])
def test_max_seq_clamps_the_context(moe, monkeypatch, value, n_ctx):
    """Not a positive number: the default, which is above this model's own context."""
    monkeypatch.delenv("QWEN35_MAX_SEQ", raising=False)
    if value is not None:
        monkeypatch.setenv("QWEN35_MAX_SEQ", value)
    state = moe.new_state(n_ctx=1024)
    assert state.n_ctx == n_ctx
    if n_ctx == 104:
        with pytest.raises(pantheon.ContextFullError):
            moe.prefill(np.ones(105, np.uint32), state)
        assert np.isfinite(moe.prefill(np.ones(104, np.uint32), state)).all()


def test_max_seq_is_16384_when_unset(tmp_path, monkeypatch):
    monkeypatch.delenv("QWEN35_MAX_SEQ", raising=False)
    path = changed(tmp_path, context_length=1 << 20)
    with pantheon.load(path) as model:
        assert model.new_state(n_ctx=20000).n_ctx == 16384
        monkeypatch.setenv("QWEN35_MAX_SEQ", "20000")
        assert model.new_state(n_ctx=30000).n_ctx == 20000
        monkeypatch.setenv("QWEN35_MAX_SEQ", "1000000")
        assert model.new_state(n_ctx=500000).n_ctx == 262144


# ---- files -----------------------------------------------------------------------------------------------------------

def changed(folder, drop=(), replace=None, types=None, add=None, **keys):
    """The experts model with other keys (None: left out) and without some tensors, with others in their place, with
    weights of other types, or with tensors more."""
    reader = gguf.GGUFReader(TINY / "qwen35moe.gguf")
    path = folder / "changed.gguf"
    writer = gguf.GGUFWriter(path, "qwen35moe")
    for name, value in keys.items():
        if isinstance(value, list):
            writer.add_array("qwen35moe." + name.replace("__", "."), value)
        elif value is not None:
            writer.add_int64("qwen35moe." + name.replace("__", "."), value)
    for field in reader.fields.values():
        name = field.name.removeprefix("qwen35moe.").replace(".", "__")
        if field.name.startswith(("GGUF.", "tokenizer.", "general.architecture")) or name in keys:
            continue
        value = field.contents()
        if isinstance(value, list):
            writer.add_array(field.name, value)
        else:
            writer.add_key_value(field.name, value, field.types[0])
    for tensor in reader.tensors:
        if tensor.name in drop:
            continue
        data = np.array((replace or {}).get(tensor.name, tensor.data))
        kind = next((kind for end, kind in (types or {}).items() if tensor.name.endswith(end + ".weight")), None)
        if kind is None:
            writer.add_tensor(tensor.name, data)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    for name, data in (add or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits_of(path):
    with pantheon.load(path) as model, model.new_state(kv_type="f32") as state:
        return model.prefill(TOKENS, state)


def test_drafting_blocks_are_recorded(tmp_path):
    name = str(TINY / "qwen35moe.gguf")
    facts = probe(name, dies=[3, 1])
    tensors = {t.name: t.data for t in gguf.GGUFReader(name).tensors}
    assert facts["n_layer"] == 4
    assert facts["recurrent"] == [True, False, True, True]
    assert facts["slots"] == [0, 0, 1, 2]
    assert (facts["k_heads"], facts["v_heads"], facts["taps"]) == ((2, 24), (4, 8), 3)
    assert (facts["sections"], facts["dies"]) == ([2, 1, 1], [3, 1])
    block, = facts["mtp"]
    assert block.pop("hnorm") == tensors["blk.4.nextn.hnorm.weight"].tolist()
    assert block == {"eh_proj": (32, 64), "experts": 12, "recurrent": False, "q_rows": 512, "own_embd": False}
    assert len(probe(name, dies=range(40))["dies"]) == 16
    assert probe(str(changed(tmp_path, drop=["blk.4.attn_q.weight"])))["mtp"] == []
    assert probe(str(TINY / "qwen35.gguf"))["mtp"] == []


def test_drafting_blocks_change_nothing(tmp_path):
    """Present, broken, or counted and left out."""
    expected = logits_of(TINY / "qwen35moe.gguf").tobytes()
    names = [t.name for t in gguf.GGUFReader(TINY / "qwen35moe.gguf").tensors if t.name.startswith("blk.4.")]
    assert "blk.4.nextn.eh_proj.weight" in names
    assert logits_of(changed(tmp_path, drop=names)).tobytes() == expected
    assert logits_of(changed(tmp_path, drop=["blk.4.attn_q.weight"])).tobytes() == expected
    assert logits_of(changed(tmp_path, drop=names, block_count=4, nextn_predict_layers=None)).tobytes() == expected


def test_layer_kinds_from_the_interval(tmp_path):
    """attention.recurrent_layers goes before full_attention_interval, whose default is 4."""
    expected = logits_of(TINY / "qwen35moe.gguf").tobytes()
    assert logits_of(changed(tmp_path, full_attention_interval=3)).tobytes() == expected
    with pytest.raises(ValueError, match=r"blk\.1\.attn_qkv\.weight"):
        logits_of(changed(tmp_path, attention__recurrent_layers=None))
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.weight"):
        logits_of(changed(tmp_path, attention__recurrent_layers=None, full_attention_interval=1))


@pytest.mark.parametrize("threads", [1, 3])
def test_quantised_weights(tmp_path, threads):
    """Every matrix of a layer in another type: chunks are single steps bit for bit, and near the float model of the
    same values, from which only the int8 inputs (and the experts that they turn over) differ."""
    types = {"attn_qkv": Q.Q4_1, "attn_gate": Q.Q8_0, "ssm_alpha": Q.Q5_1, "ssm_beta": Q.Q5_0, "ssm_out": Q.Q8_0,
             "attn_q": Q.Q5_0, "attn_k": Q.Q8_0, "attn_v": Q.Q5_1, "attn_output": Q.Q8_0, "ffn_gate_exps": Q.Q8_0,
             "ffn_up_exps": Q.Q5_1, "ffn_gate_shexp": Q.Q8_0, "ffn_up_shexp": Q.Q8_0, "output": Q.Q8_0}
    path = changed(tmp_path, types=types)
    with pantheon.load(path, threads=threads) as model, model.new_state() as state:
        assert state.kv_type == "q4_0"
        steps = np.stack([model.forward(token, state) for token in TOKENS])
        for chunk in (7, 80):
            state.reset()
            parts = [model.prefill(TOKENS[i:i + chunk], state, all_logits=True) for i in range(0, 80, chunk)]
            assert np.concatenate(parts).tobytes() == steps.tobytes()
    with pantheon.load(path, threads=threads) as model, model.new_state(kv_type="f32") as state:
        got = model.prefill(TOKENS, state, all_logits=True)
    values = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    with pantheon.load(changed(tmp_path, replace=values)) as model, model.new_state(kv_type="f32") as state:
        exact = model.prefill(TOKENS, state, all_logits=True)
    assert np.corrcoef(exact.ravel(), got.ravel())[0, 1] > 0.9


@pytest.mark.parametrize(("keys", "text"), [
    ({"ssm__conv_kernel": None}, "ssm.conv_kernel is missing"),
    ({"ssm__conv_kernel": 1}, "ssm.conv_kernel is 1, not in 2..16"),
    ({"ssm__conv_kernel": 2**40}, "ssm.conv_kernel"),
    ({"ssm__state_size": 0}, "ssm.state_size is 0"),
    ({"ssm__group_count": 3}, "time_step_rank is 4, no multiple"),
    ({"ssm__time_step_rank": -2}, "time_step_rank is -2"),
    ({"ssm__inner_size": 33}, "inner_size is 33"),
    ({"ssm__inner_size": 64}, r"blk\.0\.attn_qkv\.weight has shape"),
    ({"nextn_predict_layers": 5}, "n_layer is 0"),
    ({"nextn_predict_layers": 6}, "nextn_predict_layers is 6"),
    ({"full_attention_interval": 0, "attention__recurrent_layers": None}, "full_attention_interval is 0"),
    ({"attention__recurrent_layers": [True, False]}, "no list of 4 booleans"),
    ({"attention__recurrent_layers": [1, 0, 1, 1]}, "no list of 4 booleans"),
    ({"rope__dimension_sections": [1, 2]}, "dimension_sections"),
    ({"rope__dimension_sections": [-1, 2, 3, 0]}, "dimension_sections"),
    ({"expert_count": 0, "expert_used_count": 0, "feed_forward_length": 8}, "0 experts"),
])
def test_bad_hyperparameters(tmp_path, keys, text):
    with pytest.raises(ValueError, match=text):
        pantheon.load(changed(tmp_path, **keys))


@pytest.mark.parametrize("name", ["blk.0.ssm_a", "blk.2.ssm_conv1d.weight", "blk.0.ssm_dt.bias",
                                  "blk.1.attn_q_norm.weight", "blk.3.post_attention_norm.weight",
                                  "blk.3.ffn_gate_inp_shexp.weight"])
def test_missing_tensors_are_named(tmp_path, name):
    with pytest.raises(ValueError, match=name):
        pantheon.load(changed(tmp_path, drop=[name]))


def test_tensors_that_nothing_reads(tmp_path):
    """Those of drafting blocks may be there, all others must have a use."""
    for name, match in (("blk.0.attn_q.weight", r"expected in blk\.0: .*ssm_conv1d\.weight"),
                        ("blk.5.attn_q.weight", "the model has layers 0 to 3"),
                        ("mm.0.weight", "outside of the layers"),
                        ("blk.1.attn_q.scale", r"expected in blk\.1: ")):
        with pytest.raises(ValueError, match=rf"tensor {name} of shape \(2, 3\) is in the file, but not .*{match}"):
            pantheon.load(changed(tmp_path, add={name: np.ones((2, 3), np.float32)}))
    pantheon.load(changed(tmp_path, add={"blk.4.nextn.new.weight": np.ones((2, 3), np.float32)})).close()


def test_decay_that_grows_is_refused(tmp_path):
    """A_log as it is in a checkpoint, which a converter should have turned into -exp(A_log)."""
    a = np.array([-1, 0.5, -2, -3], np.float32)
    with pytest.raises(ValueError, match=r"blk\.2\.ssm_a holds 0\.5"):
        pantheon.load(changed(tmp_path, replace={"blk.2.ssm_a": a}))


def test_only_recurrent_layers(tmp_path):
    """No attention layer at all: a state without positions in its KV cache."""
    names = [t.name for t in gguf.GGUFReader(TINY / "qwen35moe.gguf").tensors]
    others = [name for name in names if name.startswith("blk.") and not name.startswith("blk.0.")]
    assert "blk.1.attn_q.weight" in others
    path = changed(tmp_path, drop=others, block_count=1, nextn_predict_layers=0, attention__recurrent_layers=[True])
    with pantheon.load(path) as model, model.new_state() as state:
        steps = np.stack([model.forward(token, state) for token in TOKENS])
        state.reset()
        assert model.prefill(TOKENS, state, all_logits=True).tobytes() == steps.tobytes()


def test_the_fixtures_have_more_value_heads_than_key_heads():
    """Else the order of the value heads could not be seen."""
    for name in ("qwen35", "qwen35moe"):
        fields = gguf.GGUFReader(TINY / f"{name}.gguf").fields
        n_k = fields[f"{name}.ssm.group_count"].contents()
        n_v = fields[f"{name}.ssm.time_step_rank"].contents()
        assert n_v >= 2 * n_k >= 4
    assert json.loads((TINY / "manifest.json").read_text())["models"]["qwen35moe"]["arch"] == "qwen35moe"
    assert os.path.getsize(TINY / "qwen35moe.gguf") < 1 << 21
