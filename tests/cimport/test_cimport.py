"""The C API from another Cython extension, built in a temporary folder against the installed package."""
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import rwkv_models
from conftest import TINY

import pantheon

EXAMPLE = Path(__file__).parent / "example.pyx"
SETUP = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(name="example", ext_modules=cythonize([Extension("example", ["example.pyx"])]))
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cimport")
    (folder / "example.pyx").write_text(EXAMPLE.read_text())
    (folder / "setup.py").write_text(SETUP)
    site = str(Path(pantheon.__file__).resolve().parent.parent)
    result = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, capture_output=True,
                            text=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": site})
    assert result.returncode == 0, result.stdout + result.stderr
    built = folder / ("example" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("example", built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_greedy_tokens_equal_those_of_python(example, tiny):
    prompt = [5, 17, 99, 4, 4, 120]
    with pantheon.load(tiny) as model, model.new_state() as state:
        expected = [int(model.prefill(prompt, state).argmax())]
        while len(expected) < 8:
            expected.append(int(model.forward(expected[-1], state).argmax()))
    assert example.greedy(str(tiny), prompt, 8) == expected


def test_fields_of_the_structs(example, llama):
    facts = example.facts(str(llama))
    assert facts.pop("n_embd") == 64
    assert facts.pop("path") == str(llama)
    assert "token 4294967295" in facts.pop("refused")
    assert facts == {"pos": 0, "config": True, "arena": True, "tokenizer": True, "vision": True, "dies": 0,
                     "override": True, "forward": True, "no such arch": True, "begin": 1, "poll": -1}


def test_which_states_have_an_arena(example, tmp_path):
    """Qwen3.5-MoE and RWKV-X keep their scratch elsewhere; RWKV-X has no vocabulary in its file."""
    path = tmp_path / "rwkv7.safetensors"
    rwkv_models.write(rwkv_models.RECIPES["rwkv7"], path)
    assert [(facts["arena"], facts["tokenizer"]) for facts in (
        example.facts(str(TINY / "mixtral.gguf")), example.facts(str(TINY / "phi2.gguf")),
        example.facts(str(TINY / "qwen35moe.gguf")), example.facts(str(path)))] == [
            (True, True), (True, True), (False, True), (False, False)]


def test_dies_are_recorded(example, llama):
    assert example.placed(str(llama), [3, 0, 1]) == [3, 0, 1]


def test_admission(example, llama, monkeypatch):
    monkeypatch.delenv("QWEN35_KV_Q4", raising=False)
    facts = example.admission(str(llama), 100)
    need = facts.pop("need")
    assert need > 0 and facts.pop("held") == need
    assert facts == {"unchecked": 0, "status": 0, "fit": 100, "after": 0, "window": 128, "resident": False,
                     "worst die": -1, "kv_q4": True}
    capped = example.admission(str(llama), 1000)
    assert (capped["unchecked"], capped["status"], capped["fit"]) == (0, 1, 128)
    nonsense = example.admission(str(llama), -5)
    assert (nonsense["status"], nonsense["fit"], nonsense["held"]) == (2, 0, 0)
    for value, expected in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("QWEN35_KV_Q4", value)
        assert example.admission(str(llama), 1)["kv_q4"] is expected


@pytest.mark.parametrize(("numbers", "text"), [
    ((-1, 5, 0, 0), "-1 prompt tokens and 5 new ones: not in 0..2147483647"), ((0, 0, 0, 0), "one of them at least 1"),
    ((5, -1, 0, 0), "5 prompt tokens and -1 new ones"), ((2**31 - 1, 1, 0, 0), "2147483647 prompt tokens"),
    ((5, 5, 129, 0), "n_ctx is 129, not in 0..128"), ((5, 5, -1, 0), "n_ctx is -1, not in 0..128"),
    ((5, 5, 0, -1), "a window of -1 tokens"),
])
def test_numbers_that_no_request_can_have(example, llama, numbers, text):
    assert text in example.refused(str(llama), *numbers)
    assert example.refused(str(llama), 5, 5, 128, 7) == ""


def test_errors_are_exceptions(example, llama, tmp_path):
    with pytest.raises(FileNotFoundError):
        example.load_with(str(tmp_path / "none.gguf"))
    with pytest.raises(ValueError, match="quantize"):
        example.load_with(str(llama), quantize=True)
    with pytest.raises(ValueError, match="config_path"):
        example.load_with(str(llama), config_path="config.json")
    example.load_with(str(llama))


def test_numpy_is_not_needed_to_compile(example):
    assert np.__name__ not in EXAMPLE.read_text()


def test_the_docs_show_this_example():
    docs = Path(__file__).resolve().parents[2] / "docs" / "cython.md"
    assert f"```cython\n{EXAMPLE.read_text()}```\n" in docs.read_text()
