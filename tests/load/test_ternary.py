"""Ternary models: one model in every form it can be stored in, and forms that stand for nothing."""
import math

import numpy as np
import pytest
from support.gguf_bytes import F32, STRING, U32, gguf, kv, tensor
from support.safetensors_bytes import hf_folder

import pantheon

C, F, H, G, D, V, L = 256, 512, 4, 2, 64, 40, 2
SCALE = 0.25                                          # a power of two: any order of multiplications is exact
TOKENS = np.random.default_rng(5).integers(0, V, 30).astype(np.uint32)
PARTS = {"attn_q": ("self_attn.q_proj", (H * D, C)), "attn_k": ("self_attn.k_proj", (G * D, C)),
         "attn_v": ("self_attn.v_proj", (G * D, C)), "attn_output": ("self_attn.o_proj", (C, H * D)),
         "ffn_gate": ("mlp.gate_proj", (F, C)), "ffn_up": ("mlp.up_proj", (F, C)),
         "ffn_down": ("mlp.down_proj", (C, F))}
NORMS = {"attn_norm": ("input_layernorm", C), "ffn_norm": ("post_attention_layernorm", C),
         "attn_sub_norm": ("self_attn.attn_sub_norm", H * D), "ffn_sub_norm": ("mlp.ffn_sub_norm", F)}
OFFLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
ONLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}
DIVIDE = {"quant_method": "bitnet"}


@pytest.fixture(scope="module")
def weights():
    """{GGUF name: array}: float32 vectors and embedding, int8 codes -1, 0, 1 of the matrices."""
    rng = np.random.default_rng(9)
    made = {"token_embd.weight": rng.standard_normal((V, C)).astype(np.float32),
            "output_norm.weight": (1 + 0.1 * rng.standard_normal(C)).astype(np.float32)}
    for i in range(L):
        for part, (_, n) in NORMS.items():
            made[f"blk.{i}.{part}.weight"] = (1 + 0.1 * rng.standard_normal(n)).astype(np.float32)
        for part, (_, shape) in PARTS.items():
            made[f"blk.{i}.{part}.weight"] = rng.integers(-1, 2, shape).astype(np.int8)
    return made


def hf_name(name):
    stem = name.removesuffix(".weight")
    if not stem.startswith("blk."):
        return {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[stem] + ".weight"
    _, i, part = stem.split(".")
    return f"model.layers.{i}.{(PARTS | NORMS)[part][0]}.weight"


def config(quantization, **changes):
    return {"architectures": ["BitNetForCausalLM"], "vocab_size": V, "hidden_size": C, "intermediate_size": F,
            "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "relu2", "tie_word_embeddings": True,
            "quantization_config": quantization, **changes}


def pack(codes):
    rows = len(codes) // 4
    u = (codes + 1).astype(np.uint8)
    return u[:rows] | u[rows:2 * rows] << 2 | u[2 * rows:3 * rows] << 4 | u[3 * rows:] << 6


def write_hf(folder, weights, form, scale, quantization, **changes):
    """form: codes (rows, cols) -> the stored matrix; scale: weight_scale, or None for none."""
    tensors = {}
    for name, array in weights.items():
        tensors[hf_name(name)] = array if array.dtype == np.float32 else form(array)
        if array.dtype == np.int8 and scale is not None:
            tensors[hf_name(name) + "_scale"] = np.array([scale], np.float32)
    return hf_folder(folder, config(quantization, **changes), tensors)


def i2_s(codes):
    u = (codes + 1).astype(np.uint8).reshape(-1, 4, 32)
    packed = u[:, 0] << 6 | u[:, 1] << 4 | u[:, 2] << 2 | u[:, 3]
    return packed.tobytes() + np.array([SCALE] + [0] * 7, np.float32).tobytes()


def tq2_0(codes):
    u = (codes + 1).astype(np.uint8).reshape(-1, 2, 4, 32)
    packed = u[:, :, 0] | u[:, :, 1] << 2 | u[:, :, 2] << 4 | u[:, :, 3] << 6
    scales = np.full((len(packed), 1), SCALE, np.float16).view(np.uint8)
    return np.concatenate([packed.reshape(-1, 64), scales.reshape(len(packed), 2)], axis=1).tobytes()


def write_gguf(path, weights, kind, form, arch="bitnet-b1.58", scale=None):
    """form: codes -> bytes of the GGUF type `kind`; scale: of a tensor of its own beside each matrix."""
    keys = {"block_count": L, "context_length": 64, "embedding_length": C, "feed_forward_length": F,
            "attention.head_count": H, "attention.head_count_kv": G}
    pairs = [kv("general.architecture", STRING, arch), kv(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
             *(kv(f"{arch}.{key}", U32, value) for key, value in keys.items())]
    infos, data = [], b""

    def add(name, dims, type_number, values):
        nonlocal data
        infos.append(tensor(name, dims, type_number, len(data)))
        data += values + bytes(-len(values) % 32)

    for name, array in weights.items():
        dims = list(array.shape[::-1])
        if array.dtype == np.float32:
            add(name, dims, 0, array.tobytes())
            continue
        add(name, dims, kind, form(array))
        if scale is not None:
            add(name.replace(".weight", ".scale"), [1], 0, np.float32(scale).tobytes())
    path.write_bytes(gguf(pairs, infos, data))
    return path


def logits_of(path, threads=1):
    with pantheon.load(path, threads=threads) as model:
        return model.prefill(TOKENS, model.new_state(kv_type="f32"), all_logits=True)


@pytest.fixture(scope="module")
def expected(tmp_path_factory, weights):
    return logits_of(write_hf(tmp_path_factory.mktemp("packed") / "m", weights, pack, SCALE, OFFLINE))


def test_the_model_says_something(expected):
    assert np.isfinite(expected).all() and np.ptp(expected, axis=1).min() > 1


@pytest.mark.parametrize(("form", "scale", "quantization"), [
    (pack, 1 / SCALE, DIVIDE), (lambda codes: pack(codes).view(np.int8), SCALE, OFFLINE),
    (lambda codes: codes.astype(np.float32), SCALE, OFFLINE),
    (lambda codes: codes.astype(np.float16), 1 / SCALE, DIVIDE),
], ids=["divide", "int8", "unpacked", "unpacked-divide"])
def test_every_stored_form_is_the_same_model(tmp_path, weights, expected, form, scale, quantization):
    assert np.array_equal(logits_of(write_hf(tmp_path / "m", weights, form, scale, quantization), 2), expected)


def test_master_weights_are_quantised_by_their_mean(tmp_path, weights, expected):
    """Codes times a scale have another mean magnitude than that scale: the share of the codes that are not 0."""
    def masters(codes):
        share = np.abs(codes.astype(np.float64)).mean()
        return (codes * np.float32(SCALE / share)).astype(np.float32)

    got = logits_of(write_hf(tmp_path / "m", weights, masters, None, ONLINE))
    difference = np.abs(got - expected)
    assert np.median(difference) < 1e-3 and difference.max() < 0.3      # a last bit of the scale may move a code


@pytest.mark.parametrize("arch", ["bitnet-b1.58", "bitnet-25"])
def test_i2_s_is_the_same_model(tmp_path, weights, expected, arch):
    for threads in (1, 3):
        assert np.array_equal(logits_of(write_gguf(tmp_path / "m.gguf", weights, 36, i2_s, arch), threads), expected)


def test_tq2_0_differs_only_in_the_blocks_of_its_input(tmp_path, weights, expected):
    """Rows of 256 are one block, so only down_proj, of two blocks, is rounded otherwise."""
    got = logits_of(write_gguf(tmp_path / "m.gguf", weights, 35, tq2_0))
    assert 0 < np.abs(got - expected).max() < 0.1 * np.ptp(expected)
    assert np.abs(got - expected).mean() < 0.05 * np.std(expected)


def test_a_scale_beside_a_float_matrix_multiplies_it(tmp_path, weights):
    codes = write_gguf(tmp_path / "a.gguf", weights, 0, lambda q: q.astype(np.float32).tobytes(), scale=SCALE)
    whole = write_gguf(tmp_path / "b.gguf", weights, 0, lambda q: (q * np.float32(SCALE)).tobytes())
    assert np.array_equal(logits_of(codes), logits_of(whole))


def test_silu_and_squared_relu_are_two_architectures(tmp_path, weights, expected):
    folder = write_hf(tmp_path / "m", weights, pack, SCALE, OFFLINE, hidden_act="silu")
    with pantheon.load(folder) as model:
        assert model.arch == "bitnet"
    silu = logits_of(folder)
    assert np.abs(silu - expected).max() > 0.1
    assert np.array_equal(silu, logits_of(write_gguf(tmp_path / "m.gguf", weights, 36, i2_s, "bitnet")))


# ---- what stands for nothing -----------------------------------------------------------------------------------------

def with_code_3(codes):
    packed = pack(codes)
    packed[1, 5] |= 3 << 4
    return packed


BAD_SCALES = [0.0, -1.0, math.nan, math.inf, -math.inf]
QK = "model.layers.0.self_attn"


@pytest.mark.parametrize(("form", "scale", "quantization", "match"), [
    (with_code_3, SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight holds code 3 in byte 261"),
    (pack, None, OFFLINE, rf"tensor {QK}.q_proj.weight_scale .* is missing"),
    *[(pack, scale, rule, rf"tensor {QK}.q_proj.weight_scale is .*, not a finite number above 0")
      for scale in BAD_SCALES for rule in (OFFLINE, DIVIDE)],
    (lambda codes: pack(codes)[1:], SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight has shape \(63, 256\), expected the"),
    (pack, SCALE, ONLINE, rf"tensor {QK}.q_proj.weight is packed"),
    (pack, SCALE, None, rf"tensor {QK}.q_proj.weight has shape"),
    (lambda codes: codes * np.float32(0.5), SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight holds weights in row 0"),
    (lambda codes: codes * np.float32(2), SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight holds weights in row 0"),
    (lambda codes: codes * np.float32(math.nan), SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight holds weights in row 0"),
    (lambda codes: codes * np.float32(math.nan), None, ONLINE, rf"tensor {QK}.q_proj.weight holds weights that are"),
    (lambda codes: codes.astype(np.int32), SCALE, OFFLINE, rf"tensor {QK}.q_proj.weight has "),
])
def test_what_stands_for_nothing_is_refused(tmp_path, weights, form, scale, quantization, match):
    with pytest.raises(ValueError, match=match) as caught:
        pantheon.load(write_hf(tmp_path / "m", weights, form, scale, quantization))
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize(("kind", "form", "match"), [
    (36, lambda q: b"\x0c" + i2_s(q)[1:], "blk.0.attn_q.weight holds code 3 in block 0"),
    (35, lambda q: tq2_0(q)[:66 * 7] + b"\xc0" + tq2_0(q)[66 * 7 + 1:], "blk.0.attn_q.weight holds code 3 in block 7"),
    *[(36, lambda q, s=s: i2_s(q)[:-32] + np.array([s] * 8, np.float32).tobytes(), "blk.0.attn_q.weight has the scale")
      for s in BAD_SCALES],
])
def test_gguf_that_stands_for_nothing_is_refused(tmp_path, weights, kind, form, match):
    with pytest.raises(ValueError, match=f"m.gguf: tensor {match}"):
        pantheon.load(write_gguf(tmp_path / "m.gguf", weights, kind, form))


@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf])
def test_a_scale_beside_a_matrix_is_a_number(tmp_path, weights, scale):
    with pytest.raises(ValueError, match="m.gguf: tensor blk.0.attn_q.scale is"):
        pantheon.load(write_gguf(tmp_path / "m.gguf", weights, 36, i2_s, scale=scale))


def test_sub_norms_must_be_there(tmp_path, weights):
    fewer = {name: array for name, array in weights.items() if name != "blk.1.ffn_sub_norm.weight"}
    with pytest.raises(ValueError, match=r"blk.1.ffn_sub_norm.weight of shape \(512,\) is missing"):
        pantheon.load(write_gguf(tmp_path / "m.gguf", fewer, 36, i2_s))
    with pytest.raises(ValueError, match=r"layers.1.mlp.ffn_sub_norm.weight of shape \(512,\) is missing"):
        pantheon.load(write_hf(tmp_path / "m", fewer, pack, SCALE, OFFLINE))
