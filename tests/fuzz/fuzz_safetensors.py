"""Fuzz target of the safetensors reader and of loading what it reads, for Atheris. Not a test: pytest does not run it.

How to build and start it: fuzz_gguf.py. Anything but ValueError and OSError is a finding.
"""
import contextlib
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from safetensors_bytes import CONFIG, hf_folder, raw, safetensors, tiny_tensors

import pantheon
from pantheon._core.safetensors import SafetensorsFile

FOLDER = hf_folder(Path(tempfile.mkdtemp()), CONFIG, {})


def one_input(data):
    """Opens the bytes as a file, reads all tensors, and loads them as a model."""
    path = FOLDER / "model.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(ValueError, OSError), SafetensorsFile(path) as file:
        for info in file.tensors:
            file.tensor(info.name).tobytes()
    with contextlib.suppress(ValueError, OSError), pantheon.load(FOLDER) as model:
        model.forward(1, model.new_state())


def seed(folder):
    os.makedirs(folder, exist_ok=True)
    seeds = [
        safetensors(tiny_tensors()), raw({}),
        safetensors({"a": np.zeros((2, 3), np.uint8), "b": np.zeros(0, np.float16)}, {"format": "pt"}),
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
