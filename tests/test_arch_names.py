"""Nothing outside of arch/ and the registry names an architecture: what differs is a field or a function of its row."""
import re
from pathlib import Path

import pytest

from pantheon._core.registry import HF_CLASSES

ROOT = Path(__file__).resolve().parents[1] / "pantheon"
HOME = ("_core/arch/", "_core/registry.")
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")
                 if path.suffix in (".py", ".pyx", ".pxd", ".pyi"))
SOURCES = [name for name in SOURCES if not name.startswith(HOME)]

FAMILIES = ("llama", "mistral", "mixtral", "qwen", "phi", "bitnet", "rwkv", "rwkvx")
NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(FAMILIES)})(?![a-z])\w*|\bPN_ARCH_[A-Z]\w*|\b(?:{'|'.join(HF_CLASSES)})\b"
                  r"|(?<![A-Z])(?:QWEN|RWKV)\w*_\w+")
# What begins with these may stand in the files that begin with those, and why.
EXCEPTIONS = [
    # the C API: enumerators, and names that its specification fixes
    ("_core/types.pxd", "PN_ARCH_"), ("__init__.pxd", "PN_ARCH_"), ("_core/engine.p", "PN_ARCH_COUNT"),
    ("_core/types.pxd", "QWEN35MOE_MAX_SEQ_CAP"), ("__init__.pxd", "QWEN35MOE_MAX_SEQ_CAP"),
    ("_core/memory/environment.p", "QWEN35"), ("_core/engine.pyx", "llama_load_hf_tokenizer"),
    ("_core/layers/", "llama_kv_cache"),
    # kernels that one architecture alone has
    ("_core/kernels/", "rwkv7"), ("_core/kernels/", "RWKV_HEAD"),
    ("_core/probes/", "rwkv7"), ("_core/probes/", "RWKV_HEAD"),
    # rotations and quantisers that are called after a model, in every file that has them
    ("_core/layers/rope", "llama3"), ("_core/load/", "llama3"), ("convert/rope", "llama3"),
    ("_core/load/config_hf", "bitnet"),
    # chat formats, kinds of tokenizers
    ("_core/chat_styles.py", ""), ("_core/files/gguf_vocab", ""), ("text/", ""), ("text_model.py", "rwkv"),
    ("convert/vocabulary", ""), ("convert/__init__.py", "llama"),
    # a folder without config.json is converted its own way
    ("convert/", "rwkv"),
    # what a user reads
    ("cli/options.py", "qwen35moe"), ("bench.py", "rwkv"),
]


def code_of(text):
    """A source without its comments and docstrings."""
    text = re.sub(r'"""[\s\S]*?"""', "", text)
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|#[^\n]*', lambda found: found[1] or "", text)


def named(file):
    code = code_of((ROOT / file).read_text("utf-8"))
    return sorted({found[0] for found in NAME.finditer(code)
                   if not any(file.startswith(where) and found[0].startswith(what) for where, what in EXCEPTIONS)})


@pytest.mark.parametrize("file", SOURCES)
def test_no_architecture_is_named(file):
    assert named(file) == []


@pytest.mark.parametrize("code", [
    "if arch == 'qwen3moe':", "ops.arch == PN_ARCH_PHI2", '"Phi3ForCausalLM"', "pn_rwkvx_load(",
    "getenv(b'QWEN35_MAX_SEQ')", "from pantheon._core.arch.llama.ops cimport x",
])
def test_a_name_is_found(code):
    assert NAME.search(code_of(code + "  # llama"))


def test_comments_are_no_code():
    assert NAME.search(code_of('"""As llama."""\nx = "#"  # of qwen2\n')) is None


@pytest.mark.parametrize(("where", "what"), EXCEPTIONS)
def test_every_exception_is_needed(where, what):
    found = [word for file in SOURCES if file.startswith(where)
             for word in (m[0] for m in NAME.finditer(code_of((ROOT / file).read_text("utf-8"))))
             if word.startswith(what)]
    assert found
