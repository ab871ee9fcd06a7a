"""Hugging Face folders against transformers (tests/fixtures/hf, made by tools/make_hf_models.py) and against GGUF."""
from __future__ import annotations

import json
import os

import gguf
import numpy as np
import pytest
from support.fixture_paths import FIXTURES
from support.safetensors_bytes import CONFIG, hf_folder, tiny_tensors

import pantheon

pytestmark = pytest.mark.golden

FOLDERS = sorted(path.parent.name for path in (FIXTURES / "hf").glob("*/config.json"))
TERNARY = ["bitnet-offline", "bitnet-online", "ternary-llama"]
GGUF_CLASSES = {"llama3": "LlamaForCausalLM", "llama-fused-bias": "LlamaForCausalLM", "llama-half": "LlamaForCausalLM",
                "mistral-window": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2-yarn": "Qwen2ForCausalLM",
                "qwen3": "Qwen3ForCausalLM"}


def kl(p_logits, q_logits):
    """KL(p || q) of each position in float64, (n_tokens,)."""
    p, q = (x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64), axis=-1, keepdims=True)
            for x in (p_logits, q_logits))
    return (np.exp(p) * (p - q)).sum(axis=-1)


def logits_of(path, tokens, **options):
    with pantheon.load(path, **options) as model:
        return model.prefill(tokens, model.new_state(kv_type="f32"), all_logits=True)


def agree(got, expected):
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 2e-3
    assert kl(expected, got).max() < 1e-6


def test_the_fixtures_are_there():
    assert len(FOLDERS) == 14 and set(TERNARY) < set(FOLDERS)
    assert len(list((FIXTURES / "hf" / "llama-sharded").glob("model-*.safetensors"))) > 1


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_agree_with_transformers(name):
    golden = np.load(FIXTURES / "hf" / name / "golden.npz")
    assert len(golden["tokens"]) == 96
    agree(logits_of(FIXTURES / "hf" / name, golden["tokens"]), golden["logits"])


def test_a_short_state_has_the_short_factors():
    """LongRoPE: the factors are lists of config.json."""
    folder = FIXTURES / "hf" / "phi3-longrope"
    golden = np.load(folder / "golden.npz")
    with pantheon.load(folder) as model:
        n = model.config.rope_orig_ctx
        got = model.prefill(golden["tokens"][:n], model.new_state(n_ctx=n, kv_type="f32"), all_logits=True)
    agree(got, golden["short_logits"])
    assert np.abs(golden["short_logits"] - golden["logits"][:n]).max() > 0.1


def test_ways_to_name_a_model():
    folder = FIXTURES / "hf" / "llama-sharded"
    tokens = [3, 4, 5]
    with pantheon.load(folder) as model:
        assert (model.arch, model.container, model.path) == ("llama", "safetensors", str(folder))
        assert model.config["rope_kind"] == "neox" and model.config["rope_scaling"] == "llama3"
        assert model.chat_style == "template" and dict(model.metadata) == {}
        with pytest.raises(ValueError, match="not a GGUF file"):
            model.gguf()
    by_index = logits_of(folder / "model.safetensors.index.json", tokens, config_path=folder / "config.json")
    assert np.array_equal(by_index, logits_of(folder, tokens))
    single = FIXTURES / "hf" / "qwen3-windows"
    by_file = logits_of(str(single / "model.safetensors"), tokens, config_path=str(single / "config.json"))
    assert np.array_equal(by_file, logits_of(single, tokens))
    with pytest.raises(ValueError, match="model.safetensors: holds no RWKV model.*config_path"):
        pantheon.load(single / "model.safetensors")
    with pytest.raises(ValueError, match="quantize"):
        pantheon.load(single, quantize=True)
    with pytest.raises(ValueError, match="vocab_path"):
        pantheon.load(single / "model.safetensors", config_path=single / "config.json", vocab_path="x")


# ---- the same model from both containers -----------------------------------------------------------------------------

PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def halves(rows, n_head):
    """Rows of q or k from interleaved pairs to rotate-half: t * D/2 + p <- 2p + t."""
    return rows.reshape(n_head, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def as_hf(folder, path, class_name):
    """Writes a GGUF fixture of float weights as a Hugging Face folder, every tensor in its own type."""
    reader = gguf.GGUFReader(path)
    config_path = folder / "config.json"
    tensors, n_head, n_kv = {}, 0, 0
    with pantheon.load(path) as model:
        c = model.config
        n_head, n_kv, permuted = c.n_head, c.n_kv_head, model.arch == "llama"
        rope = {"rope_type": "default"}
        if c.rope_scaling in ("linear", "yarn"):
            rope = {"rope_type": c.rope_scaling, "factor": c.rope_factor}
        if c.rope_scaling == "yarn":
            rope |= {"original_max_position_embeddings": c.rope_orig_ctx, "beta_fast": c.rope_beta_fast,
                     "beta_slow": c.rope_beta_slow}
        if path.stem == "llama3":                    # in GGUF these are the divisors of rope_freqs.weight
            rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32}
        config = {
            "architectures": [class_name], "vocab_size": c.n_vocab, "hidden_size": c.n_embd,
            "intermediate_size": c.n_ff, "num_hidden_layers": c.n_layer, "num_attention_heads": n_head,
            "num_key_value_heads": n_kv, "head_dim": c.head_dim, "max_position_embeddings": c.n_ctx,
            "rms_norm_eps": c.norm_eps, "sliding_window": c.sliding_window or None,
            "rope_parameters": rope | {"rope_theta": c.rope_base},
            "attention_bias": class_name == "LlamaForCausalLM",
            "mlp_bias": class_name == "LlamaForCausalLM",
            "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors)}
    for tensor in reader.tensors:
        stem, suffix = tensor.name.rsplit(".", 1)
        if stem == "rope_freqs":
            continue
        array = np.array(tensor.data)
        if tensor.tensor_type.name == "BF16":
            array = array.view(np.uint16)
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            base = f"model.layers.{layer}."
            if part == "attn_qkv":
                rows = np.cumsum([n_head * c.head_dim, n_kv * c.head_dim])
                for name, heads, rows_of in zip("qkv", (n_head, n_kv, 0), np.split(array, rows), strict=True):
                    tensors[f"{base}self_attn.{name}_proj.{suffix}"] = halves(rows_of, heads) if heads else rows_of
                continue
            if permuted and part in ("attn_q", "attn_k"):
                array = halves(array, n_head if part == "attn_q" else n_kv)
            tensors[f"{base}{PARTS[part]}.{suffix}"] = array
        else:
            tensors[f"{TOP[stem]}.{suffix}"] = array
    hf_folder(folder, config, tensors)
    assert config_path.exists()
    return folder


@pytest.mark.parametrize("name", GGUF_CLASSES)
def test_gguf_and_safetensors_agree(tmp_path, name):
    path = FIXTURES / "tiny" / f"{name}.gguf"
    golden = np.load(path.with_suffix(".npz"))
    from_gguf = logits_of(path, golden["tokens"])
    from_hf = logits_of(as_hf(tmp_path / name, path, GGUF_CLASSES[name]), golden["tokens"])
    agree(from_hf, golden["logits"])
    assert np.abs(from_hf - from_gguf).max() < 1e-4
    if name.startswith("qwen"):                      # nothing is permuted: the very same sums
        assert np.array_equal(from_hf, from_gguf)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16], ids=["F32", "F16", "BF16"])
def test_weights_are_used_in_place(tmp_path, dtype):
    """Loading touches none of a big embedding, and a token only its own row."""
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    tensors = {name: array.astype(dtype) for name, array in tiny_tensors().items()}
    tensors["model.embed_tokens.weight"] = np.zeros((1 << 21, 8), dtype)
    tensors["lm_head.weight"] = np.zeros((1 << 21, 8), dtype)
    folder = hf_folder(tmp_path / "m", CONFIG | {"vocab_size": 1 << 21, "tie_word_embeddings": False}, tensors)
    size = os.path.getsize(folder / "model.safetensors")
    del tensors
    before = resident()
    with pantheon.load(folder) as model:
        assert model.n_vocab == 1 << 21 and size > 60_000_000
        assert resident() - before < size // 8


def test_old_and_new_spellings_agree(tmp_path):
    """Mistral with rope_theta and rope_scaling at the top, against rope_parameters."""
    source = FIXTURES / "hf" / "qwen2-yarn"
    config = json.loads((source / "config.json").read_text())
    assert config["rope_parameters"] is None and config["rope_scaling"]["type"] == "yarn"
    new = {k: v for k, v in config.items() if k not in ("rope_theta", "rope_scaling")}
    new["rope_parameters"] = {"rope_type": "yarn", "rope_theta": config["rope_theta"], "factor": 4.0,
                              "original_max_position_embeddings": 32}
    (tmp_path / "config.json").write_text(json.dumps(new))
    tokens = list(range(3, 40))
    by_new = logits_of(source / "model.safetensors", tokens, config_path=tmp_path / "config.json")
    assert np.array_equal(by_new, logits_of(source, tokens))


def test_info_of_a_folder(capsys):
    from pantheon.cli import main

    assert main(["info", "--json", str(FIXTURES / "hf" / "ternary-llama")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["arch"] == "llama"
    assert {entry["type"]: entry["tensors"] for entry in report["tensors"]} == {"U8": 14, "F32": 20}
