"""`pantheon info`, `doctor` and `pull`."""
import json
import re

import gguf
import numpy as np
import pytest

import pantheon
from pantheon import hub
from pantheon.cli import main


@pytest.fixture
def weights(model):
    """Gives the fake model a real file: its tensors are read from there."""
    writer = gguf.GGUFWriter(model.path, "llama")
    writer.add_tensor("a", np.zeros((2, 5), np.float32))
    writer.add_tensor("b", np.zeros((100, 20), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("c", np.zeros((1, 20), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def cpu(monkeypatch):
    monkeypatch.setattr(pantheon, "cpu_info", lambda: {
        "level": "avx2", "features": ["avx2", "fma"],
        "types": {"Q4_1": "avx2", "Q2_K": "ref", "Q3_K": "ref"}}, raising=False)


def test_info_json(capsys, model, weights):
    assert main(["info", "--json", "--ctx", "512", "--ctx", "1024", "--kv", "q8_0", model.path]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["arch"] == "llama" and report["path"] == model.path and report["mapped"] is True
    assert report["config"] == model.config
    assert report["tensors"] == [
        {"type": "Q4_1", "tensors": 2, "elements": 3232, "bytes": 2020},
        {"type": "F32", "tensors": 1, "elements": 10, "bytes": 40}]
    rest = {"kv_type": "q8_0", "state_bytes": 100, "scratch_bytes": 20, "logits_bytes": 3}
    assert report["states"] == [{"n_ctx": 512, "kv_bytes": 1024, "bytes": 1147, **rest},
                                {"n_ctx": 1024, "kv_bytes": 2048, "bytes": 2171, **rest}]
    assert model.closed and model.states == []      # a price list needs no state


def test_info_text(capsys, model, weights):
    assert main(["info", model.path]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line.split() for line in out.splitlines()]
    assert [model.path] in lines
    assert ["weights", "are", "mapped"] in lines
    assert ["n_layer", "2"] in lines
    assert ["Q4_1", "2", "3,232", "2.0", "kB"] in lines
    assert ["4096", "q4_0", "4.1", "kB", "100", "B", "20", "B", "3", "B", "4.2", "kB", "6.3", "kB"] in lines
    assert not any(line.endswith(" ") for line in out.splitlines())


@pytest.mark.parametrize("mode, says", [("mmap", "mapped"), ("read", "read into memory")])
def test_info_says_how_the_file_was_opened(capsys, llama, monkeypatch, mode, says):
    monkeypatch.setenv("PANTHEON_MMAP", mode)
    assert main(["info", str(llama)]) == 0
    assert re.search(rf"weights are +{says}$", capsys.readouterr().out, re.MULTILINE)
    assert main(["info", "--json", str(llama)]) == 0
    assert json.loads(capsys.readouterr().out)["mapped"] is (mode == "mmap")


def test_doctor_json(capsys, cpu, tmp_path, monkeypatch):
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["processor"]["level"] == "avx2"
    assert report["processor"]["types"] == {"Q4_1": "avx2", "Q2_K": "ref", "Q3_K": "ref"}
    assert report["processor"]["slower_types"] == {"ref": ["Q2_K", "Q3_K"]}
    assert report["processor"]["threads"] >= 1 and report["processor"]["threads_because_of"]
    assert report["memory"]["total_bytes"] >= report["memory"]["available_bytes"] > 0
    assert report["memory"]["level"] in ("OK", "WATCH", "TIGHT", "CRITICAL") and report["memory"]["limited_by"]
    assert report["versions"]["numpy"] == __import__("numpy").__version__
    assert report["cache"]["folder"] == str(tmp_path)
    assert report["cache"]["present"].startswith("no;")
    assert report["environment"]["PANTHEON_CACHE"] == str(tmp_path)


def test_doctor_text(capsys, cpu, monkeypatch):
    monkeypatch.setattr(hub, "cached", lambda name=None: "/somewhere/model.gguf")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["level", "avx2"] in lines
    assert ["features", "avx2", "fma"] in lines
    assert ["slower", "types", "ref:", "Q2_K", "Q3_K"] in lines
    assert ["present", "/somewhere/model.gguf"] in lines


def test_pull_prints_the_path(capsys, monkeypatch, tmp_path):
    path = tmp_path / "m.gguf"
    monkeypatch.setattr(hub, "cached", lambda name=None: path)
    assert main(["pull"]) == 0
    assert capsys.readouterr() == (f"{path}\n", "")


def test_pull_fetches_with_a_word_about_it(capsys, monkeypatch, tmp_path):
    path = tmp_path / "m.gguf"
    monkeypatch.setattr(hub, "cached", lambda name=None: None)

    def fetch(name, progress):
        progress("download", 1, 2)
        return path

    monkeypatch.setattr(hub, "fetch", fetch)
    assert main(["pull", hub.DEFAULT_MODEL]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert err.startswith(f"fetching {hub.DEFAULT_MODEL} ") and "98.4 MB" in err and err.count("\n") == 1


@pytest.mark.parametrize("whole", [True, False])
def test_pull_verify(capsys, monkeypatch, tmp_path, whole):
    path = tmp_path / "m.gguf"
    present = [path]
    monkeypatch.setattr(hub, "cached", lambda name=None: present[0])

    def verify(name, progress):
        present[0] = path if whole else None
        return whole

    fetched = []
    monkeypatch.setattr(hub, "verify", verify)
    monkeypatch.setattr(hub, "fetch", lambda name, progress: fetched.append(name) or path)
    assert main(["pull", "--verify"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert ("pinned" in err) == whole and ("damaged" in err) != whole
    assert len(fetched) == (0 if whole else 1)
