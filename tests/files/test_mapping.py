import os
import shlex
import subprocess
import sys
import sysconfig
import textwrap

import pytest

from pantheon._core.files.mapping import MODES, MappedFile, is_network_filesystem


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


@pytest.mark.parametrize("mode, held", [("mmap", 1), ("read", 0)])
def test_descriptors(file, tmp_path, monkeypatch, mode, held):
    monkeypatch.setenv("PANTHEON_MMAP", mode)
    before = len(os.listdir("/proc/self/fd"))
    keep = [MappedFile(file) for _ in range(10)]
    for _ in range(10):
        with pytest.raises(IsADirectoryError):
            MappedFile(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before + 10 * held
    del keep
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("f_type, network", [
    (0x6969, True), (0x517B, True), (0xFF534D42, True), (0xFE534D42, True), (0xFF534D42 - 2**32, True),
    (0xEF53, False), (0x01021994, False), (0x65735546, False), (0x794C7630, False)])
def test_network_file_systems(f_type, network):
    assert is_network_filesystem(f_type) is network


NO_MMAP = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && protection == PROT_READ && flags == MAP_PRIVATE) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
"""


@pytest.fixture(scope="module")
def no_mmap(tmp_path_factory):
    """A library that, loaded first, lets no file be mapped for reading: what file systems without mmap do."""
    folder = tmp_path_factory.mktemp("no_mmap")
    (folder / "no_mmap.c").write_text(NO_MMAP)
    compiler = shlex.split(sysconfig.get_config_var("CC"))
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", "no_mmap.so", "no_mmap.c"], cwd=folder, check=True)
    return folder / "no_mmap.so"


def run(code, path, mode, **environment):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PANTHEON_MMAP": mode, **environment})


def preload(library):
    """The library behind those that are loaded first already: a sanitizer insists on being the first."""
    return f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()


def test_auto_reads_where_mapping_fails(file, no_mmap):
    code = """
        import sys
        from pantheon._core.files.mapping import MappedFile
        m = MappedFile(sys.argv[1])
        print(m.mapped, bytes(m) == open(sys.argv[1], "rb").read())
    """
    done = run(code, file, "auto", LD_PRELOAD=preload(no_mmap))
    assert done.stdout == "False True\n", done.stderr


def test_mmap_is_not_silently_replaced(file, no_mmap):
    code = """
        import errno, sys
        from pantheon._core.files.mapping import MappedFile
        try:
            MappedFile(sys.argv[1])
        except OSError as error:
            print(errno.errorcode[error.errno], error.filename)
    """
    done = run(code, file, "mmap", LD_PRELOAD=preload(no_mmap))
    assert done.stdout == f"ENODEV {file}\n", done.stderr


def test_too_large_to_read_is_a_memory_error(tmp_path):
    path, size = tmp_path / "large", (1 << 40) + 4096
    with open(path, "wb") as file:
        file.truncate(size)              # sparse
    code = """
        import resource, sys
        from pantheon._core.files.mapping import MappedFile
        pages = int(open("/proc/self/statm").read().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), hard))
        try:
            MappedFile(sys.argv[1])
        except MemoryError as error:
            print(error)
    """
    options = os.environ.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1"       # as malloc does
    done = run(code, path, "read", ASAN_OPTIONS=options)
    assert done.stdout == f"{path}: no memory to read {size} bytes into\n", done.stderr
