"""Malformed safetensors files, index files and configurations: one error that names the culprit, never a crash."""
import json
import math
import re
import struct

import numpy as np
import pytest
from support.fixture_paths import HF
from support.safetensors_bytes import CONFIG, hf_folder, raw, safetensors, tiny_tensors

import pantheon
from pantheon._core.files.safetensors import SafetensorsFile

pytestmark = pytest.mark.hostile

F32 = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def entry(**changes):
    return {**F32, **changes}


@pytest.fixture
def refused(tmp_path):
    def check(data, match):
        path = tmp_path / "m.safetensors"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=match) as caught:
            SafetensorsFile(path)
        assert "m.safetensors" in str(caught.value) and "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000
    return check


def test_a_good_file(tmp_path):
    path = tmp_path / "m.safetensors"
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path.write_bytes(safetensors({"a": array, "b": np.arange(5, dtype=np.uint8), "c": np.zeros((0, 4), np.float32),
                                  "d": np.float32(3.0), "e" * 100: np.ones((2, 1, 3, 4, 5), np.int32)}, {"k": "v"}))
    with SafetensorsFile(path) as file:
        infos = {info.name: info for info in file.tensors}
        assert infos["a"][1:] == ("F32", (2, 3, 4), 96) and infos["b"][1:] == ("U8", (5,), 5)
        assert infos["d"][1:] == ("F32", (1,), 4) and infos["c"].nbytes == 0
        assert infos["e" * 100].nbytes == 480
        view = file.tensor("a")
        assert view.tobytes() == array.tobytes() and not view.flags.writeable
        assert file.tensor("e" * 100).view(np.int32).tolist() == [1] * 120
        for name in ("z", "a\0", "e" * 63):
            with pytest.raises(KeyError):
                file.tensor(name)
    assert view.tobytes() == array.tobytes()            # outlives the file
    with pytest.raises(ValueError, match="closed"):
        file.tensors  # noqa: B018


def test_every_dtype(tmp_path):
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2,
             "U32": 4, "U64": 8, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
    for dtype, size in sizes.items():
        path = tmp_path / f"{dtype}.safetensors"
        path.write_bytes(raw({"t": {"dtype": dtype, "shape": [3], "data_offsets": [0, 3 * size]}}, bytes(3 * size)))
        assert SafetensorsFile(path).tensors == [("t", dtype, (3,), 3 * size)]


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.norm.weight",
                                  "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"])
@pytest.mark.parametrize(("dtype", "size"), [("F8_E4M3", 1), ("F8_E5M2", 1), ("F64", 8)])
def test_a_dtype_that_nothing_multiplies_is_named(tmp_path, dtype, size, name):
    tensors = tiny_tensors()
    header, at = {}, 0
    for each, array in sorted(tensors.items(), key=lambda item: (item[0] == name) == (size == 1)):
        end = at + array.size * (size if each == name else 4)
        header[each] = {"dtype": dtype if each == name else "F32", "shape": array.shape, "data_offsets": [at, end]}
        at = end
    folder = hf_folder(tmp_path / "m", CONFIG, tensors)
    (folder / "model.safetensors").write_bytes(raw(header, bytes(at)))
    with pytest.raises(ValueError, match=f"tensor {name} has type {dtype}, which") as caught:
        pantheon.load(folder)
    assert not re.search(r"type \d", str(caught.value))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**32, 10**8 + 1, 33 << 20])
def test_header_lengths_beyond_reason(refused, length):
    refused(raw({}, length=length), f"the header has {length} bytes, more than")


@pytest.mark.parametrize("data", [b"", b"1234567", raw(b"{}", length=3), raw(b"{}", length=1 << 20)])
def test_files_that_are_too_short(refused, data):
    refused(data, "no safetensors file|cut short")


@pytest.mark.parametrize(("header", "match"), [
    (b"[]", "no JSON object"), (b" {}", "no JSON object"), (b"", "no JSON object"), (b"{", "no JSON object"),
    (b"{ ", "header: "),
    (b'{"a":}', "header: "), (b"{}x", "header: "), (b'{"a\xff":{}}', "header: no UTF-8 at byte 3"),
    (b'{"a":NaN}', "NaN is no JSON number"), (b'{"__metadata__":[]}', "__metadata__"),
    (b'{"a":1}', "tensor 'a' is no JSON object"), (b'{"a":[]}', "tensor 'a' is no JSON object"),
    (b'{"a":' * 50 + b"1" + b"}" * 50, "nested more than 3 deep"), (b"{" + b"[" * (1 << 20), "nested more than"),
    (b'{"a":' + b"[" + b"1," * (5 << 20) + b"1]}", "more than 4194304 values"),
    (b'{"a":{},"a":{}}', "key 'a' is there twice"),
    (b'{"a":{"dtype":"F32","dtype":"F16","shape":[],"data_offsets":[0,4]}}', "key 'dtype' is there twice"),
    (b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,' + b"9" * 10000 + b"]}}", "header: "),
])
def test_headers_that_are_no_directory(refused, header, match):
    refused(raw(header, bytes(16)), match)


@pytest.mark.parametrize(("info", "match"), [
    (entry(data_offsets=[-1, 15]), "data_offsets"), (entry(data_offsets=[16, 0]), "data_offsets"),
    (entry(data_offsets=[0, 17]), "data_offsets"), (entry(data_offsets=[0, 2**64]), "data_offsets"),
    (entry(data_offsets=[0]), "data_offsets"), (entry(data_offsets=[0, 16.0]), "data_offsets"),
    (entry(data_offsets=[False, 16]), "data_offsets"), (entry(data_offsets="0:16"), "data_offsets"),
    (entry(data_offsets=[0, 8]), "does not fill"), (entry(dtype="F64"), "does not fill"),
    (entry(dtype="F16"), "does not fill"), (entry(dtype="U8"), "does not fill"),
    (entry(shape=[2, 3]), "does not fill"), (entry(shape=[2**32, 2**32]), "does not fill"),
    (entry(shape=[2**61, 2**61, 2**61]), "does not fill"), (entry(shape=[-2, -2]), "shape"),
    (entry(shape=[2, None]), "shape"), (entry(shape=[1] * 17), "shape"), (entry(shape=4), "shape"),
    (entry(shape=[True, 4]), "shape"), (entry(dtype="F33"), "dtype 'F33'"), (entry(dtype=None), "dtype"),
    (entry(dtype=["F32"]), "dtype"), (entry(extra=1), "must have dtype, shape and data_offsets"),
    ({"dtype": "F32", "shape": [2, 2]}, "must have dtype, shape and data_offsets"), ({}, "must have"),
])
def test_entries_that_lie(refused, info, match):
    refused(raw({"t": info}, bytes(16)), f"tensor 't'.*{match}")


def test_overlaps_and_gaps(refused):
    half = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    refused(raw({"a": half, "b": entry(data_offsets=[4, 20])}, bytes(20)), "tensor 'b' at offset 4 overlaps")
    refused(raw({"a": F32, "b": F32}, bytes(16)), "tensor 'b' at offset 0 overlaps")
    refused(raw({"a": half, "b": entry(data_offsets=[16, 32])}, bytes(32)), "tensor 'b' at offset 16 leaves a gap of 8")
    refused(raw({"a": entry(data_offsets=[8, 24])}, bytes(24)), "leaves a gap of 8")
    refused(raw({"a": F32}, bytes(17)), "need 16 bytes of data, the file has 17")
    refused(raw({}, bytes(1)), "need 0 bytes of data, the file has 1")


def test_data_that_is_not_aligned(refused):
    header = json.dumps({"t": F32}).encode()
    header += b" " * (-len(header) % 8)
    refused(raw(header + b" ", bytes(16)), "tensor 't': F32 data at byte .* is not aligned to 4 bytes")
    byte = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    refused(raw({"a": byte, "t": entry(data_offsets=[1, 17])}, bytes(17)), "tensor 't'.*not aligned")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_are_none(refused, name):
    refused(raw({name: F32}, bytes(16)), "is no name of a tensor")


def test_every_prefix_of_a_model(tmp_path):
    folder = hf_folder(tmp_path / "m", CONFIG, tiny_tensors())
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    pantheon.load(folder).close()
    for n in [*range(0, 2000), *range(2000, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="model.safetensors"):
            pantheon.load(folder)


def test_every_byte_of_a_header_changed(tmp_path):
    """Any one byte of the header flipped: it loads or it is refused."""
    folder = hf_folder(tmp_path / "m", CONFIG, tiny_tensors())
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    refused = 0
    for i in range(end):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x11]) + whole[i + 1:])
        try:
            pantheon.load(folder).close()
        except ValueError as e:
            assert "model.safetensors" in str(e)
            refused += 1
    assert refused > end // 2


# ---- sharded sets ----------------------------------------------------------------------------------------------------

@pytest.fixture
def shards(tmp_path):
    """A two-shard model, and a function that loads it under another index."""
    folder = tmp_path / "sharded"
    tensors = tiny_tensors()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    hf_folder(folder, CONFIG, tensors)
    (folder / "model.safetensors").unlink()
    for file, held in parts.items():
        (folder / file).write_bytes(safetensors({name: tensors[name] for name in held}))
    weight_map = {name: file for file, held in parts.items() for name in held}

    def load(index=None, **moved):
        index = {"metadata": {"total_size": 1}, "weight_map": {**weight_map, **moved}} if index is None else index
        data = index if isinstance(index, bytes) else json.dumps(index).encode()
        (folder / "model.safetensors.index.json").write_bytes(data)
        pantheon.load(folder).close()

    load.folder, load.tensors = folder, tensors
    return load


def test_a_sharded_model_is_the_whole_one(tmp_path, shards):
    whole = hf_folder(tmp_path / "whole", CONFIG, shards.tensors)
    shards()
    with pantheon.load(whole) as a, pantheon.load(shards.folder) as b:
        assert np.array_equal(a.prefill([1, 2, 3], a.new_state()), b.prefill([1, 2, 3], b.new_state()))


@pytest.mark.parametrize("name", [
    "../m.safetensors", "/etc/passwd", "/tmp/x.safetensors", "a/b.safetensors", "..", ".", "", "x\\y.safetensors",
    "a\0.safetensors", "model.bin", "x" * 5000 + ".safetensors", 1, None,
    ["a.safetensors"]])
def test_shards_are_files_of_the_folder(shards, name):
    (shards.folder.parent / "m.safetensors").write_bytes(safetensors({"x": np.zeros(1, np.float32)}))
    with pytest.raises(ValueError, match="index.json.*which is no name of a safetensors file in the same folder"):
        shards(x=name)


@pytest.mark.parametrize("index", [
    b"", b"[]", b"{}", b'{"weight_map":[]}', b'{"weight_map":{}}', b'{"weight_map":1}', b"[" * 100000,
    b'{"weight_map":{"a":"b.safetensors","a":"c.safetensors"}}', b"\xff", b'{"weight_map":{"a":{"b":{"c":{}}}}}'])
def test_index_files_that_are_none(shards, index):
    with pytest.raises(ValueError, match="index.json"):
        shards(index)


def test_a_missing_shard_is_named(shards):
    (shards.folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="this shard is missing.*model-00002-of-00002.safetensors"):
        shards()


def test_a_tensor_that_is_not_where_the_index_says(shards):
    with pytest.raises(ValueError, match="model-00001-of-00002.safetensors: tensor 'x' is missing"):
        shards(x="model-00001-of-00002.safetensors")


def test_tensors_that_the_index_does_not_name_do_not_count(shards):
    path = shards.folder / "model-00002-of-00002.safetensors"
    held = {name: array for name, array in shards.tensors.items() if name in sorted(shards.tensors)[5:]}
    first = sorted(shards.tensors)[0]
    path.write_bytes(safetensors({**held, first: np.zeros(3, np.float32)}))
    shards()                                             # the first shard's is the one that counts


def test_a_folder_without_weights(tmp_path):
    folder = hf_folder(tmp_path / "m", CONFIG, {})
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no model.safetensors"):
        pantheon.load(folder)
    with pytest.raises(IsADirectoryError):
        pantheon.load(tmp_path)


# ---- config.json -----------------------------------------------------------------------------------------------------

def rope(**fields):
    return {"rope_scaling": fields}


@pytest.mark.parametrize(("changes", "match"), [
    ({"architectures": None}, "architectures"), ({"architectures": []}, "architectures"),
    ({"architectures": "LlamaForCausalLM"}, "architectures"), ({"architectures": [1]}, "architectures"),
    ({"architectures": ["GPT2LMHeadModel"]}, "'GPT2LMHeadModel' is unknown; known: LlamaForCausalLM"),
    ({"hidden_size": None}, "hidden_size is missing"), ({"hidden_size": 0}, "n_embd is 0"),
    ({"hidden_size": "8"}, "hidden_size is '8', not an integer"),
    ({"hidden_size": "8\n9" * 50}, r"hidden_size is '8\\n98"), ({"hidden_size": 2**40}, "hidden_size"),
    ({"hidden_size": 8.5}, "hidden_size"), ({"hidden_size": True}, "hidden_size"),
    ({"hidden_size": [8]}, "hidden_size"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0"), ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
    ({"num_hidden_layers": 2}, "layers.1.input_layernorm.weight.* is missing"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"), ({"num_attention_heads": -1}, "num_attention_heads"),
    ({"num_key_value_heads": 0}, "n_kv_head is 0"), ({"num_key_value_heads": 3}, "no multiple of n_kv_head"),
    ({"head_dim": 0}, "head_dim is 0"), ({"head_dim": 3}, "rope_dims is 3"),
    ({"head_dim": 8}, "q_proj.weight has shape"),
    ({"vocab_size": 7}, "embed_tokens.weight has shape"), ({"vocab_size": 0}, "n_vocab is 0"),
    ({"intermediate_size": 0}, "n_ff is 0"), ({"max_position_embeddings": 0}, "n_ctx is 0"),
    ({"rms_norm_eps": 0}, "norm_eps is 0"), ({"rms_norm_eps": "x"}, "rms_norm_eps"), ({"rms_norm_eps": 5}, "norm_eps"),
    ({"rope_theta": 0}, "rope_base is 0"), ({"rope_theta": "1e6"}, "rope_theta"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"), ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
    ({"tie_word_embeddings": False}, "lm_head.weight.* is missing"),
    ({"rope_scaling": 1}, "rope_scaling"), (rope(type="cubic"), "rope_type is 'cubic'"),
    (rope(rope_type=1), "rope_type"),
    (rope(type="linear"), "rope_scaling.factor is missing"), (rope(type="linear", factor=0), "rope_factor is 0"),
    (rope(type="linear", factor=-2), "rope_factor"), (rope(type="longrope", factor=2.0), "rope_type is 'longrope'"),
    (rope(rope_type="llama3", factor=8.0), "low_freq_factor is missing"),
    (rope(rope_type="llama3", factor=8.0, low_freq_factor=4, high_freq_factor=4), "high_freq_factor is 4"),
    (rope(rope_type="yarn", factor=4, truncate=1), "truncate is 1, not true or false"),
    (rope(rope_type="yarn", factor=[4]), "factor"),
    (rope(rope_type="yarn", factor=4, original_max_position_embeddings=0), "rope_orig_ctx is 0"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"quantization_config": 1}, "quantization_config"), ({"quantization_config": {}}, "quant_method is ''"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quant_method is 'gptq'"),
    ({"quantization_config": {"quant_method": "bitnet", "linear_class": "x"}}, "linear_class"),
    ({"quantization_config": {"quant_method": "bitnet", "use_rms_norm": True}}, "use_rms_norm"),
    ({"quantization_config": {"quant_method": "bitnet", "modules_to_not_convert": ["q_proj"]}}, "modules_to_not"),
])
def test_configurations_that_no_model_has(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match) as caught:
        pantheon.load(hf_folder(tmp_path / "m", {**CONFIG, **changes}, tiny_tensors()))
    assert "/m/" in str(caught.value) and "\n" not in str(caught.value)


def stored(name):
    """The tensors of a Hugging Face fixture, in one file."""
    with SafetensorsFile(HF / name / "model.safetensors") as file:
        kinds = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
        return {t.name: file.tensor(t.name).view(kinds[t.type]).reshape(t.shape).copy() for t in file.tensors}


@pytest.mark.parametrize(("name", "changes", "match"), [
    ("mixtral", {"num_local_experts": 9}, r"block_sparse_moe.gate.weight has shape \(8, 32\), expected \(9, 32\)"),
    ("mixtral", {"num_experts_per_tok": 9}, "n_experts_used is 9"),
    ("mixtral", {"num_local_experts": 0, "num_experts_per_tok": 0}, "layers.0.mlp.gate_proj.weight of .* is missing"),
    ("mixtral", {"intermediate_size": 25}, r"experts.0.w1.weight has shape \(24, 32\), expected \(25, 32\)"),
    ("qwen2-moe", {"shared_expert_intermediate_size": 0}, "mlp.shared_expert.*.weight .* is in the file, but not in"),
    ("qwen2-moe", {"norm_topk_prob": 1}, "norm_topk_prob is 1"),
    ("qwen3-moe", {"num_hidden_layers": 1}, "layers.1.* is in the file, but not in the model; .* layers 0 to 0"),
    ("phi2", {"qk_layernorm": True}, "qk_layernorm"), ("phi2", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ("phi2", {"rope_parameters": {"partial_rotary_factor": 0}}, "partial_rotary_factor is 0"),
    ("phi2", {"rope_parameters": {"partial_rotary_factor": -1}}, "partial_rotary_factor is -1"),
    ("phi3-longrope", {"rope_parameters": {"rope_type": "longrope"}}, "short_factor of the rotation is no list of 8"),
    ("phi3-longrope", {"rope_parameters": {"rope_type": "su", "short_factor": [1] * 8, "long_factor": [1] * 7 + [0]}},
     "long_factor of the rotation is no list of 8 numbers above 0"),
    ("phi3-longrope", {"original_max_position_embeddings": 0, "rope_parameters": {"rope_type": "longrope"}},
     "rope_orig_ctx is 0|no list"),
    ("qwen35", {"linear_num_value_heads": 3}, "linear_num_value_heads is 3, no multiple"),
    ("qwen35", {"linear_key_head_dim": 0}, "linear_key_head_dim is 0, not in 1..4096"),
    ("qwen35", {"linear_conv_kernel_dim": 99}, "linear_conv_kernel_dim is 99, not in 2..16"),
    ("qwen35", {"layer_types": ["full_attention"]}, "layer_types is no list of 5"),
    ("qwen35", {"layer_types": None, "full_attention_interval": 0}, "full_attention_interval is 0"),
    ("qwen35", {"rope_parameters": {"mrope_section": [1]}}, "mrope_section"),
    ("qwen35", {"quantization_config": {"quant_method": "bitnet"}}, "quantization_config is not supported"),
    ("mixtral", {"quantization_config": {"quant_method": "bitnet"}}, "not supported for MixtralForCausalLM"),
    ("phi3-longrope", {"quantization_config": {"quant_method": "fp8"}}, "not supported for Phi3ForCausalLM"),
    ("qwen35", {"text_config": 1}, "text_config is no object"),
])
def test_configurations_that_other_classes_cannot_have(tmp_path, name, changes, match):
    config = json.loads((HF / name / "config.json").read_text())
    pantheon.load(hf_folder(tmp_path / "m", config, stored(name))).close()
    with pytest.raises(ValueError, match=match) as caught:
        pantheon.load(hf_folder(tmp_path / "m", config | changes, stored(name)))
    assert "/m/" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("model", "name", "match"), [
    ("mixtral", "model.layers.1.block_sparse_moe.experts.7.w2.weight", r"of shape \(32, 24\) is missing"),
    ("mixtral", "model.layers.0.block_sparse_moe.gate.weight", r"of shape \(8, 32\) is missing"),
    ("qwen3-moe", "model.layers.1.mlp.experts.3.gate_proj.weight", r"of shape \(24, 32\) is missing"),
    ("qwen2-moe", "model.layers.1.mlp.shared_expert_gate.weight", r"of shape \(1, 32\) is missing"),
    ("phi2", "model.layers.1.input_layernorm.bias", r"of shape \(32,\) is missing"),
    ("phi2", "model.final_layernorm.weight", r"of shape \(32,\) is missing"),
    ("phi3-longrope", "model.layers.0.mlp.down_proj.weight", r"of shape \(32, 40\) is missing"),
    ("qwen35", "model.layers.0.linear_attn.A_log", r"of shape \(6,\) is missing"),
    ("qwen35", "model.layers.0.linear_attn.conv1d.weight", r"of shape \(112, 4\) is missing"),
    ("qwen35-moe", "model.language_model.layers.0.mlp.experts.down_proj", r"of shape \(12, 32, 24\) is missing"),
])
def test_missing_tensors_have_their_own_names(tmp_path, model, name, match):
    config = json.loads((HF / model / "config.json").read_text())
    tensors = stored(model)
    del tensors[name]
    with pytest.raises(ValueError, match=f"tensor {name} {match}"):
        pantheon.load(hf_folder(tmp_path / "m", config, tensors))


def test_decay_without_a_number(tmp_path):
    config, tensors = json.loads((HF / "qwen35" / "config.json").read_text()), stored("qwen35")
    for value in (math.nan, math.inf, 1e9):
        tensors["model.layers.2.linear_attn.A_log"][1] = value
        with pytest.raises(ValueError, match="layers.2.linear_attn.A_log holds .*, whose exponential is no number"):
            pantheon.load(hf_folder(tmp_path / "m", config, tensors))


@pytest.mark.parametrize("data", [b"", b"[]", b"x", b"\xff", b"[" * 10**6, b'{"a":1,"a":2}', b"{" + b" " * (17 << 20)])
def test_config_files_that_are_none(tmp_path, data):
    folder = hf_folder(tmp_path / "m", CONFIG, tiny_tensors())
    (folder / "config.json").write_bytes(data)
    with pytest.raises(ValueError, match="config.json"):
        pantheon.load(folder)


@pytest.mark.parametrize(("name", "match"), [
    ("model.layers.0.self_attn.sinks", r"expected in model.layers.0: .*self_attn.q_norm.weight"),
    ("model.layers.0.mlp.gate.weight", "expected in model.layers.0: "),
    ("model.layers.1.mlp.up_proj.weight", "the model has layers 0 to 0"),
    ("model.embed_positions.weight", "expected outside of the layers: .*model.norm.weight"),
    ("score.weight", "expected outside of the layers: lm_head.bias, lm_head.weight, "),
])
def test_tensors_that_nothing_reads(tmp_path, name, match):
    folder = hf_folder(tmp_path / "m", CONFIG, {**tiny_tensors(), name: np.ones((3, 8), np.float32)})
    with pytest.raises(ValueError, match=rf"m/model.safetensors: tensor {name} of shape \(3, 8\) is in .*{match}") as e:
        pantheon.load(folder)
    assert "\n" not in str(e.value)


def test_tensors_of_other_parts(tmp_path):
    """Rotation tables of old writers, drafts; the picture side of a multimodal model."""
    ones = np.ones((6, 8), np.float32)
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": ones[0, :2], "mtp.fc.weight": ones}
    with pantheon.load(hf_folder(tmp_path / "a", CONFIG, tiny_tensors())) as model:
        expected = model.prefill([1, 2, 3], model.new_state())
    inner = {name.replace("model.", "model.language_model."): array for name, array in tiny_tensors().items()}
    inner["model.visual.blocks.0.norm1.weight"] = ones
    for tensors in ({**tiny_tensors(), **more}, inner):
        with pantheon.load(hf_folder(tmp_path / "b", CONFIG, tensors)) as model:
            assert (model.prefill([1, 2, 3], model.new_state()) == expected).all()
    del inner["model.visual.blocks.0.norm1.weight"]
    inner["model.language_model.embed_positions.weight"] = ones
    with pytest.raises(ValueError, match="model.language_model.embed_positions.weight .* not in the model"):
        pantheon.load(hf_folder(tmp_path / "b", CONFIG, inner))


@pytest.mark.parametrize(("name", "array", "match"), [
    ("model.norm.weight", np.zeros((8, 1), np.float32), "norm.weight has shape"),
    ("model.norm.weight", np.zeros(8, np.int32), "norm.weight has type I32"),
    ("model.embed_tokens.weight", np.zeros((6, 8), np.uint8), "embed_tokens.weight has type U8"),
    ("model.layers.0.mlp.up_proj.weight", np.zeros((12, 8), np.int64), "up_proj.weight has type I64"),
    ("model.layers.0.mlp.up_proj.weight", np.zeros((8, 12), np.float32), r"up_proj.weight has shape \(8, 12\)"),
    ("model.layers.0.self_attn.q_proj.bias", np.zeros(7, np.float32), "q_proj.bias has shape"),
])
def test_tensors_that_do_not_fit(tmp_path, name, array, match):
    with pytest.raises(ValueError, match=match):
        pantheon.load(hf_folder(tmp_path / "m", CONFIG | {"attention_bias": True}, {**tiny_tensors(), name: array}))
