"""Whether every golden number says what made it."""
import json
import re
from pathlib import Path

import pytest
from support.fixture_paths import FIXTURES

ROOT = Path(__file__).resolve().parents[1]
REFERENCES = {"tiny": "transformers", "hf": "transformers", "config": "transformers", "rwkv": "rwkv-x"}
VERSION = re.compile(r"\d+\.\d+.*")


def goldens(family):
    """Names of a family's models that have logits."""
    nested = {path.parent.name for path in (FIXTURES / family).glob("*/golden.npz")}
    return nested or {path.stem for path in (FIXTURES / family).glob("*.npz")}


def test_no_family_is_left_out():
    assert {path.relative_to(FIXTURES).parts[0] for path in FIXTURES.rglob("*.npz")} == set(REFERENCES)


@pytest.mark.parametrize("family", REFERENCES)
def test_logits_have_their_script_seed_and_versions(family):
    models = json.loads((FIXTURES / family / "manifest.json").read_text("utf-8"))["models"]
    assert models.keys() == goldens(family) != set()
    for name, entry in models.items():
        assert (ROOT / entry["script"]).is_file() and type(entry["seed"]) is int, name
        assert {"torch", "numpy", REFERENCES[family]} <= entry["versions"].keys(), name
        assert all(VERSION.fullmatch(version) for version in entry["versions"].values()), name


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("text/*.json")), ids=lambda path: path.stem)
def test_recorded_ids_have_a_version(path):
    assert VERSION.fullmatch(json.loads(path.read_text("utf-8"))["llama_cpp_python"])


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("greedy/*.json")), ids=lambda path: path.stem)
def test_recorded_answers_have_versions(path):
    recording = json.loads(path.read_text("utf-8"))
    assert VERSION.fullmatch(recording["peer"]["llama-cpp-python"]) and len(recording["model"]["sha256"]) == 64


def test_rope_tables_have_versions():
    versions = json.loads((FIXTURES / "rope_tables.json").read_text("utf-8"))["versions"]
    assert versions.keys() == {"torch", "transformers"} and all(map(VERSION.fullmatch, versions.values()))
