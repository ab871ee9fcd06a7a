"""GGUF files taken apart into keys and tensors, mutations of those, and the way back to bytes."""
from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace

import raw
from support.gguf_bytes import ARRAY, BOOL, F32, F64, FORMATS, I8, I16, I32, I64, STRING, U8, U16, U32, U64, string

SIGNED = (I8, I16, I32, I64)
BITS = {U8: 8, I8: 8, BOOL: 8, U16: 16, I16: 16, U32: 32, I32: 32, U64: 64, I64: 64}
SPLIT_KEYS = [b"split.no", b"split.count", b"split.tensors.count"]


@dataclass(frozen=True)
class Key:
    """name -> value of a type; payload: the value's bytes, after the type."""

    name: bytes
    kind: int
    payload: bytes

    def packed(self) -> bytes:
        return string(self.name) + struct.pack("<I", self.kind) + self.payload


@dataclass(frozen=True)
class Tensor:
    name: bytes
    dims: tuple[int, ...]
    kind: int
    offset: int
    n_dims: int | None = None      # what the file says, where it lies

    def packed(self) -> bytes:
        n = len(self.dims) if self.n_dims is None else self.n_dims
        return string(self.name) + struct.pack(f"<I{len(self.dims)}QIQ", n, *self.dims, self.kind, self.offset)


@dataclass
class File:
    keys: list[Key] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    n_keys: int | None = None      # what the header says, where it lies
    n_tensors: int | None = None
    alignment: int = 32

    def copy(self) -> File:
        return replace(self, keys=list(self.keys), tensors=list(self.tensors))

    def header(self) -> bytes:
        head = struct.pack("<4sIQQ", b"GGUF", self.version,
                           len(self.tensors) if self.n_tensors is None else self.n_tensors,
                           len(self.keys) if self.n_keys is None else self.n_keys)
        head += b"".join([entry.packed() for entry in (*self.keys, *self.tensors)])
        return head + bytes(-len(head) % self.alignment if self.tensors else 0)

    def packed(self) -> bytes:
        return self.header() + self.data

    def value(self, name: bytes) -> bytes | None:
        return next((key.payload for key in self.keys if key.name == name), None)


def parse(source: bytes) -> File:
    """A valid file's parts."""
    at = 24
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", source, 4)

    def take(form: str) -> tuple:
        nonlocal at
        values = struct.unpack_from("<" + form, source, at)
        at += struct.calcsize("<" + form)
        return values

    def take_string() -> bytes:
        nonlocal at
        (length,) = take("Q")
        at += length
        return source[at - length : at]

    def skip(kind: int) -> None:
        nonlocal at
        if kind == STRING:
            take_string()
        elif kind == ARRAY:
            inner, count = take("IQ")
            for _ in range(count):
                skip(inner)
        else:
            at += struct.calcsize(FORMATS[kind])

    file = File(version=version)
    for _ in range(n_keys):
        name, (kind,) = take_string(), take("I")
        start = at
        skip(kind)
        file.keys.append(Key(name, kind, source[start:at]))
    for _ in range(n_tensors):
        name, (n,) = take_string(), take("I")
        dims = take(f"{n}Q")
        kind, offset = take("IQ")
        file.tensors.append(Tensor(name, dims, kind, offset))
    alignment = file.value(b"general.alignment")
    file.alignment = struct.unpack("<I", alignment)[0] if alignment else 32
    file.data = source[at + -at % file.alignment :] if n_tensors else b""
    return file


def scalar(rng: random.Random, kind: int, old: bytes = b"", depth: int = 0) -> bytes:
    """A value of the type, often near the old one; depth: arrays that it is in."""
    if kind == STRING:
        before = old[8:].decode("utf-8", "replace")
        return string(raw.text(rng, [*raw.WORDS, before, before[:-1], before * 2]) if rng.random() < 0.8 else
                      rng.choice((b"\xff\xfe", b"\xed\xa0\x80", rng.randbytes(9))))
    if kind == ARRAY:
        inner = rng.choice((U8, I32, F32, STRING, BOOL, U64, ARRAY)) if depth < 4 else U8
        count = rng.choice((0, 1, 2, 4, 32)) if inner != ARRAY else rng.choice((0, 1, 2))
        return struct.pack("<IQ", inner, count) + b"".join([scalar(rng, inner, b"", depth + 1) for _ in range(count)])
    if kind in (F32, F64):
        fits = len(old) == struct.calcsize(FORMATS[kind])          # not where the type was changed before
        number = raw.real(rng, struct.unpack("<" + FORMATS[kind], old)[0] if fits else 1.0)
        return raw.f32(number) if kind == F32 else struct.pack("<d", number)
    bits = BITS.get(kind, 32)
    before = int.from_bytes(old[:8], "little")
    return raw.integer(rng, bits, False, before).to_bytes(bits // 8, "little")


def elements(payload: bytes) -> tuple[int, int, list[bytes]]:
    """Element type, count and the raw elements of an array's payload; the elements of arrays of arrays as one."""
    kind, count = struct.unpack_from("<IQ", payload)
    body = payload[12:]
    if kind == STRING:
        parts, at = [], 0
        while at < len(body):
            length = 8 + int.from_bytes(body[at : at + 8], "little")
            parts.append(body[at : at + length])
            at += length
        return kind, count, parts
    if kind not in FORMATS:
        return kind, count, [body]
    size = struct.calcsize(FORMATS[kind])
    return kind, count, [body[at : at + size] for at in range(0, len(body), size)]


def _array(rng: random.Random, payload: bytes) -> bytes:
    if len(payload) < 12:              # changed before into something else
        return scalar(rng, ARRAY)
    kind, count, parts = elements(payload)
    i = rng.randrange(len(parts)) if parts else 0
    change = rng.randrange(9)
    if change == 0:
        return struct.pack("<IQ", kind, raw.integer(rng, 64, False, count)) + payload[12:]
    if change == 1:
        return struct.pack("<I", rng.choice((*range(14), 2**31))) + payload[4:]
    if change == 2:
        parts = parts[:i]
    elif change == 3 and parts:
        parts = parts + [parts[i]] * rng.choice((1, 2, 300, 5000))
    elif change == 4 and parts:
        parts = parts[:i] + parts[i + 1 :]
    elif change == 5 and parts:
        other = rng.randrange(len(parts))
        parts = parts[:i] + [parts[other]] + parts[i + 1 :]
    else:
        for _ in range(rng.choice((1, 1, 3))):
            if parts:
                i = rng.randrange(len(parts))
                parts = parts[:i] + [scalar(rng, kind, parts[i])] + parts[i + 1 :]
    return struct.pack("<IQ", kind, len(parts) if kind in FORMATS or kind == STRING else count) + b"".join(parts)


def change_key(rng: random.Random, file: File, more: list[Key]) -> None:
    """Changes one key in place, or puts one of more in."""
    change = rng.randrange(12)
    if not file.keys or change == 0:
        file.keys.insert(rng.randrange(len(file.keys) + 1), rng.choice(more))
        return
    i = rng.randrange(len(file.keys))
    key = file.keys[i]
    if change == 1:
        del file.keys[i]
    elif change == 2:
        file.keys.append(key if rng.random() < 0.5 else replace(key, payload=scalar(rng, key.kind, key.payload)))
    elif change == 3:
        name = rng.choice((rng.choice(more).name, raw.text(rng).encode(), key.name + b"\0", b"", key.name[:-1]))
        file.keys[i] = replace(key, name=name)
    elif change == 4:
        kind = rng.choice((*range(13), 13, 2**31))
        payload = scalar(rng, kind) if rng.random() < 0.8 else key.payload
        file.keys[i] = Key(key.name, kind, payload)
    elif change == 5:
        same = [other for other in more if other.name == key.name] or more
        file.keys[i] = replace(rng.choice(same), name=key.name)
    elif change == 6 and key.kind == STRING:
        length = struct.pack("<Q", raw.integer(rng, 64, False, len(key.payload)))
        file.keys[i] = replace(key, payload=length + key.payload[8:])
    elif change == 7:
        _other_architecture(rng, file, more)
    elif key.kind == ARRAY:
        file.keys[i] = replace(key, payload=_array(rng, key.payload))
    else:
        file.keys[i] = replace(key, payload=scalar(rng, key.kind, key.payload))


def _other_architecture(rng: random.Random, file: File, more: list[Key]) -> None:
    """The same hyper-parameters under the name of another architecture."""
    old = (file.value(b"general.architecture") or b"12345678")[8:] + b"."
    known = sorted({key.payload[8:] for key in more if key.name == b"general.architecture"})
    new = rng.choice(known)
    for i, key in enumerate(file.keys):
        if key.name == b"general.architecture" and key.kind == STRING:
            file.keys[i] = replace(key, payload=string(new))
        elif key.name.startswith(old):
            file.keys[i] = replace(key, name=new + b"." + key.name.removeprefix(old))


def change_tensor(rng: random.Random, file: File, names: list[bytes]) -> None:
    """Changes one tensor info in place."""
    if not file.tensors:
        file.tensors.append(Tensor(rng.choice(names), (32,), 0, 0))
        return
    i = rng.randrange(len(file.tensors))
    tensor = file.tensors[i]
    change = rng.randrange(10)
    if change == 0:
        del file.tensors[i]
    elif change == 1:
        file.tensors.append(replace(tensor, name=rng.choice((tensor.name, rng.choice(names)))))
    elif change == 2:
        file.tensors[i] = replace(tensor, name=rng.choice((rng.choice(names), raw.text(rng).encode()[:70])))
    elif change == 3:
        file.tensors[i] = replace(tensor, kind=rng.choice((*range(45), 2**31)))
    elif change == 4:
        offset = rng.choice((raw.integer(rng, 64, False, tensor.offset), tensor.offset + file.alignment,
                             rng.choice(file.tensors).offset, len(file.data)))
        file.tensors[i] = replace(tensor, offset=offset % 2**64)
    elif change == 5:
        file.tensors[i] = replace(tensor, n_dims=raw.integer(rng, 32, False, len(tensor.dims)))
    elif change == 6:
        other = rng.randrange(len(file.tensors))
        swapped = file.tensors[other]
        file.tensors[i], file.tensors[other] = (replace(tensor, name=swapped.name), replace(swapped, name=tensor.name))
    else:
        dims = list(tensor.dims)
        if change == 7 or not dims:
            dims = rng.choice((dims[::-1], dims[1:], [*dims, 1], [1, *dims], [*dims, 1, 1, 1], []))
        else:
            at = rng.randrange(len(dims))
            dims[at] = raw.integer(rng, 64, False, dims[at])
        file.tensors[i] = replace(tensor, dims=tuple(dims))


def change_data(rng: random.Random, file: File) -> None:
    """Weights that are not finite, huge or odd; or fewer or more of them."""
    if not file.data or rng.random() < 0.3:
        file.data = raw.mutated(rng, file.data)
        return
    at = rng.randrange(len(file.data))
    size = min(rng.choice((1, 2, 4, 64, 4096)), len(file.data) - at)
    pattern = rng.choice((b"\xff", b"\0\x7c", b"\xff\x7b", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\0", b"\x7f",
                          rng.randbytes(8)))
    file.data = file.data[:at] + (pattern * size)[:size] + file.data[at + size :]


def mutated(rng: random.Random, source: File, others: list[File], more: list[Key], names: list[bytes],
            on_keys: float = 0.6) -> bytes:
    """A mutation of the file. others: to splice with; more, names: keys and names of tensors of any file; on_keys: how
    many changes go to keys."""
    file = source.copy()
    kind = rng.randrange(16)
    if kind == 0:
        head = file.header()
        return raw.mutated(rng, head + file.data, len(head)) if rng.random() < 0.8 else raw.mutated(rng, file.packed())
    if kind == 1:
        name = rng.choice(("version", "n_keys", "n_tensors"))
        old = {"version": 3, "n_keys": len(file.keys), "n_tensors": len(file.tensors)}[name]
        setattr(file, name, raw.integer(rng, 32 if name == "version" else 64, False, old))
        return file.packed()
    if kind == 2:
        other = rng.choice(others)
        part = rng.choice(("keys", "tensors", "data"))
        setattr(file, part, getattr(other, part))
        return file.packed()
    if kind == 3:
        file.keys.append(Key(b"general.alignment", U32, struct.pack("<I", raw.integer(rng, 32, False, 32))))
        return file.packed()
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        if rng.random() < on_keys:
            change_key(rng, file, more)
        elif rng.random() < 0.8:
            change_tensor(rng, file, names)
        else:
            change_data(rng, file)
    return file.packed()


def split(file: File, n: int) -> list[bytes]:
    """The file as a set of n parts."""
    ends = [*(tensor.offset for tensor in file.tensors[1:]), len(file.data)]
    share = -(-len(file.tensors) // n)
    parts = []
    for no in range(n):
        chosen = list(zip(file.tensors, ends, strict=True))[no * share : (no + 1) * share]
        start = chosen[0][0].offset if chosen else 0
        data = file.data[start : chosen[-1][1]] if chosen else b""
        keys = [Key(name, kind, struct.pack(form, value)) for name, kind, form, value in (
            (SPLIT_KEYS[0], U16, "<H", no), (SPLIT_KEYS[1], U16, "<H", n),
            (SPLIT_KEYS[2], I32, "<i", len(file.tensors)))]
        tensors = [replace(tensor, offset=tensor.offset - start) for tensor, _ in chosen]
        parts.append(File((file.keys if no == 0 else []) + keys, tensors, data).packed())
    return parts
