import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest
from support.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    gguf,
    kv,
    tensor,
    tiny,
)

import pantheon._core as core
from pantheon._core.files.ggml_types import tensor_types
from pantheon._core.files.gguf_reader import GGUFFile

# The type table of the specification: name, number, elements and bytes of a block.
TYPES = """
F32 0 1 4|F16 1 1 2|Q4_0 2 32 18|Q4_1 3 32 20|Q5_0 6 32 22|Q5_1 7 32 24|Q8_0 8 32 34|Q8_1 9 32 36|Q2_K 10 256 84
Q3_K 11 256 110|Q4_K 12 256 144|Q5_K 13 256 176|Q6_K 14 256 210|Q8_K 15 256 292|IQ2_XXS 16 256 66|IQ2_XS 17 256 74
IQ3_XXS 18 256 98|IQ1_S 19 256 50|IQ4_NL 20 32 18|IQ3_S 21 256 110|IQ2_S 22 256 82|IQ4_XS 23 256 136|I8 24 1 1
I16 25 1 2|I32 26 1 4|I64 27 1 8|F64 28 1 8|IQ1_M 29 256 56|BF16 30 1 2|TQ1_0 34 256 54|TQ2_0 35 256 66
MXFP4 39 32 17|NVFP4 40 64 36|Q1_0 41 128 18|Q2_0 42 64 18
"""
TYPES = [(name, int(number), int(block), int(size))
         for name, number, block, size in (row.split() for row in TYPES.replace("|", "\n").split("\n") if row)]

VALUES = {
    "u8": (U8, 200), "i8": (I8, -100), "u16": (U16, 60000), "i16": (I16, -30000), "u32": (U32, 4_000_000_000),
    "i32": (I32, -2_000_000_000), "u64": (U64, 2**64 - 1), "i64": (I64, -(2**63)), "f32": (F32, 0.1), "f64": (F64, 0.1),
    "true": (BOOL, True), "false": (BOOL, False), "string": (STRING, "grüße\0 模型"), "empty": (STRING, ""),
}


@pytest.fixture
def write(tmp_path):
    def write(data, name="model.gguf"):
        path = tmp_path / name
        path.write_bytes(data)
        return path
    return write


def expected(kind, value):
    return struct.unpack("f", struct.pack("f", value))[0] if kind == F32 else value


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type(write, version):
    file = GGUFFile(write(gguf([kv(key, *value) for key, value in VALUES.items()], version=version)))
    assert file.version == version
    assert dict(file.metadata) == {key: expected(*value) for key, value in VALUES.items()}
    assert all(type(file.metadata[key]) is type(value) for key, (_, value) in VALUES.items())


@pytest.mark.parametrize("key", VALUES)
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_every_array_type(write, key, n):
    kind, value = VALUES[key]
    file = GGUFFile(write(gguf([kv("a", ARRAY, (kind, [value] * n)), kv("after", U8, 7)])))
    assert file.metadata["a"] == [expected(kind, value)] * n
    assert file.metadata["after"] == 7


def test_any_nonzero_byte_is_true(write):
    assert GGUFFile(write(gguf([kv("b", BOOL, b"\x07")]))).metadata["b"] is True


def test_metadata_is_a_mapping(write):
    metadata = GGUFFile(write(gguf([kv("a", U8, 1), kv("b", STRING, "x"), kv("ü", U8, 2)]))).metadata
    assert list(metadata) == ["a", "b", "ü"]
    assert len(metadata) == 3
    assert "ü" in metadata and "c" not in metadata and "a\0" not in metadata and 1 not in metadata
    assert metadata.get("c", 5) == 5
    for key in ("c", "a\0", "\ud800", 1):
        with pytest.raises(KeyError):
            metadata[key]


def test_vocabulary_lists_are_bytes_other_strings_are_text(write):
    tokens = [b"\xff\xfe", b"", b"a\0b", "▁the".encode()] + [b"t%d" % i for i in range(5000)]
    metadata = GGUFFile(write(gguf([
        kv("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)), kv("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])),
        kv("tokenizer.chat_templates", ARRAY, (STRING, ["tool", "ü"]))]))).metadata
    assert metadata["tokenizer.ggml.tokens"] == tokens
    assert metadata["tokenizer.ggml.merges"] == [b"a b"]
    assert metadata["tokenizer.chat_templates"] == ["tool", "ü"]


def test_text_that_is_no_utf8_names_the_key(write):
    metadata = GGUFFile(write(gguf([kv("s", STRING, b"\2\0\0\0\0\0\0\0a\xff"),
                                    kv("l", ARRAY, (STRING, [b"a", b"\xff"])), kv("fine", U8, 1)]))).metadata
    assert metadata["fine"] == 1
    with pytest.raises(ValueError, match="model.gguf: key 's': not UTF-8 at byte 1"):
        metadata["s"]
    with pytest.raises(ValueError, match="model.gguf: key 'l': string 1 is not UTF-8"):
        metadata["l"]


def test_type_table_is_the_specifications():
    forks = {36: ("I2_S", 128, 32)}
    assert tensor_types() == {number: (name, block, size) for name, number, block, size in TYPES} | forks


def test_i2_s_has_its_scale_behind_the_rows(write):
    data = bytes(range(128)) + struct.pack("<8f", 0.5, *[0] * 7)
    path = write(gguf([], [tensor("t", [256, 2], 36)], data))
    file = GGUFFile(path)
    (info,) = file.tensors
    assert (info.type, info.shape, info.nbytes) == ("I2_S", (2, 256), 160)
    assert file.tensor("t").tobytes() == data
    with pytest.raises(ValueError, match="tensor 't': needs 160 bytes"):
        GGUFFile(write(path.read_bytes()[:-1]))


@pytest.mark.parametrize("name, number, block, size", TYPES)
def test_every_tensor_type(write, name, number, block, size):
    rows, blocks = 3, 2
    nbytes = rows * blocks * size
    data = bytes(i * 7 % 251 for i in range(nbytes))
    path = write(gguf([], [tensor("t", [block * blocks, rows], number)], data))
    file = GGUFFile(path)
    (info,) = file.tensors
    assert (info.name, info.type, info.shape, info.nbytes, info.part) == ("t", name, (rows, block * blocks), nbytes, 0)
    assert path.read_bytes()[info.offset:] == data
    array = file.tensor("t")
    assert array.tobytes() == data
    assert not array.flags.writeable
    if block > 1 or name == "BF16":
        assert array.dtype == np.uint8 and array.shape == (rows, blocks * size)
    else:
        assert array.dtype == np.dtype(name.replace("F", "float").replace("I", "int")) and array.shape == (rows, blocks)
    with pytest.raises(ValueError, match="tensor 't': needs"):
        GGUFFile(write(path.read_bytes()[:-1]))


def test_shapes(write):
    file = GGUFFile(write(gguf([], [
        tensor("scalar", [], 0, 0), tensor("vector", [8], 0, 32), tensor("stack", [4, 3, 2], 0, 64),
        tensor("four", [1, 2, 1, 2], 0, 160)], bytes(range(176)))))
    assert [t.shape for t in file.tensors] == [(1,), (8,), (2, 3, 4), (2, 1, 2, 1)]
    assert [file.tensor(t.name).shape for t in file.tensors] == [t.shape for t in file.tensors]
    with pytest.raises(KeyError, match="absent"):
        file.tensor("absent")


def test_alignment_and_tensors_out_of_order(write):
    data = b"B" * 8 + bytes(56) + b"A" * 8
    path = write(gguf([kv("general.alignment", U32, 64)], [tensor("a", [8], 24, 64), tensor("b", [8], 24, 0)], data,
                      alignment=64))
    file = GGUFFile(path)
    assert [t.offset % 64 for t in file.tensors] == [0, 0]
    assert file.tensor("a").tobytes() == b"A" * 8
    assert file.tensor("b").tobytes() == b"B" * 8


def test_last_tensor_may_be_padded(write):
    assert len(GGUFFile(write(tiny() + bytes(30))).tensors) == 2


def test_file_without_tensors_needs_no_padding(write):
    file = GGUFFile(write(gguf([kv("a", U8, 1)])))
    assert file.tensors == []


def test_files_of_the_gguf_package(tmp_path):
    path = str(tmp_path / "packaged.gguf")
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_head_count_kv([2, 4])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "<|end|>"])
    writer.add_token_types([1, 1, 3])
    writer.add_eos_token_id(2)
    weights = np.random.default_rng(0).standard_normal((16, 64), dtype=np.float32)
    writer.add_tensor("norm.weight", weights[0])
    writer.add_tensor("half.weight", weights.astype(np.float16))
    packed = gguf_package.quants.quantize(weights, gguf_package.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q.weight", packed, raw_dtype=gguf_package.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with GGUFFile(path) as file:
        assert file.paths == [path]
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.attention.head_count_kv"] == [2, 4]
        assert file.metadata["tokenizer.ggml.tokens"] == [b"a", b"b", b"<|end|>"]
        np.testing.assert_array_equal(file.tensor("norm.weight"), weights[0])
        np.testing.assert_array_equal(file.tensor("half.weight"), weights.astype(np.float16))
        np.testing.assert_array_equal(file.tensor("q.weight"), packed)
        assert {t.name: t.shape for t in file.tensors}["q.weight"] == (16, 64)


def test_arrays_are_views_that_outlive_the_file(write, monkeypatch):
    monkeypatch.setenv("PANTHEON_MMAP", "mmap")
    path = write(tiny())
    file = GGUFFile(path)
    array = file.tensor("a")
    file.close()
    del file
    # The mapping is private, but pages nobody wrote to still show the file: a copy would not see this.
    with open(path, "r+b") as raw:
        raw.seek(-(34 + 32), os.SEEK_END)
        raw.write(struct.pack("<f", 42.0))
    assert array[0, 0] == 42.0
    assert array[1, 3] == 7.0
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1.0


def test_closed_file_refuses_use(write):
    file = GGUFFile(write(tiny()))
    metadata = file.metadata
    with file as entered:
        assert entered is file and not file.closed
    assert file.closed
    file.close()
    for use in (lambda: file.metadata, lambda: file.tensors, lambda: file.tensor("a"), lambda: file.paths,
                lambda: file.version, lambda: file.mapped, lambda: metadata["llama.block_count"],
                lambda: list(metadata), lambda: len(metadata), lambda: "a" in metadata, file.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert repr(file) == "<GGUFFile, closed>"


@pytest.mark.parametrize("mode", ["mmap", "read"])
def test_mapped_or_read(write, monkeypatch, mode):
    monkeypatch.setenv("PANTHEON_MMAP", mode)
    file = GGUFFile(write(tiny()))
    assert file.mapped is (mode == "mmap")
    assert file.tensor("a").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_path_with_any_characters(write):
    path = write(tiny(), "модель-模型.gguf")
    for spelling in (path, str(path), os.fsencode(path)):
        assert GGUFFile(spelling).paths == [str(path)]


def test_many_keys_and_tensors(write):
    n = 3000
    file = GGUFFile(write(gguf([kv(f"key.{i}", U32, i) for i in range(n)],
                               [tensor(f"blk.{i}.weight", [8], 0, 32 * i) for i in range(n)],
                               b"".join(struct.pack("<8f", *[i] * 8) for i in range(n)))))
    assert [file.metadata[f"key.{i}"] for i in range(n)] == list(range(n))
    assert all(file.tensor(f"blk.{i}.weight")[7] == i for i in range(n))


# ---- split sets ----

def split(no, count, total, tensors=(), data=b"", kvs=()):
    return gguf([kv("split.no", U16, no), kv("split.count", U16, count), kv("split.tensors.count", I32, total), *kvs],
                tensors, data)


def parts():
    """Three parts: metadata alone, then two tensors, then one."""
    return [split(0, 3, 3, kvs=[kv("general.architecture", STRING, "llama")]),
            split(1, 3, 3, [tensor("a", [4], 24, 0), tensor("b", [4], 24, 32)], b"aaaa" + bytes(28) + b"bbbb"),
            split(2, 3, 3, [tensor("c", [4], 24)], b"cccc")]


@pytest.fixture
def write_set(write):
    def write_set(contents, prefix="m"):
        return [write(data, f"{prefix}-{i + 1:05d}-of-{len(contents):05d}.gguf") for i, data in enumerate(contents)]
    return write_set


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_opens_the_set(write_set, named):
    paths = write_set(parts(), "модель-00001-of-00009")
    file = GGUFFile(paths[named])
    assert file.paths == [str(path) for path in paths]
    assert file.metadata["general.architecture"] == "llama"
    assert [(t.name, t.part) for t in file.tensors] == [("a", 1), ("b", 1), ("c", 2)]
    assert [file.tensor(name).tobytes() for name in "abc"] == [b"aaaa", b"bbbb", b"cccc"]
    assert [paths[t.part].read_bytes()[t.offset:][:4] for t in file.tensors] == [b"aaaa", b"bbbb", b"cccc"]


def test_split_by_the_gguf_package(tmp_path):
    writer = gguf_package.GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=2, small_first_shard=True)
    weights = {f"w{i}": np.full((2, 8), i, np.float32) for i in range(5)}
    for name, array in weights.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 4
    file = GGUFFile(tmp_path / names[2])
    assert file.metadata["general.architecture"] == "llama"
    assert [t.part for t in file.tensors] == [1, 1, 2, 2, 3]
    for name, array in weights.items():
        np.testing.assert_array_equal(file.tensor(name), array)


@pytest.mark.parametrize("gone", [0, 2])
def test_missing_part_is_named(write_set, gone):
    paths = write_set(parts())
    paths[gone].unlink()
    with pytest.raises(FileNotFoundError, match=f"part {gone + 1} of 3 .*missing.*{paths[gone].name}"):
        GGUFFile(paths[1])


def test_renamed_part(write_set, tmp_path):
    paths = write_set(parts())
    alone = paths[1].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ValueError, match="renamed.gguf: .*part 2 of 3 .*-00002-of-00003.gguf"):
        GGUFFile(alone)


def test_swapped_parts(write_set):
    paths = write_set(parts())
    paths[1].write_bytes(parts()[2])
    with pytest.raises(ValueError, match=r"m-00002-of-00003\.gguf: the file says that it is part 3 of 3"):
        GGUFFile(paths[0])
    with pytest.raises(ValueError, match=r"m-00002-of-00003\.gguf: .*must end in -00003-of-00003\.gguf"):
        GGUFFile(paths[1])


def test_part_of_another_set(write_set):
    paths = write_set(parts())
    paths[2].write_bytes(split(2, 4, 3, [tensor("c", [4], 24)], b"cccc"))
    with pytest.raises(ValueError, match=r"m-00003-of-00003\.gguf: the file says that it is part 3 of 4"):
        GGUFFile(paths[0])


def test_part_without_split_keys(write_set):
    paths = write_set(parts())
    paths[2].write_bytes(gguf([], [tensor("c", [4], 24)], b"cccc"))
    with pytest.raises(ValueError, match=r"m-00003-of-00003\.gguf: the file says that it is part 1 of 1"):
        GGUFFile(paths[0])


def test_wrong_total(write_set):
    contents = parts()
    contents[0] = split(0, 3, 4)
    with pytest.raises(ValueError, match=r"m-00001-of-00003\.gguf: .*promises 4 tensors, the 3 parts hold 3"):
        GGUFFile(write_set(contents)[1])


def test_missing_total(write_set):
    contents = parts()
    contents[0] = gguf([kv("split.no", U16, 0), kv("split.count", U16, 3)])
    with pytest.raises(ValueError, match="'split.tensors.count' is missing"):
        GGUFFile(write_set(contents)[0])


def test_same_tensor_in_two_parts(write_set):
    contents = parts()
    contents[2] = split(2, 3, 3, [tensor("a", [4], 24)], b"cccc")
    with pytest.raises(ValueError, match="m-00003-of-00003.gguf: tensor 'a' is there twice, first in .*m-00002-of"):
        GGUFFile(write_set(contents)[0])


@pytest.mark.parametrize("no, count, key", [(3, 3, "split.no"), (-1, 3, "split.no"), (0, 0, "split.count"),
                                            (0, 100_000, "split.count"), (0, -2, "split.count")])
def test_impossible_places(write, no, count, key):
    data = gguf([kv("split.no", I32, no), kv("split.count", I32, count)])
    with pytest.raises(ValueError, match=f"key '{key}' is"):
        GGUFFile(write(data, "m-00001-of-00003.gguf"))


def test_set_of_one_part_may_have_any_name(write):
    assert len(GGUFFile(write(split(0, 1, 1, [tensor("a", [4], 24)], b"aaaa"), "one.gguf")).tensors) == 1


# ---- the C face ----

C_FACE = '''
from libc.stdint cimport int64_t
from libc.string cimport strlen
from pantheon._core.files.gguf cimport (
    gguf_close,
    gguf_find,
    gguf_get_bool,
    gguf_get_float,
    gguf_get_int,
    gguf_get_str,
    gguf_open,
    gguf_tensor,
)
from pantheon._core.files.gguf_file cimport gguf_file, gguf_kv
from pantheon._core.files.gguf_reader cimport from_file
from pantheon._core.files.gguf_vocab cimport ft_vocabulary
from pantheon._core.types cimport tm_tensor

cdef class Owner:
    cdef gguf_file *f
    def __cinit__(self, path):
        self.f = gguf_open(path)
    def __dealloc__(self):
        gguf_close(self.f)
    def get_int(self, key, i):
        cdef int64_t out = -7
        cdef int found = gguf_get_int(self.f, key, i, &out)
        return found, out
    def get_float(self, key, i):
        cdef double out = -7
        cdef int found = gguf_get_float(self.f, key, i, &out)
        return found, out
    def get_bool(self, key):
        cdef bint out = False
        cdef int found = gguf_get_bool(self.f, key, &out)
        return found, bool(out)
    def get_str(self, key):
        return gguf_get_str(self.f, key)
    def find(self, key):
        cdef const char *name = key
        cdef const gguf_kv *kv
        with nogil:
            kv = gguf_find(self.f, name)
        return None if kv == NULL else (kv.key[:kv.key_len], kv.type, kv.elem_type, kv.count)
    def tensor(self, key):
        cdef const char *name = key
        cdef tm_tensor *t
        with nogil:
            t = gguf_tensor(self.f, name)
        if t == NULL:
            return None
        return t.name[:strlen(t.name)], t.type, [t.ne[d] for d in range(4)], [t.nb[d] for d in range(4)], \\
            (<const unsigned char *> t.data)[:4]
    def vocabulary(self):
        cdef ft_vocabulary *v = <ft_vocabulary *> self.f.tokenizer
        if v == NULL:
            return None
        ids = [v.bos, v.eos, v.eot, v.eom, v.unk, v.sep, v.pad, v.mask]
        return v.n_tokens, v.scores != NULL, v.types != NULL, v.n_merges, ids
    def face(self):
        return from_file(self.f, self)
'''


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """The C functions called from an extension that was compiled against the package as it is installed."""
    folder = tmp_path_factory.mktemp("c_face")
    (folder / "c_face.pyx").write_text(C_FACE)
    package = Path(core.__file__).parent
    build = f"""
        from Cython.Build import cythonize
        from setuptools import Extension, setup
        setup(script_args=["build_ext", "--inplace"], ext_modules=cythonize(
            [Extension("c_face", ["c_face.pyx"], include_dirs=[{str(package)!r}])],
            include_path=[{str(package.parent.parent)!r}], language_level=3))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(build)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        import c_face
    finally:
        sys.path.remove(str(folder))
    return c_face.Owner


def test_c_getters(owner, write):
    file = owner(str(write(gguf([kv(key, *value) for key, value in VALUES.items()] + [
        kv("layers", ARRAY, (U16, [5, 6])), kv("floats", ARRAY, (F64, [0.5])), kv("flags", ARRAY, (BOOL, [True]))]))))
    for key in ("u8", "i8", "u16", "i16", "u32", "i32", "i64"):
        assert file.get_int(key.encode(), 3) == (1, VALUES[key][1])
        assert file.get_float(key.encode(), 0) == (1, float(VALUES[key][1]))
    assert file.get_int(b"layers", 1) == (1, 6)
    assert file.get_float(b"layers", 1) == (1, 6.0)
    assert file.get_float(b"floats", 0) == (1, 0.5)
    assert file.get_float(b"f32", 0) == (1, expected(F32, 0.1))
    assert file.get_bool(b"true") == file.get_bool(b"u8") == (1, True)
    assert file.get_bool(b"false") == (1, False)
    assert file.get_str(b"string") == VALUES["string"][1]
    assert file.get_int(b"absent", 0) == file.get_float(b"absent", 0) == (0, -7)
    assert file.get_bool(b"absent") == (0, False) and file.get_str(b"absent") is None
    for get, key, message in [
            (lambda key: file.get_int(key, 2), b"layers", "has 2 elements, element 2 is needed"),
            (lambda key: file.get_int(key, -1), b"layers", "has 2 elements"),
            (lambda key: file.get_int(key, 0), b"u64", "63 bits"),
            (lambda key: file.get_int(key, 0), b"f32", "of type f32, an integer is needed"),
            (lambda key: file.get_int(key, 0), b"floats", "array of 1 f64, an integer is needed"),
            (lambda key: file.get_int(key, 0), b"true", "of type bool, an integer is needed"),
            (lambda key: file.get_float(key, 0), b"string", "of type string, a number is needed"),
            (lambda key: file.get_float(key, 0), b"flags", "array of 1 bool, a number is needed"),
            (file.get_bool, b"string", "of type string, a bool is needed"),
            (file.get_bool, b"flags", "a bool is needed"),
            (file.get_str, b"u8", "of type u8, a string is needed")]:
        with pytest.raises(ValueError, match=f"model.gguf: key '{key.decode()}': .*{message}"):
            get(key)


def test_c_views(owner, write):
    file = owner(str(write(tiny())))
    assert file.find(b"tokenizer.ggml.scores") == (b"tokenizer.ggml.scores", ARRAY, F32, 4)
    assert file.find(b"general.architecture") == (b"general.architecture", STRING, -1, 5)
    assert file.find(b"absent") is None and file.tensor(b"absent") is None
    assert file.tensor(b"a") == (b"a", 0, [4, 2, 1, 1], [4, 16, 32, 32], b"\0\0\0\0")
    assert file.tensor(b"b") == (b"b", 8, [32, 1, 1, 1], [34, 34, 34, 34], b"\0\1\2\3")


def test_c_vocabulary(owner, write):
    tokens = kv("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "c"]))
    assert owner(str(write(tiny()))).vocabulary() == (4, True, True, 0, [2, -1, -1, -1, -1, -1, -1, -1])
    assert owner(str(write(gguf([kv("tokenizer.ggml.model", STRING, "none")])))).vocabulary() is None
    ids = ["bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask"]
    data = gguf([tokens, kv("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"]))]
                + [kv(f"tokenizer.ggml.{name}_token_id", U32, i % 4) for i, name in enumerate(ids)])
    assert owner(str(write(data))).vocabulary() == (3, False, False, 1, [0, 1, 2, -1, 0, 1, 2, -1])


def test_borrowed_file(owner, write):
    face = owner(str(write(tiny()))).face()
    assert face.metadata["llama.block_count"] == 1
    array = face.tensor("a")
    face.close()
    del face
    assert array[1].tolist() == [4, 5, 6, 7]
