"""A mapped file that somebody cuts short: touching what is missing ends a process, so every request asks first."""
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support import rwkv_models
from support.fixture_paths import FIXTURES
from support.gguf_bytes import tiny

import pantheon
from pantheon._core.files.gguf_reader import GGUFFile
from pantheon._core.files.mapping import MappedFile
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert import convert, writer

pytestmark = pytest.mark.hostile

CUT = r"{}: the file was cut short after it was opened with \d+ bytes"


@pytest.fixture(params=["gguf", "split", "folder", "sharded", "recurrent", "rwkv"])
def model_files(request, tmp_path):
    """What to load, and the file of it that is cut: the first, or the last of several."""
    if request.param == "gguf":
        return shutil.copy(FIXTURES / "tiny" / "llama3.gguf", tmp_path), tmp_path / "llama3.gguf"
    if request.param == "split":
        return split(tmp_path), tmp_path / "m-00002-of-00002.gguf"
    if request.param == "rwkv":
        recipe = rwkv_models.RECIPES["rwkvx"]
        path = tmp_path / "m.safetensors"
        path.write_bytes(rwkv_models.safetensors_bytes(rwkv_models.tensors(recipe), recipe.dtype))
        return path, path
    name = {"folder": "mixtral", "sharded": "llama-sharded", "recurrent": "qwen35"}[request.param]
    shutil.copytree(FIXTURES / "hf" / name, tmp_path / "m")
    return tmp_path / "m", max((tmp_path / "m").glob("*.safetensors"))


def split(folder):
    """The tiny Llama in two parts: metadata and half of the tensors, then the other half."""
    import gguf

    reader = gguf.GGUFReader(FIXTURES / "tiny" / "llama3.gguf")
    half = len(reader.tensors) // 2
    for no, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        part = gguf.GGUFWriter(folder / f"m-0000{no + 1}-of-00002.gguf", "llama")
        for field in reader.fields.values() if no == 0 else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                kind = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                part.add_key_value(field.name, field.contents(), field.types[0], kind)
        part.add_uint16("split.no", no)
        part.add_uint16("split.count", 2)
        part.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            part.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        part.write_header_to_file()
        part.write_kv_data_to_file()
        part.write_tensors_to_file()
        part.close()
    return folder / "m-00001-of-00002.gguf"


def cut(path, size=100):
    os.truncate(path, size)


def refused(call, path):
    with pytest.raises(ValueError, match=CUT.format(path.name)):
        call()


@pytest.mark.parametrize("size", [0, 100, -1])
def test_every_request_says_so(model_files, size):
    path, file = model_files
    with pantheon.load(path) as model:
        state, other = model.new_state(32), model.new_state(32)
        model.prefill([1, 2, 3], state)
        assert model.mapped
        cut(file, size if size >= 0 else file.stat().st_size - 1)
        refused(lambda: model.forward(4, state), file)
        refused(lambda: model.prefill([4, 5], other), file)
        refused(lambda: model.forward_batch([4, 5], [state, other]), file)
        with model.gguf() if model.container == "gguf" else model.safetensors() as opened:
            refused(lambda: opened.tensor(opened.tensors[0].name), file)


def test_a_file_that_grows_or_goes_away_is_no_matter(model_files):
    path, file = model_files
    with pantheon.load(path) as model:
        expected = model.prefill([1, 2, 3], model.new_state(32))
        with open(file, "ab") as grows:
            grows.write(bytes(100))
        assert (model.prefill([1, 2, 3], model.new_state(32)) == expected).all()
        file.unlink()
        file.write_bytes(b"another file of that name")
        assert (model.prefill([1, 2, 3], model.new_state(32)) == expected).all()


def test_a_renamed_file_is_still_watched(model_files):
    path, file = model_files
    with pantheon.load(path) as model:
        state = model.new_state(32)
        moved = file.rename(file.with_name("moved"))
        cut(moved)
        refused(lambda: model.prefill([1, 2], state), file)


def test_metadata_of_a_file_that_is_cut_short(tmp_path):
    (tmp_path / "m.gguf").write_bytes(tiny())
    with GGUFFile(tmp_path / "m.gguf") as file:
        names, metadata = list(file.metadata), file.metadata
        cut(tmp_path / "m.gguf")
        assert list(metadata) == names and "general.architecture" in metadata and len(metadata) == len(names)
        for name in names:
            refused(lambda name=name: metadata[name], tmp_path / "m.gguf")
        assert [info.name for info in file.tensors] == ["a", "b"]
        refused(lambda: file.tensor("a"), tmp_path / "m.gguf")


@pytest.mark.parametrize("filler", [b"\xff", b"\0", b"\x80"])
def test_metadata_of_a_file_that_is_written_over(tmp_path, filler):
    """Names stay as they were; values are another file's now, or errors that name the key."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny())
    with GGUFFile(path) as file:
        names = list(file.metadata)
        with open(path, "r+b") as f:
            f.write(filler * path.stat().st_size)
        assert list(file.metadata) == names and all(name in file.metadata for name in names)
        for name in names:
            try:
                file.metadata[name]
            except ValueError as e:
                assert "m.gguf" in str(e) and name in str(e)


def test_a_mapped_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(10_000))
    mapped = MappedFile(path)
    cut(path)
    refused(lambda: memoryview(mapped), path)


def test_conversion_stops(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(FIXTURES / "hf" / "llama-sharded", tmp_path / "m"))
    file = max(folder.glob("*.safetensors"))
    written = writer.encoded

    def encoded(*args):
        cut(file)                        # while the first tensor is being written
        return written(*args)

    monkeypatch.setattr(writer, "encoded", encoded)
    refused(lambda: convert(folder, tmp_path / "out.gguf"), file)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_read_files_need_no_file(model_files, monkeypatch):
    path, file = model_files
    monkeypatch.setenv("PANTHEON_MMAP", "read")
    with pantheon.load(path) as model:
        assert not model.mapped
        expected = model.prefill([1, 2, 3], model.new_state(32))
        cut(file, 0)
        assert (model.prefill([1, 2, 3], model.new_state(32)) == expected).all()


def test_reading_is_the_same_as_mapping(model_files, monkeypatch):
    path, _ = model_files
    with pantheon.load(path) as model:
        expected = model.prefill([1, 2, 3], model.new_state(32))
    monkeypatch.setenv("PANTHEON_MMAP", "read")
    with pantheon.load(path) as model:
        np.testing.assert_array_equal(model.prefill([1, 2, 3], model.new_state(32)), expected)
        with model.gguf() if model.container == "gguf" else model.safetensors() as opened:
            assert not opened.mapped


def test_descriptors_that_the_program_closed(tmp_path):
    """A daemon closes all descriptors; then nothing is watched, and no descriptor of somebody else is closed."""
    path = shutil.copy(FIXTURES / "tiny" / "llama3.gguf", tmp_path)
    code = """
        import os, sys, pantheon
        model = pantheon.load(sys.argv[1])
        os.closerange(3, 64)
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
        state = model.new_state(8)
        model.forward(1, state)
        model.close()
        print(all(os.path.sameopenfile(n, others[0]) for n in others))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PANTHEON_MEMWATCH": "0"})
    assert done.stdout == "True\n", done.stderr


def test_no_descriptor_outlives_the_model(model_files):
    path, _ = model_files
    pantheon.load(FIXTURES / "tiny" / "llama3.gguf").close()        # memwatch and the pool have theirs from here on
    before = sorted(os.listdir("/proc/self/fd"))
    with pantheon.load(path) as model:
        state = model.new_state(8)
        assert len(os.listdir("/proc/self/fd")) > len(before)
        state.close()
    del model, state
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ValueError):
        SafetensorsFile(FIXTURES / "tiny" / "llama3.gguf")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_file_too_large_for_memory_is_not_read(tmp_path):
    """PANTHEON_MMAP=read takes memory like any request: within the limit, or not at all."""
    path = tmp_path / "m.gguf"
    shutil.copy(FIXTURES / "tiny" / "llama3.gguf", path)
    os.truncate(path, 1 << 30)           # zeros behind the tensors, which no reader minds
    code = """
        import resource, sys, pantheon
        for mode in ("read", "mmap"):
            import os
            os.environ["PANTHEON_MMAP"] = mode
            try:
                print(pantheon.load(sys.argv[1]).mapped)
            except MemoryError as e:
                print(e)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 900_000)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PANTHEON_MEMORY_LIMIT": "800M"})
    lines = done.stdout.splitlines()
    assert lines[1:] == ["True", "True"], done.stderr
    assert lines[0].startswith(f"{path}: its {1 << 30} bytes are to be read into memory") and "MMAP=mmap" in lines[0]
