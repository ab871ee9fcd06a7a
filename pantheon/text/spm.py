"""SentencePiece BPE with scores, on the sentencepiece package: tokenizer.model files, and GGUF's model "llama".

The pieces are written as a SentencePiece model message by hand: the package ships its message classes for the protobuf
runtime only, which is no dependency of ours.
"""

from __future__ import annotations

from sentencepiece import SentencePieceProcessor

from pantheon.text.specials import Trust
from pantheon.text.spm_model import SpmModel, identity_specs, message
from pantheon.text.vocab import TokenType, Vocab, byte_value

SPACE = "\u2581"
_SPACE_BYTES = SPACE.encode()
_PLACEHOLDER = b"\xf4\x8f\xbf\xbf"  # U+10FFFF, before the id: a text that none of the file's can be


class ScoredBPE:
    """Encodes fragments that hold no tokens that were cut out before; ids are those of the vocabulary."""

    add_bos = True

    def __init__(self, vocab: Vocab):
        if vocab.scores is None:
            raise ValueError("tokenizer.ggml.scores is missing: a llama tokenizer cannot work without")
        self.add_space_prefix = vocab.add_space_prefix is not False
        self._space = " " if self.add_space_prefix else ""
        unknown = vocab.ids.get("unknown")
        if unknown is not None and vocab.types[unknown] == TokenType.CONTROL:
            unknown = None  # text from outside never becomes a control token, also where the file names it so
        # n is the stand-in unknown piece: characters without token or byte tokens
        self._replace = {vocab.n_tokens: unknown}
        self._processor = _processor(_model_message(vocab), "tokenizer.ggml.tokens")

    def encode(self, text: str, trusted: Trust = False, first: bool = True) -> list[int]:
        """A fragment opens the text or follows a special token: in both places a space is put before it."""
        ids = self._processor.encode(self._space + text, out_type=int)
        if self._replace.keys().isdisjoint(ids):
            return ids
        named = (self._replace.get(i, i) for i in ids)
        return [i for i in named if i is not None]

    @staticmethod
    def piece(text: bytes, kind: int) -> bytes:
        if kind == TokenType.BYTE:
            value = byte_value(text)
            if value is not None:
                return bytes([value])
        return text.replace(_SPACE_BYTES, b" ")


class SpmFile(ScoredBPE):
    """A tokenizer.model as it is: the package does the file's own normalising and finds its user-defined pieces."""


    def __init__(self, model: SpmModel, vocab: Vocab, where: str):
        """vocab: the model's tokens as their folder sees them; a piece that it calls control never comes from text."""
        n = len(model.texts)
        # Pieces without a logit are left out of text as control pieces are.
        types = [*vocab.types[:n], *[int(TokenType.CONTROL)] * (n - vocab.n_tokens)]
        types = [own if own == TokenType.UNKNOWN else kind for own, kind in zip(model.types, types, strict=True)]
        self.add_space_prefix = model.add_dummy_prefix and not model.space_suffix
        self._space = ""
        self._replace = {i: None for i, kind in enumerate(types) if kind == TokenType.UNKNOWN and i >= vocab.n_tokens}
        self._processor = _processor(message(model.texts, model.scores, types, model.specs), where)


def _processor(model_proto: bytes, where: str) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor(model_proto=model_proto)
    except (RuntimeError, UnicodeDecodeError) as e:  # its messages hold a piece's own bytes, whatever they are
        raise ValueError(f"{where}: no SentencePiece vocabulary: {' '.join(str(e)[:300].split())}") from None


def _model_message(vocab: Vocab) -> bytes:
    """A GGUF vocabulary as a SentencePiece model with one extra piece, the unknown, at index n_tokens."""
    byte_tokens = {byte_value(t) for t, k in zip(vocab.texts, vocab.types, strict=True) if k == TokenType.BYTE}
    byte_fallback = byte_tokens >= set(range(256))
    texts, types, used, seen_bytes = [], [], set(), set()
    assert vocab.scores is not None
    for i, (text, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
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
            text, kind = _PLACEHOLDER + b"%d" % i, TokenType.CONTROL
        used.add(text)
        texts.append(text)
        types.append(int(kind))
    unknown = _PLACEHOLDER + b"unk"
    specs = identity_specs(vocab.n_tokens, unknown, byte_fallback)
    return message([*texts, unknown], [*vocab.scores, 0.0], [*types, int(TokenType.UNKNOWN)], specs)


def _encodable(text: bytes) -> bool:
    if not text or b"\0" in text:
        return False
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
