"""Tokenizer arrays far beyond what a vocabulary can use, in a process that has no room for lists of them."""

import struct
import subprocess
import sys

import pytest
from support.gguf_bytes import ARRAY, F32, I32, STRING, U32, gguf, kv, tensor

pytestmark = pytest.mark.hostile

N = 3_000_000
ROOM = 96 << 20  # for the file's bytes, beside what the process has; a list of N strings takes 150 MB

CHILD = f"""
import resource, sys
import numpy, pantheon.model, pantheon.text.hf     # numpy reserves address space for each core
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {ROOM}, used + {ROOM}))
what, path = sys.argv[1:]
try:
    if what == "gguf":
        pantheon.model.load(path)
    else:
        pantheon.text.hf.load_tokenizer(path, 300)
except ValueError as e:
    print(e)
"""


def message(what, path):
    done = subprocess.run([sys.executable, "-c", CHILD, what, str(path)], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def strings(n, text):
    return struct.pack("<IQ", STRING, n) + (struct.pack("<Q", len(text)) + text) * n


def model_file(**arrays):
    """The keys of a Llama model of three tokens, and its embedding."""
    keys = {"tokens": (ARRAY, strings(3, b"ab")), "token_type": (ARRAY, (I32, [1] * 3)),
            "merges": (ARRAY, strings(1, b"a b")), "scores": (ARRAY, (F32, [0.0] * 3)), **arrays}  # fmt: skip
    numbers = {"block_count": 1, "context_length": 8, "embedding_length": 32, "feed_forward_length": 32,
               "attention.head_count": 1}  # fmt: skip
    kvs = [kv("general.architecture", STRING, "llama"), kv("tokenizer.ggml.model", STRING, "gpt2"),
           *(kv(f"llama.{name}", U32, value) for name, value in numbers.items()),
           kv("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
           *(kv(f"tokenizer.ggml.{name}", kind, value) for name, (kind, value) in keys.items())]  # fmt: skip
    return gguf(kvs, [tensor("token_embd.weight", [32, 3], 0)], bytes(4 * 32 * 3))


@pytest.mark.parametrize(("key", "array"), [
    ("merges", strings(N, b"a b")), ("tokens", strings(N, b"")),
    ("suppress_tokens", struct.pack("<IQ", I32, N) + bytes(4 * N)),
])  # fmt: skip
def test_gguf(tmp_path, key, array):
    arrays = {key: (ARRAY, array)}
    if key == "tokens":
        arrays |= {name: (ARRAY, struct.pack("<IQ", kind, N) + bytes(4 * N))
                   for name, kind in (("token_type", I32), ("scores", F32))}  # fmt: skip
    path = tmp_path / "m.gguf"
    path.write_bytes(model_file(**arrays))
    said = message("gguf", path)
    assert f"{path}: key " in said and f"tokenizer.ggml.{key}" in said and str(N) in said


def test_gguf_of_rwkv(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf([kv("general.architecture", STRING, "rwkv7"), kv("tokenizer.ggml.model", STRING, "rwkv"),
                           kv("tokenizer.ggml.tokens", ARRAY, strings(N, b"ab"))]))  # fmt: skip
    said = message("gguf", path)
    assert f"{path}: key " in said and "tokenizer.ggml.tokens" in said and str(N) in said


@pytest.mark.parametrize("merges", ['"a b",', '["a","b"],'])
def test_tokenizer_json(tmp_path, merges):
    text = '{"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [' + (merges * N)[:-1] + "]}}"
    (tmp_path / "tokenizer.json").write_text(text)
    said = message("folder", tmp_path)
    assert "tokenizer.json: more than" in said and "values" in said


def test_tokenizer_model(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x03\x0a\x01a" * N)
    assert "tokenizer.model: no usable SentencePiece model: it has more than" in message("folder", tmp_path)
