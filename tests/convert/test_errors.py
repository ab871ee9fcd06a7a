"""What cannot be converted is refused with the file and the key or tensor named, and nothing is left behind."""
import json
import sys

import numpy as np
import pytest
from support.fixture_paths import HF, with_tokenizer
from support.safetensors_bytes import CONFIG, hf_folder, safetensors, tiny_tensors

import pantheon
from pantheon.cli import main
from pantheon.convert import convert

pytestmark = pytest.mark.hostile

GATE = "model.layers.0.mlp.gate_proj.weight"


def folder_of(tmp_path, config=None, change=None):
    tensors = tiny_tensors()
    if change is not None:
        change(tensors)
    return hf_folder(tmp_path / "m", CONFIG | (config or {}), tensors)


def refused(folder, *says, error=ValueError, kind="f32", tokenizer=False):
    out = folder.parent / "x.gguf"
    before = sorted(folder.parent.iterdir())
    with pytest.raises(error) as raised:
        convert(folder, out, kind, tokenizer=tokenizer)
    for text in says:
        assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert sorted(folder.parent.iterdir()) == before


def test_the_folder_itself_is_fine(tmp_path):
    convert(folder_of(tmp_path), tmp_path / "x.gguf", "f32", tokenizer=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "x.gguf"]


# ---- folder and configuration ----------------------------------------------------------------------------------------

def test_no_folder(tmp_path):
    refused(tmp_path / "none", "no such folder", error=FileNotFoundError)
    (tmp_path / "file.safetensors").write_bytes(b"")
    refused(tmp_path / "file.safetensors", "not a folder", "RWKV", error=NotADirectoryError)


def test_no_config(tmp_path):
    folder = folder_of(tmp_path)
    (folder / "config.json").unlink()
    refused(folder, "config.json", "missing", "RWKV", error=FileNotFoundError)


def test_no_weights(tmp_path):
    folder = folder_of(tmp_path)
    (folder / "model.safetensors").unlink()
    refused(folder, "no model.safetensors", error=FileNotFoundError)


@pytest.mark.parametrize("config, says", [
    ({"architectures": ["GemmaForCausalLM"]}, ["'GemmaForCausalLM' is unknown", "LlamaForCausalLM",
                                               "Qwen3_5MoeForCausalLM", "PhiForCausalLM", "MixtralForCausalLM"]),
    ({"architectures": ["RwkvXForCausalLM"]}, ["RWKV", "without config.json"]),
    ({"architectures": None}, ["architectures"]),
    ({"hidden_size": "8"}, ["hidden_size is '8', not an integer"]),
    ({"hidden_size": "8\n9" * 50}, ["hidden_size is '8\\n98"]),
    ({"hidden_size": None}, ["hidden_size is missing"]),
    ({"num_hidden_layers": 0}, ["num_hidden_layers is 0"]),
    ({"num_key_value_heads": 3}, ["num_key_value_heads is 3"]),
    ({"rms_norm_eps": 0}, ["rms_norm_eps is 0"]),
    ({"hidden_act": "relu"}, ["hidden_act", "'silu'"]),
    ({"tie_word_embeddings": 1}, ["tie_word_embeddings"]),
    ({"rope_scaling": {"type": "ntk"}}, ["'ntk'", "llama3"]),
    ({"rope_scaling": {"type": "linear"}}, ["rope_scaling.factor is missing"]),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": False}}, ["truncate"]),
    ({"rope_scaling": {"type": "llama3", "factor": 2.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
     ["high_freq_factor is 4.0, not above low_freq_factor 4.0"]),
    ({"rope_scaling": []}, ["rope_scaling", "object"]),
    ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5"]),
    ({"quantization_config": {"quant_method": "gptq"}}, ["quant_method", "gptq"]),
    ({"architectures": ["MixtralForCausalLM"], "quantization_config": {"quant_method": "bitnet"}},
     ["quantization_config"]),
    ({"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 8,
      "max_window_layers": 1}, ["2 of 3 layers", "sliding window"]),
    ({"architectures": ["Phi3ForCausalLM"], "rope_scaling": {
        "type": "longrope", "short_factor": [1.0], "long_factor": [1.0, 2.0]}}, ["short_factor", "list of 2"]),
    ({"architectures": ["PhiForCausalLM"], "hidden_act": "gelu_new", "qk_layernorm": True}, ["qk_layernorm"]),
    ({"architectures": ["Qwen3_5ForCausalLM"], "layer_types": ["linear_attention", "mamba"]}, ["layer_types"]),
    ({"architectures": ["Qwen3_5ForCausalLM"], "linear_num_key_heads": 3, "linear_num_value_heads": 4},
     ["linear_num_value_heads is 4, not a multiple of the 3 key heads"]),
    ({"architectures": ["Qwen3_5ForCausalLM"], "linear_num_key_heads": 1, "linear_num_value_heads": 4,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 2**31 - 1},
     ["linear_value_head_dim is 2147483647"]),
    ({"architectures": ["Qwen3_5ForCausalLM"], "linear_num_key_heads": 2**30}, ["linear_num_key_heads is 1073741824"]),
    ({"num_attention_heads": 2**16, "num_key_value_heads": 1, "head_dim": 2**12}, ["65536 heads of 4096"]),
    ({"architectures": ["Qwen2MoeForCausalLM"], "num_experts_per_tok": 99}, ["num_experts_per_tok is 99"]),
])
def test_configurations(tmp_path, config, says):
    refused(folder_of(tmp_path, config), "config.json", *says)


def test_no_json(tmp_path):
    folder = folder_of(tmp_path)
    (folder / "config.json").write_text("{")
    refused(folder, "config.json")


# ---- tensors ---------------------------------------------------------------------------------------------------------

def test_a_vocabulary_is_not_filled_up_to_what_no_tensor_has(tmp_path, monkeypatch):
    """16 million tokens that stand for nothing would take gigabytes."""
    monkeypatch.setattr("pantheon.convert.read_vocabulary", lambda *args: pytest.fail("read before the tensors"))
    refused(folder_of(tmp_path, {"vocab_size": 2**24}), "model.embed_tokens.weight", "expected (16777216, 8)",
            tokenizer=True)


def test_missing_tensor(tmp_path):
    refused(folder_of(tmp_path, None, lambda t: t.pop(GATE)), f"tensor {GATE} is missing, expected with shape (12, 8)")


def test_extra_tensors(tmp_path):
    def change(tensors):
        tensors["model.layers.0.mlp.router.weight"] = np.zeros((2, 3), np.float32)
        tensors["model.layers.1.self_attn.q_proj.weight"] = np.zeros((8, 8), np.float32)

    refused(folder_of(tmp_path, None, change), "model.layers.", "LlamaForCausalLM of 1 layers", "nor 1 others")


def test_mis_shaped_tensor(tmp_path):
    refused(folder_of(tmp_path, None, lambda t: t.update({GATE: np.zeros((8, 12), np.float32)})),
            f"tensor {GATE} has shape (8, 12), expected (12, 8)")


def test_mis_typed_tensor(tmp_path):
    refused(folder_of(tmp_path, None, lambda t: t.update({GATE: np.zeros((12, 8), np.int32)})),
            f"tensor {GATE} has dtype I32, expected F32, F16 or BF16")


def test_untied_head_must_be_there(tmp_path):
    refused(folder_of(tmp_path, {"tie_word_embeddings": False}),
            "tensor lm_head.weight is missing, expected with shape (6, 8)")


def test_tensors_that_readers_compute_anew(tmp_path):
    """Old folders hold the frequencies, some a tied head."""
    def change(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(2, np.float32)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    convert(folder_of(tmp_path, None, change), tmp_path / "x.gguf", "f32", tokenizer=False)


def test_missing_expert(tmp_path):
    source = HF / "mixtral"
    from pantheon._core.files.safetensors import SafetensorsFile

    with SafetensorsFile(source / "model.safetensors") as file:
        arrays = {t.name: file.tensor(t.name).view(np.uint16).reshape(t.shape) for t in file.tensors}
    gone = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    del arrays[gone]
    folder = hf_folder(tmp_path / "m", json.loads((source / "config.json").read_text()), arrays)
    refused(folder, f"tensor {gone} is missing, expected with shape (32, 24)")


@pytest.mark.parametrize("value, kind, says", [
    (np.nan, "f32", "not finite"), (np.inf, "bf16", "not finite"), (7e4, "f16", "too much for F16"),
])
def test_values(tmp_path, value, kind, says):
    """Found while the file is written: it goes away again."""
    def change(tensors):
        tensors[GATE][11, 7] = value

    refused(folder_of(tmp_path, None, change), f"tensor {GATE}", says, kind=kind)


def index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_index_files(tmp_path):
    folder = folder_of(tmp_path)
    names = list(tiny_tensors())
    refused(index(folder, dict.fromkeys(names, "gone.safetensors")), "gone.safetensors", error=FileNotFoundError)
    refused(index(folder, dict.fromkeys(names, "../model.safetensors")), "no name of a safetensors file")
    refused(index(folder, dict.fromkeys([*names, "model.more"], "model.safetensors")), "model.more", "missing")
    refused(index(folder, dict.fromkeys(names[1:], "model.safetensors")), names[0], "missing, expected with shape")
    convert(index(folder, dict.fromkeys(names, "model.safetensors")), tmp_path / "x.gguf", tokenizer=False)


def test_cut_weights(tmp_path):
    folder = folder_of(tmp_path)
    whole = safetensors(tiny_tensors())
    (folder / "model.safetensors").write_bytes(whole[:-4])
    refused(folder, "model.safetensors")


# ---- ternary ---------------------------------------------------------------------------------------------------------

def ternary(tmp_path, change, settings=None):
    def pack(tensors):
        for name in [n for n in tensors if n.endswith("_proj.weight")]:
            rows, columns = tensors[name].shape
            tensors[name] = np.zeros((rows // 4, columns), np.uint8)
            tensors[name + "_scale"] = np.array([2.0], np.float32)
        change(tensors)

    return folder_of(tmp_path, {"quantization_config": {"quant_method": "bitnet", **(settings or {})}}, pack)


@pytest.mark.parametrize("change, says", [
    (lambda t: t[GATE].__setitem__((1, 2), 0x30), "holds code 3"),
    (lambda t: t.update({GATE + "_scale": np.zeros(1, np.float32)}), f"{GATE}_scale is 0.0"),
    (lambda t: t.update({GATE + "_scale": np.full(1, np.nan, np.float32)}), f"{GATE}_scale is nan"),
    (lambda t: t.pop(GATE + "_scale"), f"{GATE}_scale is missing, expected with shape (1)"),
    (lambda t: t.update({GATE: np.zeros((4, 8), np.uint8)}), f"{GATE} has shape (4, 8), expected (3, 8)"),
    (lambda t: t.update({GATE: np.full((12, 8), 2, np.float32)}), "not -1, 0 or 1"),
])
def test_ternary_data(tmp_path, change, says):
    refused(ternary(tmp_path, change), says)


def test_packed_data_of_an_online_model(tmp_path):
    settings = {"linear_class": "autobitlinear", "quantization_mode": "online"}
    refused(ternary(tmp_path, lambda t: None, settings), "is packed", "not quantised")


# ---- output and surroundings -----------------------------------------------------------------------------------------

def test_existing_files_stay(tmp_path):
    folder, out = folder_of(tmp_path), tmp_path / "x.gguf"
    out.write_bytes(b"mine")
    refused(folder, "exists already", "--force", error=FileExistsError)
    assert out.read_bytes() == b"mine"
    convert(folder, out, "f32", force=True, tokenizer=False)
    assert out.read_bytes()[:4] == b"GGUF"
    before = out.read_bytes()
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="config.json"):
        convert(folder, out, "f32", force=True, tokenizer=False)
    assert out.read_bytes() == before


def test_output_in_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        convert(folder_of(tmp_path), tmp_path / "none" / "x.gguf", tokenizer=False)
    with pytest.raises(IsADirectoryError):
        convert(tmp_path / "m", tmp_path / "m", force=True, tokenizer=False)


def test_no_tokenizer(tmp_path):
    refused(folder_of(tmp_path), "no tokenizer.json and no tokenizer.model", "--no-tokenizer", tokenizer=True)


def test_unknown_type(tmp_path):
    refused(folder_of(tmp_path), "'q4_0'", "f32, f16, bf16, q8_0", kind="q4_0")


def test_without_the_gguf_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    refused(folder_of(tmp_path), "pip install 'pantheon[convert]'", error=ImportError)


def test_full_disk(tmp_path, monkeypatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    refused(folder_of(tmp_path), "100 are free", error=OSError)


def test_interrupt(tmp_path):
    def stop(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(folder_of(tmp_path), tmp_path / "x.gguf", tokenizer=False, progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# ---- the command -----------------------------------------------------------------------------------------------------

def test_command(tmp_path, capsys):
    folder, out = with_tokenizer("qwen35", tmp_path), tmp_path / "x.gguf"
    assert main(["convert", str(folder), str(out), "--type", "q8_0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and f"wrote {out}" in printed.err.replace("\n", "")
    with pantheon.load(out) as model:
        assert model.arch == "qwen35" and model.metadata["general.name"] == "qwen35"
        assert model.metadata["general.file_type"] == 7
    assert main(["convert", str(folder), str(out)]) == 1
    assert f"{out}: exists already" in capsys.readouterr().err.replace("\n", "")
    assert main(["convert", str(folder), str(out), "--force"]) == 0
    with pantheon.load(out) as model:
        assert model.metadata["general.file_type"] == 1


@pytest.mark.parametrize("argv, says", [
    (["convert"], "required"), (["convert", "m"], "OUT.gguf"), (["convert", "", "x"], "empty"),
    (["convert", "m", "x", "--type", "q4_k"], "q4_k"), (["convert", "m", "x", "y"], "y"),
])
def test_usage(capsys, argv, says):
    assert main(argv) == 2
    assert says in capsys.readouterr().err


def test_the_command_knows_the_types():
    from pantheon.cli.convert import TYPES

    assert TYPES == pantheon.convert.TYPES


def test_progress(tmp_path):
    seen = []
    convert(with_tokenizer("phi2", tmp_path), tmp_path / "x.gguf", progress=lambda *args: seen.append(args))
    done = [d for _, d, _ in seen]
    assert {stage for stage, _, _ in seen} == {"convert"} and done == sorted(done)
    assert done[-1] == seen[-1][2] and len({total for _, _, total in seen}) == 1
    assert 0 < (tmp_path / "x.gguf").stat().st_size - done[-1] < 1 << 16
