"""Mutations of protocol buffer messages that know the wire format, for tokenizer.model."""
from __future__ import annotations

import random
import struct

import raw

Field = tuple[int, int, object]        # number, wire type, value: int, raw bytes, or a list of fields


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**70 - 1
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def dumps(fields: list[Field]) -> bytes:
    out = []
    for number, kind, value in fields:
        out.append(varint(number << 3 | kind))
        if isinstance(value, int):
            out.append(varint(value))
        elif kind == 2:
            data = dumps(value) if isinstance(value, list) else value
            out += (varint(len(data)), data)
        else:
            out.append(value)
    return b"".join(out)


def piece(text: bytes, score: float, kind: int) -> Field:
    return (1, 2, [(1, 2, text), (2, 5, struct.pack("<f", score)), (3, 0, kind)])


def mutated(rng: random.Random, fields: list[Field]) -> bytes:
    """A mutation of the message."""
    if rng.randrange(6) == 0:
        return raw.mutated(rng, dumps(fields))
    fields = list(fields)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(rng, fields)
    data = dumps(fields)
    return raw.mutated(rng, data, 64) if rng.randrange(12) == 0 else data


def _change(rng: random.Random, fields: list[Field]) -> None:
    if not fields:
        fields.append((1, 2, b""))
        return
    # the settings are the last two of hundreds of fields
    i = rng.randrange(len(fields)) if rng.random() < 0.6 else len(fields) - 1 - rng.randrange(min(3, len(fields)))
    number, kind, value = fields[i]
    change = rng.randrange(10)
    if isinstance(value, list) and change < 6:
        inner = list(value)
        _change(rng, inner)
        fields[i] = (number, kind, inner)
    elif change == 6:
        del fields[i]
    elif change == 7:
        fields[i:i] = [fields[i]] * rng.choice((1, 2, 300))
    elif change == 8:
        fields[i] = (rng.choice((0, 1, 2, 3, 40, 41, 42, 43, 2**29 - 1)), kind, value)
    elif change == 9:
        fields[i] = (number, rng.randrange(8), raw.integer(rng))
    elif isinstance(value, int):
        fields[i] = (number, kind, raw.integer(rng, 70, False, value))
    elif kind == 5:
        fields[i] = (number, kind, raw.f32(raw.real(rng)))
    else:
        fields[i] = (number, kind, rng.choice((raw.text(rng).encode(), b"", b"\xff\xfe", b" ", value if isinstance(
            value, bytes) else b"")))
