"""What stands in the place of a file and is none: nothing waits for it, nothing reads it without end."""
import dataclasses
import hashlib
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest
from support.fixture_paths import FIXTURES

import pantheon
from pantheon import hub
from pantheon.convert import convert
from pantheon.regular_file import open_regular, read_regular
from pantheon.text.hf import load_tokenizer

pytestmark = pytest.mark.hostile

SHARDED = FIXTURES / "hf" / "llama-sharded"
SETTINGS = ("config.json", "tokenizer_config.json", "generation_config.json")
TEXTS = ("tokenizer.json", "chat_template.jinja", "additional_chat_templates/tools.jinja")
WEIGHTS = ("model.safetensors.index.json", "model-00002-of-00003.safetensors")


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def unix_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)                # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path.name)
    finally:
        os.chdir(here)


KINDS = (fifo, endless, unix_socket, Path.mkdir)


@pytest.fixture(autouse=True)
def hanging_ends():
    """Turns a call that would wait for ever into a failure."""
    def stop(*_):
        raise AssertionError("the call waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SHARDED, tmp_path / "m")
    (tmp_path / "m" / "additional_chat_templates").mkdir()
    return tmp_path / "m"


def put(make, path):
    path.unlink(missing_ok=True)
    make(path)


def refused(call, path):
    with pytest.raises((ValueError, OSError)) as caught:
        call()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def whole(folder):
    with pantheon.load(folder) as model:
        model.tokenizer.encode("a")
        model.forward(1, model.new_state(8))


def test_the_folder_itself_is_fine(folder):
    whole(folder)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", SETTINGS + TEXTS + WEIGHTS)
def test_a_file_of_a_folder(folder, name, make):
    put(make, folder / name)
    refused(lambda: whole(folder), folder / name)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", SETTINGS + TEXTS + WEIGHTS)
def test_a_file_that_is_converted(folder, tmp_path, name, make):
    put(make, folder / name)
    refused(lambda: convert(folder, tmp_path / "out.gguf"), folder / name)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("make", KINDS)
def test_a_sentencepiece_model(tmp_path, make):
    make(tmp_path / "tokenizer.model")
    refused(lambda: load_tokenizer(str(tmp_path), 10), tmp_path / "tokenizer.model")


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors", "model", "model.safetensors.index.json"])
def test_the_model_itself(tmp_path, name, make):
    make(tmp_path / name)
    refused(lambda: pantheon.load(tmp_path / name), tmp_path / name)
    refused(lambda: pantheon.load(tmp_path / name, config_path=SHARDED / "config.json"), tmp_path / name)


@pytest.mark.parametrize("make", KINDS)
def test_paths_that_arguments_name(folder, tmp_path, make):
    make(tmp_path / "given")
    refused(lambda: pantheon.load(folder, config_path=tmp_path / "given"), tmp_path / "given")
    weights = next(folder.glob("*.safetensors"))
    refused(lambda: pantheon.load(weights, vocab_path=tmp_path / "given"), tmp_path / "given")


@pytest.mark.parametrize("make", KINDS)
def test_the_cache_of_the_hub(tmp_path, monkeypatch, make):
    content = b"a model"
    model = dataclasses.replace(next(iter(hub.KNOWN.values())), size=len(content), filename="tiny.gguf",
                                sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(hub.KNOWN, model.name, model)
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path))
    make(tmp_path / model.filename)
    assert hub.cached(model.name) is None
    (tmp_path / model.filename).rmdir() if make is Path.mkdir else (tmp_path / model.filename).unlink()
    (tmp_path / model.filename).write_bytes(content)
    make(tmp_path / (model.filename + ".sha256"))        # the stamp that says that it is whole
    assert hub.cached(model.name) == tmp_path / model.filename


@pytest.mark.parametrize("make", KINDS)
def test_the_lock_of_the_cache(tmp_path, monkeypatch, make):
    """Which a fetch writes nothing into, and follows nowhere."""
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_download", lambda *_: pytest.fail("there is no lock"))
    make(tmp_path / ".lock")
    with pytest.raises(hub.HubError, match="lock: not a regular file"):
        hub.fetch()


def test_a_link_in_the_place_of_the_lock_or_the_stamp(tmp_path, monkeypatch):
    victim, cache = tmp_path / "victim", tmp_path / "cache"
    victim.write_text("precious")
    cache.mkdir()
    monkeypatch.setenv("PANTHEON_CACHE", str(cache))
    monkeypatch.setattr(hub, "_download", lambda *_: pytest.fail("there is no lock"))
    (cache / ".lock").symlink_to(victim)
    with pytest.raises(hub.HubError, match="lock: not a regular file"):
        hub.fetch()
    model = hub.known()[0]
    (cache / f".stamp-{os.getpid()}-{threading.get_ident()}").symlink_to(victim)
    hub._stamp(cache / model.filename, model)
    assert victim.read_text() == "precious" and not (cache / f"{model.filename}.sha256").exists()


def test_templates_of_a_folder_are_bounded(folder):
    more = folder / "additional_chat_templates"
    for i in range(64):
        (more / f"t{i}.jinja").write_text("x")
    with pantheon.load(folder) as model:
        assert len(model.tokenizer.chat_templates) >= 64
    (more / "one-more.jinja").write_text("x")
    with pantheon.load(folder) as model, pytest.raises(ValueError, match="additional_chat_templates: more than 64"):
        model.tokenizer  # noqa: B018
    for i in range(63):
        (more / f"t{i}.jinja").unlink()
    (more / "t63.jinja").write_bytes(b"x" * (1 << 24))
    with pantheon.load(folder) as model, pytest.raises(ValueError, match="jinja: more than the"):
        model.tokenizer  # noqa: B018


# ---- the opener itself -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make", KINDS)
def test_open_regular(tmp_path, make):
    make(tmp_path / "x")
    before = os.listdir("/proc/self/fd")
    refused(lambda: open_regular(tmp_path / "x"), tmp_path / "x")
    assert os.listdir("/proc/self/fd") == before


def test_the_size_is_what_is_read(tmp_path):
    text = read_regular("/proc/self/status", 1 << 20)
    assert os.stat("/proc/self/status").st_size == 0 and text.startswith(b"Name:")
    with pytest.raises(ValueError, match=r"/proc/self/status: more than the 5 bytes"):
        read_regular("/proc/self/status", 5)
    (tmp_path / "five").write_bytes(b"12345")
    assert read_regular(os.fsencode(tmp_path / "five"), 5) == b"12345"
    with pytest.raises(ValueError, match="five: more than the 4 bytes"):
        read_regular(tmp_path / "five", 4)


def test_names():
    with pytest.raises(ValueError, match="NUL"):
        open_regular("a\0b")
    with pytest.raises(FileNotFoundError, match="none"):
        open_regular(b"/none")
