"""SentencePiece BPE with scores (tokenizer.ggml.model "llama").

The file's pieces are written as a SentencePiece model message by hand: the package ships its message classes for the
protobuf runtime only, which is no dependency of ours.
"""

from __future__ import annotations

import struct

from sentencepiece import SentencePieceProcessor

from pantheon.text.vocab import TokenType, Vocab, byte_value

SPACE = "\u2581"
_SPACE_BYTES = SPACE.encode()


class ScoredBPE:
    """Encodes fragments that hold no special tokens; ids are those of the vocabulary."""

    add_bos = True

    def __init__(self, vocab: Vocab):
        if vocab.scores is None:
            raise ValueError("tokenizer.ggml.scores is missing: a llama tokenizer cannot work without")
        self.add_space_prefix = vocab.add_space_prefix is not False
        self._n = vocab.n_tokens
        unknown = vocab.ids.get("unknown")
        # Text from outside never becomes a control token, also where the file names one as the unknown token.
        self._unknown = None if unknown is None or vocab.types[unknown] == TokenType.CONTROL else unknown
        try:
            self._processor = SentencePieceProcessor(model_proto=_model_message(vocab))
        except RuntimeError as e:
            raise ValueError(f"tokenizer.ggml.tokens: no SentencePiece vocabulary: {e}") from None

    def encode(self, text: str) -> list[int]:
        """A fragment opens the text or follows a special token: in both places a space is put before it."""
        if self.add_space_prefix:
            text = " " + text
        ids = self._processor.encode(text, out_type=int)
        if self._n not in ids:
            return ids
        # n is the stand-in unknown piece: characters without token or byte tokens
        unknown = [] if self._unknown is None else [self._unknown]
        return [t for i in ids for t in (unknown if i == self._n else [i])]

    @staticmethod
    def piece(text: bytes, kind: int) -> bytes:
        if kind == TokenType.BYTE:
            value = byte_value(text)
            if value is not None:
                return bytes([value])
        return text.replace(_SPACE_BYTES, b" ")


def _model_message(vocab: Vocab) -> bytes:
    """The vocabulary as a serialised SentencePiece ModelProto with one extra piece, the unknown, at index n_tokens."""
    byte_tokens = {byte_value(t) for t, k in zip(vocab.texts, vocab.types, strict=True) if k == TokenType.BYTE}
    byte_fallback = byte_tokens >= set(range(256))
    out, used, seen_bytes = [], set(), set()
    assert vocab.scores is not None
    for i, (text, kind, score) in enumerate(zip(vocab.texts, vocab.types, vocab.scores, strict=True)):
        if kind == TokenType.BYTE:
            value = byte_value(text)
            if not byte_fallback or value is None or value in seen_bytes:
                kind = TokenType.UNUSED
            else:
                seen_bytes.add(value)
                text = b"<0x%02X>" % value
        elif kind != TokenType.NORMAL:
            # Specials are cut out before; as control they can never come out of plain text or take part in merges.
            kind = TokenType.CONTROL
        if not _encodable(text) or text in used:
            text, kind = b"\xf4\x8f\xbf\xbf%d" % i, TokenType.CONTROL  # placeholder: U+10FFFF and the id
        used.add(text)
        out.append(_piece(text, score, kind))
    out.append(_piece(b"\xf4\x8f\xbf\xbfunk", 0.0, TokenType.UNKNOWN))
    minus_one = (1 << 64) - 1
    trainer = (
        _number(3, 2)  # model type BPE
        + _number(4, vocab.n_tokens + 1)
        + _number(35, int(byte_fallback))
        + _number(40, vocab.n_tokens)  # unknown; bos, eos and pad do not exist for it
        + _number(41, minus_one)
        + _number(42, minus_one)
        + _number(43, minus_one)
        + _bytes(45, b"\xf4\x8f\xbf\xbfunk")
    )
    normalizer = _bytes(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    return b"".join(out) + _bytes(2, trainer) + _bytes(3, normalizer)


def _encodable(text: bytes) -> bool:
    if not text or b"\0" in text:
        return False
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _piece(text: bytes, score: float, kind: int) -> bytes:
    return _bytes(1, _bytes(1, text) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
