"""Hyper-parameters that no model can have, missing and mis-shaped tensors: one ValueError that names the culprit."""
import math
import struct

import pytest
from support.gguf_bytes import ARRAY, F32, I32, STRING, U8, U16, U32, gguf, kv, tensor

import pantheon

pytestmark = pytest.mark.hostile

E, F, H, G, D, V = 8, 12, 2, 1, 4, 6
KEYS = {
    "general.architecture": (STRING, "llama"), "llama.block_count": (U32, 1), "llama.context_length": (U32, 32),
    "llama.embedding_length": (U32, E), "llama.feed_forward_length": (U32, F), "llama.attention.head_count": (U32, H),
    "llama.attention.head_count_kv": (U32, G), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
}
SHAPES = {
    "token_embd.weight": [E, V], "output_norm.weight": [E], "blk.0.attn_norm.weight": [E],
    "blk.0.attn_q.weight": [E, H * D], "blk.0.attn_k.weight": [E, G * D], "blk.0.attn_v.weight": [E, G * D],
    "blk.0.attn_output.weight": [H * D, E],
    "blk.0.ffn_norm.weight": [E], "blk.0.ffn_gate.weight": [E, F], "blk.0.ffn_up.weight": [E, F],
    "blk.0.ffn_down.weight": [F, E],
}


def model_file(path, keys=None, shapes=None, kinds=None):
    """A whole one-layer model, F32 zeros; a key or shape of None leaves it out."""
    keys = {k: v for k, v in {**KEYS, **(keys or {})}.items() if v is not None}
    shapes = {k: v for k, v in {**SHAPES, **(shapes or {})}.items() if v is not None}
    infos, data = [], b""
    for name, dims in shapes.items():
        kind, size = (kinds or {}).get(name, (0, 4 * math.prod(dims)))
        infos.append(tensor(name, dims, kind, len(data)))
        data += bytes(size + -size % 32)
    path.write_bytes(gguf([kv(key, *value) for key, value in keys.items()], infos, data))
    return path


@pytest.fixture
def refused(tmp_path):
    def check(match, **changes):
        with pytest.raises(ValueError, match=match) as caught:
            pantheon.load(model_file(tmp_path / "m.gguf", **changes))
        assert "m.gguf" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < len(str(tmp_path)) + 1000
    return check


def test_the_unchanged_file_loads(tmp_path):
    with pantheon.load(model_file(tmp_path / "m.gguf")) as model:
        assert model.prefill([1, 2, 3], model.new_state()).shape == (V,)


@pytest.mark.parametrize(("key", "value", "match"), [
    ("general.architecture", (STRING, "lama"), "'lama' is unknown; known: llama, "),
    ("general.architecture", (STRING, "lama" * 5000), "lama' is unknown"),
    ("general.architecture", (U32, 1), "general.architecture"),
    ("llama.block_count", (U32, 0), "block_count is 0"),
    ("llama.block_count", (U32, 10**6), "block_count is 1000000"),
    ("llama.block_count", (STRING, "x"), "llama.block_count"),
    ("llama.block_count", (F32, 1.0), "llama.block_count"),
    ("llama.context_length", (U32, 0), "n_ctx is 0"),
    ("llama.context_length", (U32, 2**32 - 1), "context_length"),
    ("llama.embedding_length", (U32, 0), "n_embd is 0"),
    ("llama.embedding_length", (U32, 2**31 - 1), "n_embd"),
    ("llama.feed_forward_length", (U32, 0), "n_ff is 0"),
    ("llama.feed_forward_length", (ARRAY, (I32, [12, 13])), None),
    ("llama.attention.head_count", (U32, 0), "head_count is 0"),
    ("llama.attention.head_count", (I32, -4), "head_count is -4"),
    ("llama.attention.head_count", (ARRAY, (I32, [])), "head_count"),
    ("llama.attention.head_count_kv", (U32, 0), "n_kv_head is 0"),
    ("llama.attention.head_count_kv", (U32, 3), "no multiple of n_kv_head 3"),
    ("llama.attention.head_count_kv", (ARRAY, (I32, [1, 2])), None),
    ("llama.attention.key_length", (U32, 0), "head_dim is 0"),
    ("llama.attention.key_length", (U32, 10**6), "head_dim"),
    ("llama.attention.value_length", (U32, 5), "value_length"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, math.nan), "norm_eps is nan"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, math.inf), "norm_eps is inf"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, 0.0), "norm_eps is 0"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, 2.0), "norm_eps is 2"),
    ("llama.attention.layer_norm_rms_epsilon", None, "layer_norm_rms_epsilon is missing"),
    ("llama.rope.dimension_count", (U32, 3), "rope_dims is 3"),
    ("llama.rope.dimension_count", (U32, 6), "rope_dims is 6"),
    ("llama.rope.freq_base", (F32, 0.0), "rope_base is 0"),
    ("llama.rope.freq_base", (F32, math.nan), "rope_base is nan"),
    ("llama.rope.scaling.type", (STRING, "spiral"), "'spiral'; known: none, linear, yarn"),
    ("llama.rope.scaling.type", (STRING, "spiral" * 5000), "spir'; known"),
    ("llama.rope.scaling.factor", (F32, -1.0), "rope_factor is -1"),
    ("llama.expert_count", (U32, 4), "n_experts_used"),
    ("llama.expert_used_count", (U32, 2), "n_experts_used is 2 without experts"),
    ("llama.attention.scale", (F32, math.nan), "attn_scale is nan"),
    ("llama.attention.sliding_window", (I32, -1), "sliding_window is -1"),
])
def test_hyper_parameters(refused, tmp_path, key, value, match):
    if match is None:                    # one layer: only the first element of a per-layer list counts
        pantheon.load(model_file(tmp_path / "m.gguf", keys={key: value})).close()
    else:
        refused(match, keys={key: value})


@pytest.mark.parametrize("key", [k for k in KEYS if not k.endswith("_kv")])
def test_missing_keys(refused, key):
    refused(f"{key} is missing", keys={key: None})


@pytest.mark.parametrize("name", list(SHAPES))
def test_missing_tensors(refused, name):
    refused(f"tensor {name}.* is missing", shapes={name: None})


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "token_embd.weight"])
def test_shapes(refused, name):
    wrong = [SHAPES[name][0] + 32, *SHAPES[name][1:]]
    refused(rf"tensor {name} has shape \(.*{wrong[0]}\), expected \(", shapes={name: wrong})


@pytest.mark.parametrize(("name", "match"), [
    ("blk.0.attn_sinks.weight", r"in the model; expected in blk.0: attn_k.bias, .*ffn_down.weight"),
    ("blk.0.ffn_gate_inp.weight", "in the model; expected in blk.0: "),
    ("blk.0.ffn_up.0.weight", "in the model; expected in blk.0: "),
    ("blk.1.attn_q.weight", "in the model; the model has layers 0 to 0"),
    ("blk.99999999999999999999.attn_q.weight", "in the model; the model has layers 0 to 0"),
    ("cls.weight", "in the model; expected outside of the layers: output.bias, output.weight, output_norm.weight, "),
    ("x" * 60, "in the model; expected outside of the layers"),
])
def test_tensors_that_nothing_reads(refused, name, match):
    """A norm or a bias that is left out makes another model."""
    refused(rf"tensor {name} of shape \(3, 8\) is in the file, but not {match}", shapes={name: [8, 3]})


@pytest.mark.parametrize("name", ["blk.0.attn_rot_embd.weight", "rope.freqs", "blk.0.attn_q.input_scale"])
def test_tensors_that_no_reader_needs(tmp_path, name):
    pantheon.load(model_file(tmp_path / "m.gguf", shapes={name: [D // 2]})).close()


def test_layers_that_differ(refused):
    refused("head_count_kv differs between layers", keys={
        "llama.block_count": (U32, 2), "llama.attention.head_count_kv": (ARRAY, (I32, [1, 2]))})


def test_types_without_a_product(refused):
    refused("blk.0.attn_q.weight has type", kinds={"blk.0.attn_q.weight": (26, 4 * E * H * D)})     # I32


def test_rope_divisors(tmp_path):
    path = model_file(tmp_path / "m.gguf", shapes={"rope_freqs.weight": [D // 2]})      # zeros
    with pytest.raises(ValueError, match="rope_freqs.weight holds 0"):
        pantheon.load(path)


X, K = 4, 2
MOE_KEYS = {"llama.expert_count": (U32, X), "llama.expert_used_count": (U32, K)}
MOE_SHAPES = {
    "blk.0.ffn_gate.weight": None, "blk.0.ffn_up.weight": None, "blk.0.ffn_down.weight": None,
    "blk.0.ffn_gate_inp.weight": [E, X], "blk.0.ffn_gate_exps.weight": [E, F, X],
    "blk.0.ffn_up_exps.weight": [E, F, X], "blk.0.ffn_down_exps.weight": [F, E, X],
}
EXPERTS = [name for name, dims in MOE_SHAPES.items() if dims]


def arch_keys(arch, keys=None):
    """KEYS of another architecture, with other keys (without the prefix)."""
    return ({key: None for key in KEYS if key.startswith("llama.")}
            | {"general.architecture": (STRING, arch)}
            | {key.replace("llama.", f"{arch}."): value for key, value in KEYS.items() if key.startswith("llama.")}
            | {f"{arch}.{key}": value for key, value in (keys or {}).items()})


def test_the_unchanged_experts_load(tmp_path):
    with pantheon.load(model_file(tmp_path / "m.gguf", keys=MOE_KEYS, shapes=MOE_SHAPES)) as model:
        assert (model.config.n_experts, model.config.n_experts_used, model.config.n_ff_expert) == (X, K, F)
        assert model.prefill([1, 2, 3], model.new_state()).shape == (V,)


@pytest.mark.parametrize(("key", "value", "match"), [
    ("llama.expert_used_count", (U32, X + 1), "n_experts_used is 5 .*with n_experts 4"),
    ("llama.expert_used_count", (U32, 0), "n_experts_used is 0"),
    ("llama.expert_used_count", None, "n_experts_used is 0"),
    ("llama.expert_count", (U32, 2**31), "expert_count is 2147483648"),
    ("llama.expert_count", (U32, 2**20), "n_experts is 1048576"),
    ("llama.expert_count", (I32, -1), "n_experts is -1"),
    ("llama.expert_count", (STRING, "4"), "llama.expert_count"),
    ("llama.expert_count", (U32, 5), r"ffn_gate_inp.weight has shape \(4, 8\), expected \(5, 8\)"),
    ("llama.expert_feed_forward_length", (U32, 0), "n_ff_expert 0"),
    ("llama.expert_feed_forward_length", (U32, 16), r"ffn_gate_exps.* has shape \(4, 12, 8\), expected \(4, 16, 8\)"),
    ("llama.expert_feed_forward_length", (U32, 2**24), r"ffn_gate_exps.*expected \(4, 16777216, 8\)"),
    ("llama.expert_shared_feed_forward_length", (U32, 12), r"ffn_gate_inp_shexp.weight of shape \(1, 8\) is missing"),
    ("llama.expert_weights_scale", (F32, math.nan), "expert_scale is nan"),
    ("llama.expert_weights_norm", (STRING, "yes"), "llama.expert_weights_norm"),
])
def test_hyper_parameters_of_experts(refused, key, value, match):
    refused(match, keys=MOE_KEYS | {key: value}, shapes=MOE_SHAPES)


@pytest.mark.parametrize("name", EXPERTS)
def test_missing_tensors_of_experts(refused, name):
    refused(f"tensor {name} of shape .* is missing", keys=MOE_KEYS, shapes=MOE_SHAPES | {name: None})


@pytest.mark.parametrize("name", EXPERTS)
def test_shapes_of_experts(refused, name):
    for i in range(len(MOE_SHAPES[name])):
        wrong = list(MOE_SHAPES[name])
        wrong[i] += 32
        shape = ", ".join(str(n) for n in reversed(wrong))
        refused(rf"tensor {name} has shape \({shape}\), expected \(", keys=MOE_KEYS, shapes=MOE_SHAPES | {name: wrong})


@pytest.mark.parametrize("part", ["gate", "up", "down"])
def test_one_tensor_per_expert(refused, part):
    shapes = {name: None if "_exps" in name else dims for name, dims in MOE_SHAPES.items()}
    for e in range(X):
        shapes |= {f"blk.0.ffn_gate.{e}.weight": [E, F], f"blk.0.ffn_up.{e}.weight": [E, F],
                   f"blk.0.ffn_down.{e}.weight": [F, E]}
    last = f"blk.0.ffn_{part}.{X - 1}.weight"
    refused(f"tensor {last} of shape .* is missing", keys=MOE_KEYS, shapes=shapes | {last: None})
    refused(rf"tensor {last} has shape \(12, 12\), expected", keys=MOE_KEYS, shapes=shapes | {last: [12, 12]})


def test_types_of_experts_without_a_product(refused):
    name = "blk.0.ffn_down_exps.weight"
    refused(f"{name} has type", keys=MOE_KEYS, shapes=MOE_SHAPES, kinds={name: (26, 4 * X * E * F)})


def test_phi2(refused, tmp_path):
    keys = arch_keys("phi2", {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": (F32, 1e-5)})
    shapes = {"blk.0.ffn_norm.weight": None, "blk.0.ffn_gate.weight": None, "blk.0.attn_norm.bias": [E],
              "output_norm.bias": [E]}
    pantheon.load(model_file(tmp_path / "m.gguf", keys=keys, shapes=shapes)).close()
    refused("phi2.attention.layer_norm_epsilon is missing", shapes=shapes,
            keys=keys | {"phi2.attention.layer_norm_epsilon": None})
    refused("blk.0.attn_norm.bias of shape .8,. is missing", keys=keys, shapes=shapes | {"blk.0.attn_norm.bias": None})
    refused("output_norm.bias of shape .8,. is missing", keys=keys, shapes=shapes | {"output_norm.bias": None})


def test_phi3(refused, tmp_path):
    keys = arch_keys("phi3", {"rope.scaling.original_context_length": (U32, 16)})
    shapes = {"blk.0.ffn_gate.weight": None, "blk.0.ffn_up.weight": [E, 2 * F]}
    pantheon.load(model_file(tmp_path / "m.gguf", keys=keys, shapes=shapes)).close()
    refused(r"ffn_up.weight has shape \(12, 8\), expected \(24, 8\)", keys=keys,
            shapes=shapes | {"blk.0.ffn_up.weight": [E, F]})
    refused("tensor rope_factors_short.weight of shape .2,. is missing", keys=keys,
            shapes=shapes | {"rope_factors_long.weight": [D // 2]})
    refused("tensor rope_factors_short.weight holds 0", keys=keys,
            shapes=shapes | {"rope_factors_long.weight": [D // 2], "rope_factors_short.weight": [D // 2]})
    refused("rope_orig_ctx is 0", shapes=shapes | {"rope_factors_long.weight": [D // 2]},
            keys=keys | {"phi3.rope.scaling.original_context_length": (U32, 0)})


@pytest.mark.parametrize("pairs", [
    [("general.architecture", STRING, "llama"), ("llama.block_count", U8, 0)],
    [("general.architecture", STRING, "llama"), ("llama.block_count", U16, 60000)],
    [("general.architecture", STRING, "x")],
    [("a", U32, 1)],
    [],
])
def test_files_of_a_hundred_bytes(tmp_path, pairs):
    path = tmp_path / "small.gguf"
    data = gguf([kv(*pair) for pair in pairs])
    assert len(data) <= 100
    path.write_bytes(data)
    with pytest.raises(ValueError, match="small.gguf"):
        pantheon.load(path)


def test_every_prefix_of_a_model(tmp_path):
    """Cut anywhere up to the last byte of tensor data, a model is refused; whole, it loads."""
    whole = model_file(tmp_path / "whole.gguf").read_bytes()
    end = len(whole) - (-4 * F * E) % 32         # padding after the last tensor may be missing
    path = tmp_path / "cut.gguf"
    for n in range(end):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="cut.gguf"):
            pantheon.load(path)
    path.write_bytes(whole[:end])
    pantheon.load(path).close()


def test_not_a_model_at_all(tmp_path):
    path = tmp_path / "text.gguf"
    for data in (b"", b"hello", struct.pack("<Q", 2**63) + b"{}", b"GGUF" + bytes(96)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="text.gguf"):
            pantheon.load(path)
