"""Builds GGUF files byte by byte, correct ones and, for the hostile tests, any others."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(scalar(kind, value) for value in values)


def kv(key, kind, value):
    """One metadata pair; value is the scalar, or (element type, elements) for ARRAY, or the value's raw bytes."""
    if not isinstance(value, bytes):
        value = array(*value) if kind == ARRAY else scalar(kind, value)
    return string(key) + struct.pack("<I", kind) + value


def tensor(name, dims, kind, offset=0):
    """One tensor info; dims as in the file, fastest first."""
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(kvs=(), tensors=(), data=b"", *, version=3, n_kv=None, n_tensors=None, alignment=32):
    """A whole file; the counts may lie."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors) if n_tensors is None else n_tensors,
                       len(kvs) if n_kv is None else n_kv)
    head += b"".join(kvs) + b"".join(tensors)
    if tensors:
        head += bytes(-len(head) % alignment)
    return head + data


def tiny():
    """A small valid file with metadata of several kinds and two tensors; its last byte is tensor data."""
    return gguf(
        [kv("general.architecture", STRING, "llama"), kv("llama.block_count", U32, 1),
         kv("tokenizer.ggml.model", STRING, "llama"),
         kv("tokenizer.ggml.tokens", ARRAY, (STRING, ["<unk>", "<0x0A>", "a", "b"])),
         kv("tokenizer.ggml.scores", ARRAY, (F32, [0.0, 0.0, -1.0, -2.0])),
         kv("tokenizer.ggml.token_type", ARRAY, (I32, [2, 6, 1, 1])),
         kv("tokenizer.ggml.bos_token_id", U32, 2)],
        [tensor("a", [4, 2], 0, 0), tensor("b", [32], 8, 32)],
        struct.pack("<8f", *range(8)) + bytes(range(34)))
