"""Seeded RWKV models as files, made once a session."""

import numpy as np
import pytest
from support import rwkv_models
from support.fixture_paths import FIXTURES


@pytest.fixture(scope="session")
def rwkv_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rwkv")


@pytest.fixture
def rwkv(rwkv_folder, monkeypatch):
    """Path of a recipe's safetensors file by name, with the recipe's memory settings in the environment. With arrays:
    those in place of the seeded ones, in a file of its own."""

    def path(name, arrays=None, suffix=""):
        recipe = rwkv_models.RECIPES[name]
        for key, value in (("RWKVX_KEEP_TOKENS", recipe.keep_tokens), ("RWKVX_KEEP_RATIO", recipe.keep_ratio)):
            monkeypatch.delenv(key, raising=False)
            if value is not None:
                monkeypatch.setenv(key, str(value))
        file = rwkv_folder / f"{name}{suffix}.safetensors"
        if arrays is not None or not file.exists():
            rwkv_models.write(recipe, file, arrays)
        return file

    return path


@pytest.fixture(scope="session")
def golden():
    """Arrays of a recipe's .npz by name."""
    loaded = {}

    def arrays(name):
        if name not in loaded:
            with np.load(FIXTURES / "rwkv" / f"{name}.npz") as file:
                loaded[name] = dict(file)
        return loaded[name]

    return arrays
