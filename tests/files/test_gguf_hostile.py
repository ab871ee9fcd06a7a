"""Malformed GGUF files: each must end in a one-line ValueError that names the file and the place."""
import os
import re
import resource
import struct
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.gguf_bytes import (
    ARRAY,
    F32,
    F64,
    I8,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    array,
    gguf,
    kv,
    string,
    tensor,
    tiny,
)

from pantheon._core.files.gguf_reader import GGUFFile

pytestmark = pytest.mark.hostile

HUGE = [2**31, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 1]
F32_TYPE, Q8_0_TYPE, I8_TYPE, Q4_K_TYPE = 0, 8, 24, 12


@pytest.fixture
def refused(tmp_path):
    """Writes the bytes and returns the message they are refused with."""
    def refused(data):
        path = tmp_path / "bad.gguf"
        path.write_bytes(data)
        with pytest.raises(ValueError) as caught:
            GGUFFile(path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        assert len(message) < len(str(path)) + 500
        return message.removeprefix(f"{path}: ")
    return refused


# ---- header ----

@pytest.mark.parametrize("data, message", [
    (b"", "byte 0: the file is empty"),
    (b"G", "byte 1: the file ends inside the header"),
    (b"GGUF", "byte 4: the file ends inside the header"),
    (b"GGUF" + bytes(19), "byte 23: the file ends inside the header"),
    (b"ggjt" + bytes(100), "byte 0: not a GGUF file: it begins with b'ggjt'"),
    (b"\x80\x02", "byte 0: not a GGUF file"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "this is a Git LFS pointer to a file"),
    (gguf(version=0), "byte 4: GGUF version 0"),
    (gguf(version=1), "byte 4: GGUF version 1; versions 2 and 3"),
    (gguf(version=4), "byte 4: GGUF version 4"),
    (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "byte 4: the file is of the other endianness"),
])
def test_header(refused, data, message):
    assert message in refused(data)


@pytest.mark.parametrize("count", [1, *HUGE])
def test_counts(refused, count):
    assert f"byte 8: {count} tensors cannot be in the 0 bytes left" in refused(gguf(n_tensors=count))
    assert f"byte 16: {count} metadata keys cannot be in the 0 bytes left" in refused(gguf(n_kv=count))


def test_count_is_larger_than_the_content(refused):
    assert "ends inside the name of key 2" in refused(gguf([kv("a", STRING, "x" * 50), kv("b", U8, 1)], n_kv=3))
    one = [tensor("a" * 60, [8], I8_TYPE)]
    assert "ends inside the name of tensor 1" in refused(gguf([], one, n_tensors=2, alignment=1))


# ---- metadata ----

@pytest.mark.parametrize("length", HUGE)
def test_string_lengths(refused, length):
    claim = struct.pack("<Q", length)
    assert f"the name of key 0 claims {length} bytes" in refused(gguf([claim + bytes(20)]))
    assert f"the value of key 'k' claims {length} bytes" in refused(gguf([kv("k", STRING, claim + bytes(20))]))
    strings = struct.pack("<IQ", STRING, 2) + string("ok") + claim + bytes(20)
    assert "string 1 of the value of key 'k' is longer" in refused(gguf([kv("k", ARRAY, strings)]))
    assert f"the name of tensor 0 claims {length} bytes" in refused(gguf([], [claim + bytes(30)]))


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("kind", [U8, U16, F32, U64, F64, STRING])
def test_array_lengths(refused, kind, count):
    message = refused(gguf([kv("k", ARRAY, struct.pack("<IQ", kind, count) + bytes(64))]))
    assert f"the value of key 'k' claims {count} elements" in message


def test_one_element_too_many(refused):
    assert "claims 9 elements of 8 bytes" in refused(gguf([kv("k", ARRAY, struct.pack("<IQ", U64, 9) + bytes(64))]))
    assert "claims 65 elements of 1 bytes" in refused(gguf([kv("k", ARRAY, struct.pack("<IQ", I8, 65) + bytes(64))]))


def test_string_of_more_than_64_mib(tmp_path):
    path = tmp_path / "sparse.gguf"
    with open(path, "wb") as file:
        file.write(gguf([kv("k", STRING, struct.pack("<Q", (64 << 20) + 1))]))
        file.truncate(100 << 20)
    with pytest.raises(ValueError, match="the value of key 'k' has 67108865 bytes, at most 67108864 are accepted"):
        GGUFFile(path)
    with open(path, "wb") as file:
        file.write(gguf([kv("k", ARRAY, struct.pack("<IQQ", STRING, 1, (64 << 20) + 1))]))
        file.truncate(100 << 20)
    with pytest.raises(ValueError, match="string 0 of the value of key 'k' is longer than .* 67108864 bytes"):
        GGUFFile(path)


def test_array_of_more_than_2_to_the_30(tmp_path):
    path = tmp_path / "sparse.gguf"
    with open(path, "wb") as file:
        file.write(gguf([kv("k", ARRAY, struct.pack("<IQ", U8, (1 << 30) + 1))]))
        file.truncate((1 << 30) + 1000)
    with pytest.raises(ValueError, match="has 1073741825 elements, at most 1073741824 are accepted"):
        GGUFFile(path)


@pytest.mark.parametrize("kind", [13, 255, 2**31, 2**32 - 1])
def test_unknown_value_types(refused, kind):
    assert f"the value of key 'k' has the unknown type {kind}" in refused(
        gguf([string("k") + struct.pack("<I", kind) + bytes(64)]))
    assert f"array of the unknown value type {kind}" in refused(
        gguf([kv("k", ARRAY, struct.pack("<IQ", kind, 1) + bytes(64))]))


def test_array_of_arrays(refused):
    assert "the value of key 'k' is an array of arrays" in refused(
        gguf([kv("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + array(U8, [1, 2]))]))


@pytest.mark.parametrize("key, message", [
    (b"", "the name of key 0 is empty"),
    (b"a\0b", r"the name of key 0 'a\\x00b' contains a NUL"),
    (b"\xff", r"the name of key 0 '\\\\xff' is not UTF-8"),
    (b"k" * 65536, "has 65536 bytes, at most 65535 are accepted"),
])
def test_keys(refused, key, message):
    assert re.search(message, refused(gguf([kv(key, U8, 1)])))


def test_longest_key(tmp_path):
    path = tmp_path / "long.gguf"
    path.write_bytes(gguf([kv("k" * 65535, U8, 1)]))
    assert GGUFFile(path).metadata["k" * 65535] == 1


def test_duplicate_key(refused):
    pairs = [kv(f"key.{i}", U8, 1) for i in range(100)]
    assert "key 'key.57' is there twice" in refused(gguf([*pairs, kv("key.57", STRING, "x")]))


# ---- alignment ----

@pytest.mark.parametrize("kind, value, message", [
    (U32, 0, "is 0; a power of two"), (U32, 3, "is 3; a power of two"), (U32, 48, "is 48; a power"),
    (U32, 2**21, "is 2097152; a power of two up to 1048576"), (U32, 2**31, "is 2147483648; a power"),
    (I32, 32, "must be of type u32, not i32"), (U64, 32, "must be of type u32, not u64"),
    (STRING, "32", "must be of type u32, not string"), (ARRAY, (U32, [32]), "must be of type u32, not array")])
def test_alignment(refused, kind, value, message):
    data = gguf([kv("general.alignment", kind, value)], [tensor("t", [8], I8_TYPE)], bytes(64))
    assert "key 'general.alignment' " + message in refused(data)


def test_numbers_must_be_loadable_in_place(refused):
    """With an alignment of 1 a tensor may begin anywhere, but f32 is read as f32."""
    pair = kv("general.alignment", U32, 1)
    head = len(gguf([pair], [tensor("t", [2], F32_TYPE)], alignment=1))
    data = gguf([pair], [tensor("t", [2], F32_TYPE, (1 - head) % 4)], bytes(16), alignment=1)
    assert "tensor 't': F32 data at byte" in refused(data) and "is not aligned to 4 bytes" in refused(data)


# ---- tensors ----

@pytest.mark.parametrize("dims, message", [
    ([0], "dimension 0 of tensor 't' is 0"),
    ([8, 0], "dimension 1 of tensor 't' is 0"),
    ([8, 1, 1, 0], "dimension 3 of tensor 't' is 0"),
    ([2**63], "dimension 0 of tensor 't' is 9223372036854775808"),
    ([2**64 - 1], "dimension 0 of tensor 't' is 18446744073709551615"),
    ([2**32, 2**32], "dimension 1 of tensor 't' is 4294967296"),                  # product 2^64 wraps to 0
    ([2**31, 2**31, 4], "dimension 2 of tensor 't' is 4"),                        # 2^64 again
    ([2**33, 2**31 + 1], "dimension 1 of tensor 't' is 2147483649"),              # wraps to 2^33
    ([2**62], "tensor 't': its size in bytes does not fit into 63 bits"),         # times 4 bytes
    ([2**61 - 1], "tensor 't': needs 9223372036854775804 bytes"),
])
def test_dimensions(refused, dims, message):
    assert message in refused(gguf([], [tensor("t", dims, F32_TYPE)], bytes(64)))


@pytest.mark.parametrize("n_dims", [5, 6, 255, 2**31, 2**32 - 1])
def test_too_many_dimensions(refused, n_dims):
    data = gguf([], [string("t") + struct.pack("<I", n_dims) + bytes(100)], bytes(64))
    assert f"tensor 't' has {n_dims} dimensions, at most 4" in refused(data)


@pytest.mark.parametrize("kind, hint", [
    (4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8"), (37, ""), (38, ""),
    (43, ""), (1000, ""), (2**31, ""), (2**32 - 1, "")])
def test_unknown_tensor_types(refused, kind, hint):
    message = refused(gguf([], [tensor("t", [256], kind)], bytes(1024)))
    assert f"tensor 't' has the unknown type {kind}" in message and hint in message


@pytest.mark.parametrize("kind, n, name", [(Q8_0_TYPE, 33, "Q8_0"), (Q8_0_TYPE, 1, "Q8_0"), (Q4_K_TYPE, 128, "Q4_K")])
def test_rows_are_whole_blocks(refused, kind, n, name):
    assert f"tensor 't': rows of {n} elements are no whole number of {name} blocks" in refused(
        gguf([], [tensor("t", [n, 32], kind)], bytes(8192)))


@pytest.mark.parametrize("offset", [32, 64, 2**32, 2**63, 2**64 - 32])
def test_data_past_the_end(refused, offset):
    message = refused(gguf([], [tensor("t", [8], F32_TYPE, offset)], bytes(32)))
    assert f"tensor 't': needs 32 bytes at offset {offset} of the data section, which has 32" in message
    assert "download is incomplete" in message


def test_size_past_the_end(refused):
    assert "tensor 't': needs 36 bytes at offset 0" in refused(gguf([], [tensor("t", [9], F32_TYPE)], bytes(32)))


@pytest.mark.parametrize("offset", [1, 16, 31, 2**64 - 1])
def test_offset_off_the_alignment(refused, offset):
    assert f"tensor 't': its offset {offset} is no multiple of the alignment 32" in refused(
        gguf([], [tensor("t", [8], I8_TYPE, offset)], bytes(128)))


@pytest.mark.parametrize("a, b", [((64, 0), (32, 32)), ((32, 64), (96, 0)), ((8, 32), (8, 32))])
def test_overlap(refused, a, b):
    tensors = [tensor("a", [a[0]], I8_TYPE, a[1]), tensor("b", [b[0]], I8_TYPE, b[1]), tensor("c", [8], I8_TYPE, 128)]
    assert re.search("tensor '[ab]': its data overlaps that of tensor '[ab]'", refused(gguf([], tensors, bytes(160))))


@pytest.mark.parametrize("name, message", [
    (b"", "the name of tensor 0 is empty"), (b"a\0", "contains a NUL"), (b"\xc3", "is not UTF-8"),
    (b"n" * 64, "has 64 bytes, at most 63 are accepted")])
def test_tensor_names(refused, name, message):
    assert message in refused(gguf([], [tensor(name, [8], I8_TYPE)], bytes(32)))


def test_longest_tensor_name(tmp_path):
    path = tmp_path / "long.gguf"
    path.write_bytes(gguf([], [tensor("n" * 63, [8], I8_TYPE)], bytes(range(8))))
    assert GGUFFile(path).tensor("n" * 63).tolist() == list(range(8))


def test_duplicate_tensor(refused):
    tensors = [tensor(f"t{i % 70}", [8], I8_TYPE, 32 * i) for i in range(71)]
    assert "tensor 't0' is there twice" in refused(gguf([], tensors, bytes(71 * 32)))


# ---- vocabulary ----

TOKENS = kv("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "c"]))


@pytest.mark.parametrize("key, kind, value, message", [
    ("tokens", STRING, "a", "must be an array of string, not string"),
    ("tokens", ARRAY, (U32, [1]), "must be an array of string, not an array of u32"),
    ("tokens", ARRAY, (STRING, []), "is empty"),
    ("scores", ARRAY, (U8, [1, 2, 3]), "must be an array of f32, not an array of u8"),
    ("scores", ARRAY, (F64, [1, 2, 3]), "must be an array of f32, not an array of f64"),
    ("scores", ARRAY, (STRING, ["x"] * 3), "must be an array of f32, not an array of string"),
    ("scores", F32, 1.0, "must be an array of f32, not f32"),
    ("scores", ARRAY, (F32, [1, 2]), "has 2 elements for 3 tokens"),
    ("scores", ARRAY, (I32, [1, 2, 3, 4]), "has 4 elements for 3 tokens"),
    ("token_type", ARRAY, (U32, [1, 1, 1]), "must be an array of i32, not an array of u32"),
    ("token_type", ARRAY, (I8, [1, 1, 1]), "must be an array of i32, not an array of i8"),
    ("token_type", ARRAY, (I32, []), "has 0 elements for 3 tokens"),
    ("merges", ARRAY, (I32, [1]), "must be an array of string, not an array of i32"),
    ("merges", STRING, "a b", "must be an array of string, not string"),
    ("bos_token_id", F32, 1.0, ": is of type f32, an integer is needed"),
    ("eos_token_id", STRING, "1", ": is of type string, an integer is needed"),
    ("unknown_token_id", ARRAY, (U32, [1]), "must be a single token id"),
    ("model", U32, 1, ": is of type u32, a string is needed"),
])
def test_vocabulary(refused, key, kind, value, message):
    pairs = [kv(f"tokenizer.ggml.{key}", kind, value)]
    if key != "tokens":
        pairs.insert(0, TOKENS)
    assert f"key 'tokenizer.ggml.{key}'" in refused(gguf(pairs))
    assert message in refused(gguf(pairs))


def vocabulary(token, model="llama"):
    return gguf([kv("tokenizer.ggml.model", STRING, model),
                 kv("tokenizer.ggml.tokens", ARRAY, (STRING, ["<unk>", "a", token])),
                 kv("tokenizer.ggml.token_type", ARRAY, (I32, [2, 1, 6]))])


@pytest.mark.parametrize("token", ["<0x-1>", "<0x1>", "<0x123>", "<0xg0>", "<0x0 >", "<0X00>", "<0x00", "0x00", "",
                                   "<0x+1>", "<0x00>>", " <0x00>", "<0x0\0>"])
def test_byte_tokens_have_two_hex_digits(refused, token):
    message = refused(vocabulary(token))
    assert "key 'tokenizer.ggml.tokens' has at index 2 a byte token that is not <0x00> .. <0xFF>" in message


@pytest.mark.parametrize("token, model", [("<0x00>", "llama"), ("<0xFF>", "llama"), ("<0xaf>", "llama"),
                                          ("<0x-1>", "gpt2")])
def test_proper_byte_tokens(tmp_path, token, model):
    path = tmp_path / "good.gguf"
    path.write_bytes(vocabulary(token, model))
    assert GGUFFile(path).metadata["tokenizer.ggml.tokens"][2] == token.encode()


# ---- anything ----

def test_every_prefix(refused):
    data = tiny()
    for length in range(len(data)):
        refused(data[:length])


def test_every_prefix_that_cuts_a_part(tmp_path):
    """A part that is cut short is the one that the message names."""
    split_keys = [kv("split.no", U16, 1), kv("split.count", U16, 2), kv("split.tensors.count", I32, 1)]
    first = gguf([kv("split.no", U16, 0), *split_keys[1:]])
    second = gguf(split_keys, [tensor("t", [8], I8_TYPE)], bytes(8))
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(first)
    path = tmp_path / "m-00002-of-00002.gguf"
    path.write_bytes(second)
    assert len(GGUFFile(path).tensors) == 1
    for length in range(len(second)):
        path.write_bytes(second[:length])
        with pytest.raises(ValueError, match="m-00002-of-00002.gguf: "):
            GGUFFile(tmp_path / "m-00001-of-00002.gguf")


def touch_everything(path):
    """Opens the file and reads all that it holds, as its users would."""
    with GGUFFile(path) as file:
        for key in file.metadata:
            try:
                file.metadata[key]
            except ValueError as error:
                assert "UTF-8" in str(error)
        for info in file.tensors:
            assert file.tensor(info.name).nbytes == info.nbytes
            file.tensor(info.name).tobytes()


TINY = tiny()
NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9, 10, 13, 31, 32, 36, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**62,
                           2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1])
EDITS = st.lists(st.one_of(
    st.tuples(st.just("byte"), st.integers(0, len(TINY) - 1), st.integers(0, 255)),
    st.tuples(st.just("u32"), st.integers(0, len(TINY) - 4), NUMBERS),
    st.tuples(st.just("u64"), st.integers(0, len(TINY) - 8), NUMBERS),
    st.tuples(st.just("drop"), st.integers(0, len(TINY) - 1), st.integers(1, 16)),
    st.tuples(st.just("insert"), st.integers(0, len(TINY) - 1), st.binary(min_size=1, max_size=16)),
), min_size=1, max_size=4)


def mutate(data, edits):
    data = bytearray(data)
    for kind, at, value in edits:
        if kind == "byte":
            data[at:at + 1] = bytes([value])
        elif kind == "u32":
            data[at:at + 4] = struct.pack("<I", value & 0xFFFFFFFF)
        elif kind == "u64":
            data[at:at + 8] = struct.pack("<Q", value)
        elif kind == "drop":
            del data[at:at + value]
        else:
            data[at:at] = value
    return bytes(data)


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDITS)
def test_mutations_end_in_an_error_or_a_file(tmp_path, edits):
    path = tmp_path / "mutated.gguf"
    path.write_bytes(mutate(TINY, edits))
    try:
        touch_everything(path)
    except (ValueError, OSError) as error:
        assert str(path) in str(error)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=76))
@example(b"\xff" * 76)
def test_no_small_file_does_harm(tmp_path, rest):
    path = tmp_path / "small.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + bytes(16) + rest)
    assert GGUFFile(path).tensors == []
    path.write_bytes(b"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0" + rest)
    try:
        touch_everything(path)
    except ValueError as error:
        assert str(path) in str(error)


def test_claims_cost_no_memory(tmp_path):
    """Files of at most 100 bytes with the largest claims, opened where only a few MiB can still be had."""
    claims = [gguf(n_tensors=c) for c in HUGE] + [gguf(n_kv=c) for c in HUGE]
    claims += [gguf([struct.pack("<Q", c) + bytes(20)]) for c in HUGE]
    claims += [gguf([kv("k", ARRAY, struct.pack("<IQ", kind, c) + bytes(30))])
               for c in HUGE for kind in (U8, F64, STRING)]
    claims += [gguf([], [tensor("t", [c, c], F32_TYPE)], b"") for c in HUGE]
    claims += [gguf([kv("split.count", U32, 99999), kv("split.no", U32, 1)])]
    for i, data in enumerate(claims):
        assert len(data) <= 100
        (tmp_path / f"{i}.gguf").write_bytes(data)
    program = """
        import glob, resource, sys
        from pantheon._core.files.gguf_reader import GGUFFile
        pages = int(open("/proc/self/statm").read().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (16 << 20), hard))
        refused = 0
        for path in glob.glob(sys.argv[1] + "/*.gguf"):
            try:
                GGUFFile(path)
            except ValueError:
                refused += 1
        print(refused)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), tmp_path], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PYTHONMALLOC": "malloc"})
    assert done.stdout == f"{len(claims)}\n", done.stderr


def test_refusals_leak_nothing(tmp_path):
    """Descriptors, mappings and memory of refused files are given back."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf([kv("tokenizer.ggml.tokens", ARRAY, (STRING, ["a"] * 20000)),
                           kv("tokenizer.ggml.scores", ARRAY, (U8, [1]))], [tensor("t", [8], I8_TYPE)], bytes(8)))

    def refuse(times):
        for _ in range(times):
            with pytest.raises(ValueError):
                GGUFFile(path)

    refuse(50)
    before, files = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(os.listdir("/proc/self/fd"))
    with open("/proc/self/maps") as maps:
        assert str(path) not in maps.read()
    refuse(1000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10       # KiB; a leak would be 200 MB
    assert len(os.listdir("/proc/self/fd")) == files
