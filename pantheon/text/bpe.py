"""Byte-level BPE (tokenizer.ggml.model "gpt2") on the tokenizers package."""

from __future__ import annotations

import logging

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as _Backend

from pantheon.text.pretokenizers import find_pretokenizer
from pantheon.text.vocab import TokenType, Vocab

log = logging.getLogger("pantheon")


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
    """Encodes fragments that hold no special tokens; ids are those of the vocabulary."""

    add_space_prefix = False

    def __init__(self, vocab: Vocab):
        if vocab.merges is None:
            raise ValueError("tokenizer.ggml.merges is missing: a gpt2 tokenizer cannot work without")
        rules = find_pretokenizer(vocab.pre)
        self.add_bos = rules.add_bos
        ids: dict[str, int] = {}
        for i, (text, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
            if kind in _NEVER_FROM_TEXT or not text:
                continue
            try:
                ids.setdefault(text.decode("utf-8"), i)
            except UnicodeDecodeError:
                continue  # no text maps to it; it can still be decoded
        merges, dropped = _usable_merges(vocab.merges, ids)
        if dropped:
            log.warning("%d of %d merges name unknown tokens: ignored", dropped, len(vocab.merges))
        backend = _Backend(models.BPE(ids, merges, ignore_merges=rules.ignore_merges))
        splits = [pre_tokenizers.Split(Regex(r), behavior="isolated") for r in rules.regexes]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
        self._backend = backend

    def encode(self, text: str) -> list[int]:
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
