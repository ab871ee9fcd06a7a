"""Fuzz target of the GGUF reader, for Atheris (libFuzzer). Not a test: pytest does not run it.

    pip install atheris
    PANTHEON_SANITIZE=address,undefined PANTHEON_DEBUG=1 python setup.py build_ext --inplace
    LD_PRELOAD=$(python -c "import atheris; print(atheris.path())")/asan_with_fuzzer.so ASAN_OPTIONS=detect_leaks=0 \\
        python tests/fuzz/fuzz_gguf.py corpus/ -max_len=4096

The engine's C code is not instrumented for coverage unless it was compiled with clang and -fsanitize=fuzzer-no-link
(CC=clang CFLAGS=-fsanitize=fuzzer-no-link); without that the fuzzer is guided by the Python side alone, so start it
from a corpus: `python tests/fuzz/fuzz_gguf.py --seed corpus/` writes one. Anything but ValueError and OSError
is a finding.
"""
import contextlib
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from gguf_bytes import ARRAY, F32, STRING, U16, U32, gguf, kv, tensor, tiny

from pantheon._core.gguf_reader import GGUFFile

PATH = os.path.join(tempfile.mkdtemp(), "fuzz.gguf")


def one_input(data):
    """Opens the bytes as a file and reads all metadata and all tensors."""
    with open(PATH, "wb") as file:
        file.write(data)
    with contextlib.suppress(ValueError, OSError), GGUFFile(PATH) as model:
        for key in model.metadata:
            with contextlib.suppress(ValueError):          # text that is no UTF-8
                model.metadata[key]
        for info in model.tensors:
            model.tensor(info.name).tobytes()


def seed(folder):
    os.makedirs(folder, exist_ok=True)
    seeds = [
        tiny(),
        gguf(),
        gguf([kv("general.alignment", U32, 64), kv("a", ARRAY, (F32, [1.0]))], [tensor("t", [256, 2], 12)], bytes(288),
             alignment=64),
        gguf([kv("split.no", U16, 0), kv("split.count", U16, 1), kv("s", ARRAY, (STRING, ["a", ""]))], version=2),
    ]
    for i, data in enumerate(seeds):
        Path(folder, f"seed{i}").write_bytes(data)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seed"]:
        seed(sys.argv[2])
    else:
        import atheris

        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
