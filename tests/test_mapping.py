import os
import subprocess
import sys
import textwrap

import pytest

from pantheon._core.mapping import MODES, MappedFile, is_network_filesystem


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(bytes(range(256)) * 40)
    return path


@pytest.mark.parametrize("mode, mapped", [(None, True), ("auto", True), ("mmap", True), ("read", False)])
def test_content_and_mode(file, monkeypatch, mode, mapped):
    if mode is None:
        monkeypatch.delenv("PANTHEON_MMAP", raising=False)
    else:
        monkeypatch.setenv("PANTHEON_MMAP", mode)
    m = MappedFile(file)
    assert m.mapped is mapped
    assert m.path == str(file)
    assert len(m) == 10240
    view = memoryview(m)
    assert view.readonly
    assert view == file.read_bytes()


@pytest.mark.parametrize("mode", ["", "MMAP", "no"])
def test_unknown_mode_lists_the_choices(file, monkeypatch, mode):
    monkeypatch.setenv("PANTHEON_MMAP", mode)
    with pytest.raises(ValueError, match="PANTHEON_MMAP=.*auto, mmap, read"):
        MappedFile(file)
    assert MODES == ("auto", "mmap", "read")


@pytest.mark.parametrize("name", ["модель-ü-模型.bin", "with space\nand newline", os.fsdecode(b"not-utf8-\xff.bin")])
def test_any_file_name(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"x")
    m = MappedFile(path)
    assert bytes(m) == b"x"
    assert m.path == str(path)


def test_buffer_keeps_the_mapping(file):
    view = memoryview(MappedFile(file))[5:9]
    assert bytes(view) == b"\5\6\7\x08"


def test_unlinked_file_stays_readable(file):
    m = MappedFile(file)
    file.unlink()
    assert bytes(m)[:3] == b"\0\1\2"


@pytest.mark.parametrize("mode", ["auto", "mmap", "read"])
def test_empty_file(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("PANTHEON_MMAP", mode)
    (tmp_path / "empty").touch()
    m = MappedFile(tmp_path / "empty")
    assert len(m) == 0
    assert bytes(m) == b""


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.gguf"):
        MappedFile(tmp_path / "gone.gguf")


def test_directory(tmp_path):
    with pytest.raises(IsADirectoryError) as caught:
        MappedFile(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: not a regular file"):
        MappedFile(tmp_path / "pipe")


def test_nul_in_name():
    with pytest.raises(ValueError, match="NUL"):
        MappedFile("a\0b")


def test_no_descriptor_is_left_open(file, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    keep = [MappedFile(file) for _ in range(10)]
    for _ in range(10):
        with pytest.raises(IsADirectoryError):
            MappedFile(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    del keep


@pytest.mark.parametrize("f_type, network", [
    (0x6969, True), (0x517B, True), (0xFF534D42, True), (0xFE534D42, True), (0xFF534D42 - 2**32, True),
    (0xEF53, False), (0x01021994, False), (0x65735546, False), (0x794C7630, False)])
def test_network_file_systems(f_type, network):
    assert is_network_filesystem(f_type) is network


def run_without_address_space(code, path, mode):
    """Runs code in a process whose address space may not grow while it opens the file: every mmap fails."""
    program = """
        import resource, sys
        from pantheon._core.mapping import MappedFile
        def open_limited(path):
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (4096, hard))
            try:
                return MappedFile(path)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    """
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program) + textwrap.dedent(code), path],
                          env={**os.environ, "PANTHEON_MMAP": mode}, capture_output=True, text=True, timeout=120)


def test_auto_reads_where_mapping_fails(tmp_path):
    path = tmp_path / "small"
    path.write_bytes(b"abc")
    done = run_without_address_space("m = open_limited(sys.argv[1]); print(m.mapped, bytes(m))", path, "auto")
    assert done.stdout == "False b'abc'\n", done.stderr


def test_mmap_is_not_silently_replaced(tmp_path):
    path = tmp_path / "small"
    path.write_bytes(b"abc")
    code = """
        try:
            open_limited(sys.argv[1])
        except OSError as error:
            print(error.filename)
    """
    done = run_without_address_space(code, path, "mmap")
    assert done.stdout == f"{path}\n", done.stderr


def test_too_large_to_read_is_a_memory_error(tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(1 << 40)           # sparse
    code = """
        try:
            open_limited(sys.argv[1])
        except MemoryError as error:
            print(error)
    """
    done = run_without_address_space(code, path, "auto")
    assert f"{path}: no memory to read {1 << 40} bytes into" in done.stdout, done.stderr
