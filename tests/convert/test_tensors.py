"""What is in a converted file: types, exact values, rows in their order."""

import gguf
import numpy as np
import pytest
from support.fixture_paths import HF, HF_MODELS
from support.safetensors_bytes import CONFIG, hf_folder, tiny_tensors

from pantheon.convert import TYPES, convert

FOLDERS = [path for path in HF_MODELS if path.name != "qwen3-windows"]
Q = gguf.GGMLQuantizationType
ALWAYS_F32 = ("norm.weight", ".bias", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight", "ssm_a")


def tensors_of(folder, out, kind):
    convert(folder, out, kind, force=True, tokenizer=False)
    return {t.name: t for t in gguf.GGUFReader(out).tensors}


def values(tensor):
    return gguf.quants.dequantize(np.array(tensor.data), tensor.tensor_type).reshape(tensor.shape[::-1])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_types_and_rounding(tmp_path, folder):
    """Every value is what rounding it once to the type gives; vectors are never rounded."""
    exact = {name: values(t) for name, t in tensors_of(folder, tmp_path / "f32.gguf", "f32").items()}
    for kind in TYPES:
        seen = set()
        for name, t in tensors_of(folder, tmp_path / f"{kind}.gguf", kind).items():
            seen.add(t.tensor_type)
            got, x = values(t), exact[name]
            assert got.shape == x.shape
            if x.ndim == 1 or name.endswith(ALWAYS_F32) or kind == "f32":
                assert t.tensor_type == Q.F32
                assert np.array_equal(got, x)
            elif kind == "f16" or x.shape[-1] % 32:
                assert t.tensor_type == (Q.F16 if kind != "bf16" else Q.BF16)
                assert np.allclose(got, x, rtol=2.0**-11 if kind != "bf16" else 2.0**-8, atol=2.0**-25)
            elif kind == "bf16":
                assert t.tensor_type == Q.BF16
                assert np.allclose(got, x, rtol=2.0**-8, atol=0)
            else:
                assert t.tensor_type == Q.Q8_0
                blocks, error = x.reshape(-1, 32), np.abs(got - x).reshape(-1, 32)
                step = 1 / 127 + 2.0**-10               # half a code, and the scale is an f16
                assert np.all(error <= step / 2 * np.abs(blocks).max(axis=1, keepdims=True) + 127 * 2.0**-25)
        assert seen >= {Q.F32} and (kind == "f32" or len(seen) > 1)


def test_queries_and_keys_of_llama_are_interleaved(tmp_path):
    """Rows p and p + D/2 of a head are rotated together, and stand side by side in the file."""
    arrays = tiny_tensors()
    found = tensors_of(hf_folder(tmp_path / "m", CONFIG, arrays), tmp_path / "x.gguf", "f32")
    q, k = (arrays[f"model.layers.0.self_attn.{x}_proj.weight"] for x in "qk")
    assert np.array_equal(values(found["blk.0.attn_q.weight"]), q[[0, 2, 1, 3, 4, 6, 5, 7]])
    assert np.array_equal(values(found["blk.0.attn_k.weight"]), k[[0, 2, 1, 3]])
    assert np.array_equal(values(found["blk.0.attn_v.weight"]), arrays["model.layers.0.self_attn.v_proj.weight"])
    assert "output.weight" not in found


def test_value_heads_of_qwen35_are_interleaved(tmp_path):
    """Two key heads, six value heads of 8: file head g is folder head (g mod 2) * 3 + g div 2."""
    import json

    from pantheon._core.files.safetensors import SafetensorsFile

    folder = HF / "qwen35"
    config = json.loads((folder / "config.json").read_text())
    assert (config["linear_num_key_heads"], config["linear_num_value_heads"]) == (2, 6)
    n_qk, dim = 4 * config["linear_key_head_dim"], config["linear_value_head_dim"]
    heads = [0, 3, 1, 4, 2, 5]
    with SafetensorsFile(folder / "model.safetensors") as file:
        shapes = {t.name: t.shape for t in file.tensors}

        def theirs(part):
            name = f"model.layers.0.{part}"
            return file.tensor(name).view(np.float32).reshape(shapes[name])

        found = tensors_of(folder, tmp_path / "x.gguf", "f32")

        def ours(part):
            return values(found[f"blk.0.{part}"])

        qkv = theirs("linear_attn.in_proj_qkv.weight")
        v = qkv[n_qk:].reshape(6, dim, -1)[heads].reshape(6 * dim, -1)
        assert np.array_equal(ours("attn_qkv.weight"), np.concatenate([qkv[:n_qk], v]))
        conv = theirs("linear_attn.conv1d.weight")[:, 0]
        assert np.array_equal(ours("ssm_conv1d.weight")[:n_qk], conv[:n_qk])
        assert np.array_equal(ours("ssm_conv1d.weight")[n_qk:].reshape(6, dim, -1),
                              conv[n_qk:].reshape(6, dim, -1)[heads])
        z = theirs("linear_attn.in_proj_z.weight").reshape(6, dim, -1)
        assert np.array_equal(ours("attn_gate.weight").reshape(6, dim, -1), z[heads])
        assert np.array_equal(ours("ssm_alpha.weight"), theirs("linear_attn.in_proj_a.weight")[heads])
        assert np.array_equal(ours("ssm_beta.weight"), theirs("linear_attn.in_proj_b.weight")[heads])
        np.testing.assert_allclose(ours("ssm_a"), -np.exp(theirs("linear_attn.A_log")[heads]), rtol=1e-6)
        assert np.array_equal(ours("ssm_dt.bias"), theirs("linear_attn.dt_bias")[heads])
        out = theirs("linear_attn.out_proj.weight").reshape(-1, 6, dim)[:, heads].reshape(-1, 6 * dim)
        assert np.array_equal(ours("ssm_out.weight"), out)
        assert np.array_equal(ours("ssm_norm.weight"), theirs("linear_attn.norm.weight"))
        assert np.array_equal(ours("attn_norm.weight"), theirs("input_layernorm.weight") + 1)
        assert np.array_equal(ours("post_attention_norm.weight"), theirs("post_attention_layernorm.weight") + 1)


# ---- ternary ---------------------------------------------------------------------------------------------------------

def ternary_folder(folder, rows, scale, settings, columns=256):
    """One layer whose gate holds `rows` (n, columns) of -1, 0, 1; all other matrices are zero. Packed by hand."""
    config = CONFIG | {"hidden_size": columns, "intermediate_size": len(rows), "num_attention_heads": 2,
                       "num_key_value_heads": 2, "quantization_config": {"quant_method": "bitnet", **settings}}
    arrays = {"model.embed_tokens.weight": np.zeros((6, columns), np.float32)}
    for norm in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        arrays[f"{norm}.weight"] = np.ones(columns, np.float32)
    shapes = dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
                           (columns, columns))
    shapes |= {"mlp.gate_proj": (len(rows), columns), "mlp.up_proj": (len(rows), columns),
               "mlp.down_proj": (columns, len(rows))}
    for name, (n, m) in shapes.items():
        codes = np.zeros((n, m), int) if name != "mlp.gate_proj" else rows
        groups = (n + 3) // 4
        packed = np.zeros((groups, m), np.uint8)
        for r in range(n):
            packed[r % groups] |= ((codes[r] + 1) << 2 * (r // groups)).astype(np.uint8)
        arrays[f"model.layers.0.{name}.weight"] = packed
        arrays[f"model.layers.0.{name}.weight_scale"] = np.array([scale], np.float32)
    return hf_folder(folder, config, arrays)


@pytest.mark.parametrize("n", [8, 7, 256])
@pytest.mark.parametrize("settings, factor", [({}, 1 / 50), ({"linear_class": "autobitlinear"}, 50.0)])
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_ternary_matrices_keep_their_codes(tmp_path, n, settings, factor, kind):
    rows = np.random.default_rng(n).integers(-1, 2, (n, 256))
    found = tensors_of(ternary_folder(tmp_path / "m", rows, 50.0, settings), tmp_path / "x.gguf", kind)
    gate = found["blk.0.ffn_gate.weight"]
    assert gate.tensor_type == Q.TQ2_0
    assert np.array_equal(values(gate), rows * np.float32(np.float16(factor)))
    down = found["blk.0.ffn_down.weight"]           # rows of n
    assert down.tensor_type == (Q.TQ2_0 if n % 256 == 0 else Q.F32 if kind == "f32" else Q.F16)


def test_queries_of_ternary_llama_are_interleaved(tmp_path):
    folder = HF / "ternary-llama"
    from pantheon._core.files.safetensors import SafetensorsFile

    with SafetensorsFile(folder / "model.safetensors") as file:
        packed = file.tensor("model.layers.0.self_attn.q_proj.weight").reshape(16, 64)
        scale = file.tensor("model.layers.0.self_attn.q_proj.weight_scale").view(np.float32)[0]
    codes = np.concatenate([((packed >> 2 * k) & 3).astype(np.float32) - 1 for k in range(4)])
    q = values(tensors_of(folder, tmp_path / "x.gguf", "f32")["blk.0.attn_q.weight"])
    expected = codes.reshape(4, 2, 8, 64).swapaxes(1, 2).reshape(64, 64) / scale
    np.testing.assert_allclose(q, expected, rtol=1e-6)
