"""What config.json means, against transformers (tests/fixtures/config, made by tools/make_config_goldens.py)."""
from __future__ import annotations

import functools
import json
import re

import numpy as np
import pytest
from support.fixture_paths import FIXTURES
from support.safetensors_bytes import hf_folder

import pantheon

pytestmark = pytest.mark.golden

CONFIGS = FIXTURES / "config"
CASES = json.loads((CONFIGS / "cases.json").read_text())["cases"]
LOGITS = np.load(CONFIGS / "logits.npz")
N_TOKENS, STEP = 24, 3


@functools.cache
def weights(name):
    """{tensor: F16 array} of a file of the fixtures."""
    data = (CONFIGS / f"{name}.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    arrays = {}
    for key, entry in header.items():
        if key != "__metadata__":
            assert entry["dtype"] == "F16"
            first, last = entry["data_offsets"]
            arrays[key] = np.frombuffer(data[start + first:start + last], np.float16).reshape(entry["shape"])
    return arrays


def folder_of(case, path):
    prefix = "model.language_model." if "text_config" in case["config"] else "model."
    return hf_folder(path / "model", case["config"],
                     {re.sub(r"^model\.", prefix, key): array for key, array in weights(case["weights"]).items()
                      if key not in case["without"]})


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case["name"] for case in CASES])
def test_folders_are_read_as_transformers_reads_them(tmp_path, number):
    expected = LOGITS[str(number)]
    with pantheon.load(folder_of(CASES[number], tmp_path)) as model:
        state = model.new_state(n_ctx=N_TOKENS, kv_type="f32")
        got = model.prefill(range(N_TOKENS), state, all_logits=True)[STEP - 1::STEP]
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 2e-3


# ---- what is refused -------------------------------------------------------------------------------------------------

LLAMA = next(case for case in CASES if case["name"] == "LlamaForCausalLM: plain")
QWEN35 = next(case for case in CASES if case["name"] == "Qwen3_5ForCausalLM: plain")


@pytest.mark.parametrize(("case", "changes", "message"), [
    (QWEN35, {"attention_bias": True}, "key attention_bias true is not supported for Qwen3_5ForCausalLM"),
    (LLAMA, {"attention_bias": 1}, "key attention_bias is 1, not true or false"),
    (LLAMA, {"architectures": None, "model_type": "gpt2"}, "key model_type is 'gpt2'; known: llama, mistral"),
    (LLAMA, {"architectures": [], "model_type": ["llama"]}, "key architectures names no model class, and key model_ty"),
    (LLAMA, {"architectures": "LlamaForCausalLM"}, "key architectures must be a list"),
    (LLAMA, {"rope_scaling": [5]}, r"key rope_scaling is \[5\], not an object"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": [5]},
     r"key rope_parameters is \[5\], not an object"),
    (LLAMA, {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5.0}}},
     "key rope_parameters.full_attention is an object: layers with rotations of their own are not supported"),
])
def test_what_is_refused(tmp_path, case, changes, message):
    folder = folder_of(case | {"config": case["config"] | changes}, tmp_path)
    with pytest.raises(ValueError, match=message):
        pantheon.load(folder)


def test_biases_that_stay_unused_are_told(tmp_path, caplog):
    number = next(i for i, case in enumerate(CASES) if case["name"] == "LlamaForCausalLM: attention_bias false")
    with caplog.at_level("WARNING", "pantheon"), pantheon.load(folder_of(CASES[number], tmp_path)):
        pass
    assert "14 biases or norms of the file stay unused" in caplog.text


@pytest.mark.parametrize("number", range(0, len(CASES), 7), ids=[case["name"] for case in CASES[::7]])
def test_the_converter_reads_the_same(tmp_path, number):
    """A folder's GGUF file gives the logits of the folder, or the converter says what GGUF has no form for."""
    from pantheon.convert import convert

    case, path = CASES[number], tmp_path / "model.gguf"
    try:
        convert(folder_of(case, tmp_path), path, "f32", tokenizer=False)
    except ValueError as error:
        assert re.search("truncate|sliding window|_norm.weight' of shape", str(error)), error
        return
    with pantheon.load(path) as model:
        got = model.prefill(range(N_TOKENS), model.new_state(n_ctx=N_TOKENS, kv_type="f32"), all_logits=True)
    assert np.abs(got[STEP - 1::STEP] - LOGITS[str(number)]).max() < 2e-3
