"""Which real models the tests can use: the default one always, others from the folder PANTHEON_TEST_MODELS.

Chosen when tests are collected, so a test of a model that is not here does not exist instead of being skipped.
"""
import os
from pathlib import Path

DEFAULT = "SmolLM2-135M-Instruct.Q4_1.gguf"


def available(files):
    """Those of the file names that can be used."""
    folder = os.environ.get("PANTHEON_TEST_MODELS")
    return [name for name in files if name == DEFAULT or (folder and Path(folder, name).exists())]


def path_of(name, request):
    """Path of one of them; the default model is fetched into the user's cache when it is not there yet."""
    if name == DEFAULT:
        return Path(request.getfixturevalue("default_model"))
    return Path(os.environ["PANTHEON_TEST_MODELS"], name)
