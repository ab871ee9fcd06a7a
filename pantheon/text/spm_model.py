"""Reading a SentencePiece tokenizer.model: its pieces, and what its encoder does around them.

The file is a protocol buffer message; section 10.3 of the tokenizer notes has the fields. The package can read it too,
but does not tell the type of the model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pantheon.regular_file import read_regular

_MAX_BYTES = 256 << 20
_BPE = 2


@dataclass(frozen=True)
class SpmModel:
    """Index of the per-piece fields is the id. Ids are None where the model has no such token."""

    texts: list[bytes]
    scores: list[float]
    types: list[int]  # numbers as in TokenType
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    add_dummy_prefix: bool


def read_spm_model(path: Path) -> SpmModel:
    """ValueError naming the file when it is no SentencePiece model of type BPE."""
    data = read_regular(path, _MAX_BYTES)
    try:
        return _parse(data)
    except (ValueError, IndexError, struct.error) as e:
        raise ValueError(f"{path}: no usable SentencePiece model: {e}") from None


def _parse(data: bytes) -> SpmModel:
    texts, scores, types = [], [], []
    trainer: dict[int, int] = {}
    prefix = True
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            text, score, kind = b"", 0.0, 1
            for inner, part in _fields(value):
                if inner == 1 and isinstance(part, bytes):
                    text = part
                elif inner == 2 and isinstance(part, float):
                    score = part
                elif inner == 3 and isinstance(part, int):
                    kind = part
            texts.append(text)
            scores.append(score)
            types.append(kind)
        elif field == 2 and isinstance(value, bytes):
            trainer |= {inner: part for inner, part in _fields(value) if isinstance(part, int)}
        elif field == 3 and isinstance(value, bytes):
            prefix = bool(dict(_fields(value)).get(3, 1))
    if not texts:
        raise ValueError("there are no pieces in it")
    if trainer.get(3, 1) != _BPE:
        raise ValueError("its type is not BPE, the only one that is supported")

    def special(field: int, default: int) -> int | None:
        value = trainer.get(field, default)
        return value if 0 <= value < len(texts) else None

    return SpmModel(texts, scores, types, special(41, 1), special(42, 2), special(40, 0), prefix)


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Fields of one message in order: (number, value)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 2:
            length, at = _varint(data, at)
            if length > len(data) - at:
                raise ValueError("a field is longer than the file")
            yield key >> 3, data[at : at + length]
            at += length
        elif kind == 5:
            yield key >> 3, struct.unpack_from("<f", data, at)[0]
            at += 4
        elif kind == 1:
            yield key >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            raise ValueError(f"field type {kind} is unknown")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number has more than ten bytes")
