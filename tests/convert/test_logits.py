"""Converted folders (tests/fixtures/hf, made by tools/make_hf_models.py) against transformers' logits."""
import json
import shutil

import numpy as np
import pytest
from support.fixture_paths import HF_MODELS, with_tokenizer
from support.safetensors_bytes import safetensors

import pantheon
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert import TYPES, convert
from pantheon.convert import pieces as pieces_module
from pantheon.convert.pieces import read_source

pytestmark = pytest.mark.golden

TERNARY = ("bitnet-offline", "bitnet-online", "ternary-llama")
FOLDERS = {path.name: path for path in HF_MODELS if path.name != "qwen3-windows"}
FLOAT = [name for name in FOLDERS if name not in TERNARY]
# KL divergence that rounding matrices and inputs may cost models this small, mean over the positions. Recurrent layers
# magnify it, and experts may be chosen differently; test_tensors has the q8_0 weights of recurrent models.
ROUNDING = {"f16": 1e-4, "bf16": 5e-4, "q8_0": 1e-2}
MAGNIFIED = {("qwen35", "bf16"): 1e-2, ("mixtral", "q8_0"): 5e-2}


def kl(p_logits, q_logits):
    """KL(p || q) of each position in float64, (n_tokens,)."""
    p, q = (x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64), axis=-1, keepdims=True)
            for x in (p_logits, q_logits))
    return (np.exp(p) * (p - q)).sum(axis=-1)


def logits_of(path, tokens, n_ctx=None):
    with pantheon.load(path) as model:
        return np.array(model.prefill(tokens, model.new_state(n_ctx=n_ctx, kv_type="f32"), all_logits=True))


def converted(folder, out, kind):
    convert(folder, out, kind, tokenizer=(folder / "tokenizer.json").exists())
    return out


def source_of(folder):
    weights = folder / "model.safetensors.index.json"
    with SafetensorsFile(weights if weights.exists() else folder / "model.safetensors") as file:
        return read_source(file)


def test_the_fixtures_are_there():
    assert len(FLOAT) == 10 and len(FOLDERS) == 13


@pytest.mark.parametrize("name", FLOAT)
def test_f32_files_agree_with_transformers(tmp_path, name):
    golden = np.load(FOLDERS[name] / "golden.npz")
    path = converted(with_tokenizer(name, tmp_path), tmp_path / "x.gguf", "f32")
    got = logits_of(path, golden["tokens"])
    assert np.abs(got - golden["logits"]).max() < 2e-3
    assert kl(golden["logits"], got).max() < 1e-6
    if "short_logits" in golden:                        # LongRoPE: in a short state the short factors count
        expected = golden["short_logits"]
        got = logits_of(path, golden["tokens"][:len(expected)], n_ctx=len(expected))
        assert np.abs(got - expected).max() < 2e-3


@pytest.mark.parametrize("name, kind", [(name, kind) for name in FLOAT for kind in ROUNDING
                                        if not (kind == "q8_0" and "qwen35" in name)])
def test_other_types_are_near(tmp_path, name, kind):
    """And what the folder has in that type already is not rounded at all."""
    golden = np.load(FOLDERS[name] / "golden.npz")
    got = logits_of(converted(FOLDERS[name], tmp_path / "x.gguf", kind), golden["tokens"])
    kept = all(tensor.dtype.lower() == kind for tensor in source_of(FOLDERS[name]).values())
    assert kl(golden["logits"], got).mean() < (1e-9 if kept else MAGNIFIED.get((name, kind), ROUNDING[kind]))


@pytest.mark.parametrize("name", TERNARY)
@pytest.mark.parametrize("kind", TYPES)
def test_ternary_folders(tmp_path, name, kind):
    """Their golden logits have int8 inputs with a scale per token, which GGUF's types have not."""
    folder = FOLDERS[name]
    golden = np.load(folder / "golden.npz")
    got = logits_of(converted(folder, tmp_path / "x.gguf", kind), golden["tokens"])
    assert kl(golden["logits"], got).mean() < 3e-3


def test_a_file_equals_its_folder(tmp_path):
    """Where nothing is permuted the engine does the very same sums."""
    folder = FOLDERS["qwen2-yarn"]
    tokens = list(range(3, 40))
    assert np.array_equal(logits_of(converted(folder, tmp_path / "x.gguf", "f32"), tokens), logits_of(folder, tokens))


@pytest.mark.parametrize("name", ["mixtral", "qwen35-moe", "llama-sharded", "ternary-llama"])
def test_slabs_do_not_show(tmp_path, name, monkeypatch):
    whole = converted(FOLDERS[name], tmp_path / "a.gguf", "q8_0").read_bytes()
    monkeypatch.setattr(pieces_module, "SLAB_BYTES", 4 * 32 * 5)
    assert converted(FOLDERS[name], tmp_path / "b.gguf", "q8_0").read_bytes() == whole


# ---- other spellings of the same folder ------------------------------------------------------------------------------

def arrays_of(folder):
    types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
    return {name: tensor.data.view(types[tensor.dtype]).reshape(tensor.shape)
            for name, tensor in source_of(folder).items()}


def respelt(folder, out, rename=lambda name: name, more=None, change_config=None):
    """A copy of a folder with other tensor names; returns it."""
    out.mkdir()
    for path in folder.iterdir():
        if path.suffix in (".json", ".jinja"):
            shutil.copy(path, out)
    tensors = {rename(name): array for name, array in arrays_of(folder).items()} | (more or {})
    (out / "model.safetensors").write_bytes(safetensors(tensors))
    if change_config is not None:
        config = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(change_config(config)))
    return out


def same_weights(a, b):
    """Whether two files hold the same tensors and keys, but for the model's name."""
    with pantheon.load(a) as first, pantheon.load(b) as second:
        x, y = first.gguf(), second.gguf()
        assert [t.name for t in x.tensors] == [t.name for t in y.tensors]
        keys = [{k: v for k, v in m.metadata.items() if k != "general.name"} for m in (first, second)]
        return keys[0] == keys[1] and all(np.array_equal(x.tensor(t.name), y.tensor(t.name)) for t in x.tensors)


def text_model(out):
    """The multimodal folder as its text model alone: names and configuration not nested, no vision tower."""
    respelt(FOLDERS["qwen35-moe"], out, lambda name: name.replace("model.language_model.", "model."), None,
            lambda config: config["text_config"] | {"architectures": ["Qwen3_5MoeForCausalLM"]})
    arrays = {name: array for name, array in arrays_of(out).items() if ".visual." not in name}
    (out / "model.safetensors").write_bytes(safetensors(arrays))
    return out


def test_multimodal_folders(tmp_path):
    """The text model nested in names and configuration, beside a vision tower that is left out."""
    folder, nested = text_model(tmp_path / "m"), FOLDERS["qwen35-moe"]
    assert same_weights(converted(folder, tmp_path / "a.gguf", "f16"), converted(nested, tmp_path / "b.gguf", "f16"))


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe"])
def test_stacked_experts(tmp_path, name):
    """As transformers 5 holds them in memory, in place of one tensor per expert and matrix."""
    folder = FOLDERS[name]
    arrays = arrays_of(folder)
    parts = ("w1", "w3", "w2") if name == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    mlp = "block_sparse_moe" if name == "mixtral" else "mlp"
    more, n = {}, 1 + max(int(key.split(".experts.")[1].split(".")[0]) for key in arrays if ".experts." in key)
    for layer in {key.split(f".{mlp}.experts.")[0] for key in arrays if f".{mlp}.experts." in key}:
        gate, up, down = (np.stack([arrays[f"{layer}.{mlp}.experts.{e}.{part}.weight"] for e in range(n)])
                          for part in parts)
        more[f"{layer}.mlp.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
        more[f"{layer}.mlp.experts.down_proj"] = down
    out = tmp_path / "stacked"
    respelt(folder, out)
    kept = {key.replace(f"{mlp}.gate.", "mlp.gate."): array for key, array in arrays.items() if ".experts." not in key}
    (out / "model.safetensors").write_bytes(safetensors(kept | more))
    assert same_weights(converted(folder, tmp_path / "a.gguf", "f32"), converted(out, tmp_path / "b.gguf", "f32"))


def test_experts_of_their_own(tmp_path):
    """The other way round: one tensor per expert and matrix in place of the stacks that this folder has."""
    folder = text_model(tmp_path / "stacked")
    arrays, more = arrays_of(folder), {}
    for stack in [name for name in arrays if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        for expert, matrix in enumerate(arrays.pop(stack)):
            names = ["down_proj"] if stack.endswith(".down_proj") else ["gate_proj", "up_proj"]
            more |= {f"{stack.rpartition('.')[0]}.{expert}.{name}.weight": part
                     for name, part in zip(names, np.split(matrix, len(names)), strict=True)}
    assert len(more) == 4 * 12 * 3
    out = respelt(folder, tmp_path / "single")
    (out / "model.safetensors").write_bytes(safetensors(arrays | more))
    assert same_weights(converted(folder, tmp_path / "a.gguf", "f32"), converted(out, tmp_path / "b.gguf", "f32"))


def test_drafting_blocks(tmp_path):
    """Qwen3.5's own become blocks behind the layers, and the engine finds them whole."""
    folder = text_model(tmp_path / "text")
    rng = np.random.default_rng(1)
    arrays = arrays_of(folder)
    full = "model.layers.1."
    more = {f"mtp.layers.0.{name.removeprefix(full)}": array for name, array in arrays.items() if name.startswith(full)}
    more |= {"mtp.fc.weight": rng.standard_normal((32, 64)).astype(np.float32)}
    more |= {f"mtp.{name}.weight": np.full(32, 0.5, np.float32)
             for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    out = respelt(folder, tmp_path / "mtp", more=more)
    path = converted(out, tmp_path / "x.gguf", "f32")
    with pantheon.load(path) as model:
        file = model.gguf()
        assert model.metadata["qwen35moe.block_count"] == 5 and model.metadata["qwen35moe.nextn_predict_layers"] == 1
        assert model.metadata["qwen35moe.attention.recurrent_layers"] == [True, False, True, True, False]
        np.testing.assert_array_equal(file.tensor("blk.4.nextn.enorm.weight").view(np.float32), np.full(32, 1.5))
        np.testing.assert_array_equal(file.tensor("blk.4.attn_q.weight"), file.tensor("blk.1.attn_q.weight"))
    golden = np.load(FOLDERS["qwen35-moe"] / "golden.npz")
    assert np.abs(logits_of(path, golden["tokens"]) - golden["logits"]).max() < 2e-3
