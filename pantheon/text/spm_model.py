"""SentencePiece models as messages: reading tokenizer.model, and writing what the sentencepiece package is to load.

A model is a protocol buffer message, ModelProto of sentencepiece_model.proto in SentencePiece's sources: pieces, then
what its trainer and its normaliser were told. The package can read it too, but does not tell the type of the model.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pantheon.regular_file import read_regular

_MAX_BYTES = 64 << 20
_MAX_FIELDS = 1 << 16  # of a message that is no piece
_MAX_RULE_BYTES = 1 << 10  # that the normaliser may put for one character; NFKC's longest has 33
_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_BPE = 2


@dataclass(frozen=True)
class SpmModel:
    """Index of the per-piece fields is the id. Ids are None where the model has no such token.

    add_dummy_prefix, space_suffix  a blank is put before a text, or instead behind it
    changes                         what else is done to a text before it is split into pieces: names of rules and
                                    options, such as nmt_nfkc and remove_extra_whitespaces
    specs                           what the trainer and the normaliser were told, serialised
    """

    texts: list[bytes]
    scores: list[float]
    types: list[int]  # numbers as in TokenType
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    add_dummy_prefix: bool
    space_suffix: bool
    changes: tuple[str, ...]
    specs: bytes


def read_spm_model(path: Path, max_pieces: int) -> SpmModel:
    """ValueError naming the file when it is no SentencePiece model of type BPE, or has more than max_pieces."""
    data = read_regular(path, _MAX_BYTES)
    try:
        return _parse(data, max_pieces)
    except (ValueError, IndexError, struct.error) as e:
        raise ValueError(f"{path}: no usable SentencePiece model: {e}") from None


def _parse(data: bytes, max_pieces: int) -> SpmModel:
    texts: list[bytes] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, int | bytes] = {}
    specs = bytearray()
    for field, value, start, end in _fields(data):
        if not isinstance(value, bytes):
            continue
        if field in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            specs += data[start:end]
        if field == _PIECE:
            if len(texts) == max_pieces:
                raise ValueError(f"it has more than {max_pieces} pieces")
            text, score, kind = b"", 0.0, 1
            for inner, part, _, _ in _fields(value):
                if inner == 1 and isinstance(part, bytes):
                    text = part
                elif inner == 2 and isinstance(part, float):
                    score = part
                elif inner == 3 and isinstance(part, int):
                    kind = part
            texts.append(text)
            scores.append(score)
            types.append(kind)
        elif field == _TRAINER:
            _keep(value, (3, 24, 40, 41, 42), int, trainer)
        elif field == _NORMALIZER:
            _keep(value, (3, 4), int, normalizer)
            _keep(value, (1, 2), bytes, normalizer)
    if not texts:
        raise ValueError("there are no pieces in it")
    if trainer.get(3, 1) != _BPE:
        raise ValueError("its type is not BPE, the only one that is supported")
    charsmap, rules = normalizer.get(2, b""), normalizer.get(1, b"")
    assert isinstance(charsmap, bytes) and isinstance(rules, bytes)
    _check_rules(charsmap)
    done = {
        rules.decode("utf-8", "replace")[:40] or "rules": bool(charsmap),
        "remove_extra_whitespaces": bool(normalizer.get(4, 1)),
        "treat_whitespace_as_suffix": bool(trainer.get(24, 0)),
    }

    def special(field: int, default: int) -> int | None:
        value = trainer.get(field, default)
        return value if 0 <= value < len(texts) else None

    return SpmModel(texts, scores, types, special(41, 1), special(42, 2), special(40, 0), bool(normalizer.get(3, 1)),
                    bool(trainer.get(24, 0)), tuple(name for name, is_done in done.items() if is_done), bytes(specs))


def _keep(data: bytes, wanted: Collection[int], kind: type, into: dict) -> None:
    for n, (field, value, _, _) in enumerate(_fields(data)):
        if n == _MAX_FIELDS:
            raise ValueError(f"a message in it has more than {_MAX_FIELDS} fields")
        if field in wanted and isinstance(value, kind):
            into[field] = value


def _check_rules(charsmap: bytes) -> None:
    """The package checks the tree of a normaliser's rules, but not how much text a rule may make of a character."""
    if not charsmap:
        return
    (size,) = struct.unpack_from("<I", charsmap)
    if any(len(text) > _MAX_RULE_BYTES for text in charsmap[4 + size :].split(b"\0")):
        raise ValueError(f"its normaliser makes more than {_MAX_RULE_BYTES} bytes of one character")


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes, int, int]]:
    """Fields of one message in order: (number, value, where it starts, where it ends)."""
    at = 0
    while at < len(data):
        start = at
        key, at = _varint(data, at)
        kind = key & 7
        value: int | float | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            if length > len(data) - at:
                raise ValueError("a field is longer than the file")
            value = data[at : at + length]
            at += length
        elif kind == 5:
            value = struct.unpack_from("<f", data, at)[0]
            at += 4
        elif kind == 1:
            value = struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            raise ValueError(f"field type {kind} is unknown")
        yield key >> 3, value, start, at


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


def message(texts: list[bytes], scores: list[float], types: list[int], specs: bytes) -> bytes:
    """A serialised model of these pieces, whose trainer and normaliser are in specs, serialised."""
    pieces = (
        _bytes(_PIECE, _bytes(1, text) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        for text, score, kind in zip(texts, scores, types, strict=True)
    )
    return b"".join(pieces) + specs


def identity_specs(unk_id: int, unk_piece: bytes, byte_fallback: bool) -> bytes:
    """Specs of a BPE model that takes text as it is; unk_id, the last piece, is the only special one it has."""
    minus_one = (1 << 64) - 1
    trainer = (
        _number(3, _BPE)
        + _number(4, unk_id + 1)
        + _number(35, int(byte_fallback))
        + _number(40, unk_id)  # bos, eos and pad do not exist for it
        + _number(41, minus_one)
        + _number(42, minus_one)
        + _number(43, minus_one)
        + _bytes(45, unk_piece)
    )
    normalizer = _bytes(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    return _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, normalizer)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _encode_varint(field << 3) + _encode_varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | 2) + _encode_varint(len(value)) + value
