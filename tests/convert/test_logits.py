"""Converted folders (tests/fixtures/hf and convert, made by tools/make_hf_models.py) against transformers' logits."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.safetensors_bytes import safetensors

import pantheon
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert import TYPES, convert
from pantheon.convert import pieces as pieces_module
from pantheon.convert.pieces import read_source

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
CONVERTED = sorted((FIXTURES / "convert").glob("*/config.json"))
IN_PLACE = sorted((FIXTURES / "hf").glob("*/config.json"))
TERNARY = ("bitnet-offline", "bitnet-online", "ternary-llama")
FOLDERS = {path.parent.name: path.parent for path in CONVERTED} | {
    f"hf-{path.parent.name}": path.parent for path in IN_PLACE if path.parent.name != "qwen3-windows"}
FLOAT = [name for name in FOLDERS if not name.endswith(TERNARY)]
# KL divergence that rounding matrices and inputs may cost models this small, mean over the positions. Recurrent layers
# magnify it, and experts may be chosen differently; test_tensors has the q8_0 weights of recurrent models.
ROUNDING = {"f16": 1e-4, "bf16": 5e-4, "q8_0": 1e-2}
MAGNIFIED = {("hf-qwen35", "bf16"): 1e-2, ("mixtral", "q8_0"): 5e-2, ("hf-mixtral", "q8_0"): 5e-2}


def kl(p_logits, q_logits):
    """KL(p || q) of each position in float64, (n_tokens,)."""
    p, q = (x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64), axis=-1, keepdims=True)
            for x in (p_logits, q_logits))
    return (np.exp(p) * (p - q)).sum(axis=-1)


def logits_of(path, tokens):
    """Where goldens are short: with LongRoPE, states are too, so that the short factors count."""
    with pantheon.load(path) as model:
        n_ctx = 48 if model.config["rope_scaling"] == "longrope" and len(tokens) <= 48 else None
        return np.array(model.prefill(tokens, model.new_state(n_ctx=n_ctx, kv_type="f32"), all_logits=True))


def converted(folder, out, kind):
    convert(folder, out, kind, tokenizer=(folder / "tokenizer.json").exists())
    return out


def source_of(folder):
    weights = folder / "model.safetensors.index.json"
    with SafetensorsFile(weights if weights.exists() else folder / "model.safetensors") as file:
        return read_source(file)


def test_the_fixtures_are_there():
    assert {path.parent.name for path in CONVERTED} == {"mixtral", "qwen2moe", "qwen3moe", "phi2", "phi3-longrope",
                                                        "qwen35", "qwen35moe"}
    assert len(FLOAT) == 17 and len(FOLDERS) == 20


@pytest.mark.parametrize("name", FLOAT)
def test_f32_files_agree_with_transformers(tmp_path, name):
    golden = np.load(FOLDERS[name] / "golden.npz")
    got = logits_of(converted(FOLDERS[name], tmp_path / "x.gguf", "f32"), golden["tokens"])
    assert np.abs(got - golden["logits"]).max() < 2e-3
    assert kl(golden["logits"], got).max() < 1e-6


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
    folder = FIXTURES / "hf" / name
    golden = np.load(folder / "golden.npz")
    got = logits_of(converted(folder, tmp_path / "x.gguf", kind), golden["tokens"])
    assert kl(golden["logits"], got).mean() < 3e-3


def test_a_file_equals_its_folder(tmp_path):
    """Where nothing is permuted the engine does the very same sums."""
    folder = FIXTURES / "hf" / "qwen2-yarn"
    tokens = list(range(3, 40))
    assert np.array_equal(logits_of(converted(folder, tmp_path / "x.gguf", "f32"), tokens), logits_of(folder, tokens))


@pytest.mark.parametrize("name", ["mixtral", "qwen35moe", "hf-llama-sharded", "hf-ternary-llama"])
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


def test_multimodal_folders(tmp_path):
    """The text model nested in names and configuration, beside a vision tower that is left out."""
    folder = FIXTURES / "convert" / "qwen35moe"
    nested = respelt(
        folder, tmp_path / "m", lambda name: name.replace("model.", "model.language_model."),
        {"model.visual.blocks.0.norm1.weight": np.ones(8, np.float32)},
        lambda config: {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
                        "tie_word_embeddings": False, "text_config": config})
    assert same_weights(converted(folder, tmp_path / "a.gguf", "f16"), converted(nested, tmp_path / "b.gguf", "f16"))


@pytest.mark.parametrize("name", ["mixtral", "qwen3moe", "qwen35moe"])
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


def test_drafting_blocks(tmp_path):
    """Qwen3.5's own become blocks behind the layers, and the engine finds them whole."""
    folder = FIXTURES / "convert" / "qwen35moe"
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
    golden = np.load(folder / "golden.npz")
    assert np.abs(logits_of(path, golden["tokens"]) - golden["logits"]).max() < 2e-3
