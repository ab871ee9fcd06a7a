"""BPE by merges (tokenizer.ggml.model "gpt2" and "gemma4") on the tokenizers package."""

from __future__ import annotations

import logging
import re

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as _Backend

from pantheon.text.pretokenizers import TABLE, PreTokenizer, find_pretokenizer
from pantheon.text.specials import Trust
from pantheon.text.vocab import TokenType, Vocab, byte_value

log = logging.getLogger("pantheon")

_SPACE = "\u2581"
_LINE_ENDS = re.compile("\n+")


def _byte_alphabet() -> dict[str, int]:
    """Printable code point -> byte: printable bytes stand for themselves, the other 68 for U+0100 onwards."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    shown = set(printable)
    for n, b in enumerate(b for b in range(256) if b not in shown):
        table[chr(256 + n)] = b
    return table


BYTE_OF_CHAR = _byte_alphabet()
# Types whose texts plain text may never become, whatever merges say.
_NEVER_FROM_TEXT = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED)


class ByteBPE:
    """Byte-level: encodes fragments that hold no special tokens; ids are those of the vocabulary."""

    add_space_prefix = False

    def __init__(self, vocab: Vocab):
        rules = find_pretokenizer(vocab.pre)
        self.add_bos = rules.add_bos
        backend = _Backend(_model(vocab, ignore_merges=rules.ignore_merges))
        if rules.nfc:
            backend.normalizer = normalizers.NFC()
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*_splits(rules), byte_level])
        self._backend = backend

    def encode(self, text: str, trusted: Trust = False, first: bool = True) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    @staticmethod
    def piece(text: bytes, kind: int) -> bytes:
        """Bytes that a normal token stands for; characters outside the byte alphabet stand for themselves."""
        try:
            chars = text.decode("utf-8")
        except UnicodeDecodeError:
            return text
        try:
            return bytes([BYTE_OF_CHAR[c] for c in chars])
        except KeyError:
            return b"".join(bytes([BYTE_OF_CHAR[c]]) if c in BYTE_OF_CHAR else c.encode() for c in chars)


class TextBPE:
    """On characters, with U+2581 for a blank and byte tokens for characters that are none."""

    add_bos = add_space_prefix = False

    def __init__(self, vocab: Vocab):
        rules = TABLE["gemma4"] if vocab.model == "gemma4" else find_pretokenizer(vocab.pre)
        backend = _Backend(_model(vocab, byte_fallback=True))
        backend.normalizer = normalizers.Replace(" ", _SPACE)
        backend.pre_tokenizer = pre_tokenizers.Sequence(list(_splits(rules)))
        self._backend = backend
        self._whole = {text: i for text, i in _usable_ids(vocab).items() if not text.strip("\n")}
        if not rules.whole_line_ends:
            self._whole = {}

    def encode(self, text: str, trusted: Trust = False, first: bool = True) -> list[int]:
        ids: list[int] = []
        at = 0
        for run in _LINE_ENDS.finditer(text):
            if run[0] in self._whole:
                ids += self._encode_piece(text[at : run.start()])
                ids.append(self._whole[run[0]])
                at = run.end()
        return ids + self._encode_piece(text[at:])

    def _encode_piece(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids if text else []

    @staticmethod
    def piece(text: bytes, kind: int) -> bytes:
        value = byte_value(text) if kind == TokenType.BYTE else None
        return text.replace(_SPACE.encode(), b" ") if value is None else bytes([value])


def bpe_codec(vocab: Vocab) -> ByteBPE | TextBPE:
    """The codec of a "gpt2" vocabulary, by its pre-tokenizer."""
    rules = TABLE.get(vocab.pre or "")
    return TextBPE(vocab) if rules is not None and rules.characters else ByteBPE(vocab)


def _splits(rules: PreTokenizer) -> list[pre_tokenizers.Split]:
    return [pre_tokenizers.Split(Regex(r), behavior="isolated") for r in rules.regexes]


def _model(vocab: Vocab, **options: bool) -> models.BPE:
    if vocab.merges is None:
        raise ValueError(f"tokenizer.ggml.merges is missing: a {vocab.model} tokenizer cannot work without")
    ids = _usable_ids(vocab)
    merges, dropped = _usable_merges(vocab.merges, ids)
    if dropped:
        log.warning("%d of %d merges name unknown tokens: ignored", dropped, len(vocab.merges))
    return models.BPE(ids, merges, **options)


def _usable_ids(vocab: Vocab) -> dict[str, int]:
    """Ids by text of the tokens that plain text may become."""
    ids: dict[str, int] = {}
    for i, (text, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
        if kind in _NEVER_FROM_TEXT or not text:
            continue
        try:
            ids.setdefault(text.decode("utf-8"), i)
        except UnicodeDecodeError:
            continue  # no text maps to it; it can still be decoded
    return ids


def _usable_merges(raw: list[bytes], ids: dict[str, int]) -> tuple[list[tuple[str, str]], int]:
    """Pairs whose halves and result are all tokens; the backend panics on any other. Also how many were dropped."""
    merges: dict[tuple[str, str], None] = {}  # of equal pairs the first counts
    unusable = 0
    for entry in raw:
        try:
            text = entry.decode("utf-8")
        except UnicodeDecodeError:
            unusable += 1
            continue
        split = text.find(" ", 1)
        left, right = text[:split], text[split + 1 :]
        if split > 0 and left in ids and right in ids and left + right in ids:
            merges.setdefault((left, right))
        else:
            unusable += 1
    return list(merges), unusable
