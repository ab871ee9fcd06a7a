"""Encoding with a tokenizer.json on the tokenizers package, of text whose raw added tokens were cut out before.

The package itself finds the added tokens that are looked for in the normalised text. It gives where in the given text
a token was found, and so whether that was trusted.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as _Backend

from pantheon.text.bpe import ByteBPE
from pantheon.text.specials import WHITE_SPACE, Special, Trust
from pantheon.text.vocab import TokenType, byte_value

_SPACE = "\u2581"
_MAX_GROWTH = 1 << 12  # characters that the normaliser's replacements, one after the other, may make of one
_A_TEXT = (1 << 31) - 1  # an id that stands for the text where only what surrounds it is looked at


class JsonCodec:
    """data: a parsed tokenizer.json, whose model has no token beyond the logits; where: begins messages.

    looked_for: the added tokens that are looked for in the normalised text. control: ids that only trusted text may
    name. from_text: those of them that other text may become all the same, as what no token spells becomes the unknown
    token. ValueError for a tokenizer that the package does not take or whose decoder is unknown.
    """

    add_bos = False

    def __init__(self, data: Mapping[str, Any], where: str, looked_for: Iterable[Special], control: frozenset[int],
                 from_text: Collection[int | None] = ()):
        self._where = where
        self._control = control
        self._never_from_text = control.difference(from_text)
        _check_growth(data, where)
        specials = _distinct(looked_for, data.get("normalizer"), where)
        self._finds_control = any(special.control for special in specials)
        later = copy.deepcopy(data.get("pre_tokenizer"))
        self._has_later = any([_set_never(part) for part in parts_of(later, "Metaspace")])
        whole = {"version": "1.0", "truncation": None, "padding": None, "decoder": None, "post_processor": None,
                 **{key: data.get(key) for key in ("normalizer", "pre_tokenizer", "model")},
                 "added_tokens": [_json_token(special) for special in specials]}  # fmt: skip
        # By (opens the text, trusted): most tokenizers do the same in all places, and need one.
        self._backends: dict[tuple[bool, bool], _Backend] = {}
        for first in (True, False) if self._has_later else (True,):
            for trusted in (True, False) if self._finds_control else (False,):
                backend = make_backend(whole if first else {**whole, "pre_tokenizer": later}, where)
                backend.encode_special_tokens = not trusted
                self._backends[first, trusted] = backend
        ids = {special: self._backends[True, False].token_to_id(special.text) for special in specials}
        # The package numbers added tokens by itself: a token that the model lacks may get another's id.
        self._renamed = {i: special.id for special, i in ids.items() if i is not None and i != special.id}
        self._read_decoder(data)

    def _read_decoder(self, data: Mapping[str, Any]) -> None:
        parts = list(parts_of(data.get("decoder")))
        kinds = {str(part.get("type")) for part in parts}
        self.byte_level = "ByteLevel" in kinds
        if not self.byte_level and not kinds & {"ByteFallback", "Metaspace"}:
            raise ValueError(f"{self._where}: the decoder is neither byte-level nor that of SentencePiece")
        self._replaces = [(_SPACE, " ")] if "Metaspace" in kinds else []
        for part in parts:
            pattern = part.get("pattern")
            text = pattern.get("String") if isinstance(pattern, dict) else None
            content = part.get("content")
            if part.get("type") == "Replace" and isinstance(text, str) and text and isinstance(content, str):
                self._replaces.append((text, content))
        schemes = {str(m.get("prepend_scheme", "always")) for m in parts_of(data.get("pre_tokenizer"), "Metaspace")}
        prepends = bool(list(parts_of(data.get("normalizer"), "Prepend"))) or bool(schemes - {"never"})
        self.add_space_prefix = prepends and not self.byte_level

    def encode(self, text: str, trusted: Trust = False, first: bool = True) -> list[int]:
        """Ids of a fragment. first: it opens the text, which is where some put a space before it."""
        if isinstance(trusted, bytes):
            if self._finds_control and 0 in trusted and 1 in trusted:
                return self._encode_mixed(text, trusted, first)
            trusted = self._finds_control and 0 not in trusted
        encoding = self._encode(text, first, trusted)
        return self._ids(encoding) if trusted else self._without_control(text, encoding)

    def piece(self, text: bytes, kind: int) -> bytes:
        if self.byte_level:
            return ByteBPE.piece(text, kind)
        value = byte_value(text) if kind == TokenType.BYTE else None
        return self.written(text) if value is None else bytes([value])

    def written(self, text: bytes) -> bytes:
        """What the decoder makes of a token's text, be it an added one."""
        for old, new in self._replaces:
            text = text.replace(old.encode(), new.encode())
        return text

    def _encode_mixed(self, text: str, trusted: bytes, first: bool) -> list[int]:
        """As one where every control token that is found stands in trusted text; else run by run."""
        encoding = self._encode(text, first, True)
        spans = zip(self._ids(encoding), encoding.offsets, strict=True)
        if all(0 not in trusted[slice(*_core(text, *span))] for i, span in spans if i in self._control):
            return self._ids(encoding)
        ids: list[int] = []
        at = 0
        while at < len(text):
            end = trusted.find(1 - trusted[at], at)
            end = len(text) if end < 0 else end
            ids += self.encode(text[at:end], bool(trusted[at]), first and at == 0)
            at = end
        return ids

    def _without_control(self, text: str, encoding: Encoding) -> list[int]:
        """A vocabulary may have a control token's text among its ordinary entries: it is spelt out."""
        found = self._ids(encoding)
        if self._never_from_text.isdisjoint(found):
            return found
        ids: list[int] = []
        for i, (start, end) in zip(found, encoding.offsets, strict=True):
            if i not in self._never_from_text:
                ids.append(i)
                continue
            for c in text[start:end]:
                spelt = self._ids(self._encode(c, False, False))
                ids += [j for j in spelt if j not in self._never_from_text]
        return ids

    def _encode(self, text: str, first: bool, trusted: bool) -> Encoding:
        with panics_as_errors(f"{self._where}: the tokenizers package cannot split this text"):
            backend = self._backends[first or not self._has_later, trusted and self._finds_control]
            return backend.encode(text, add_special_tokens=False)

    def _ids(self, encoding: Encoding) -> list[int]:
        ids = encoding.ids
        return [self._renamed.get(i, i) for i in ids] if self._renamed else ids


@contextlib.contextmanager
def panics_as_errors(where: str) -> Iterator[None]:
    """The package panics on some files, and on some texts where added tokens take white space from each other. That is
    no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as e:
        raise ValueError(f"{where}: {' '.join(str(e)[:300].split())}") from None


def make_backend(data: Mapping[str, Any], where: str) -> _Backend:
    with panics_as_errors(where):
        return _Backend.from_str(json.dumps(data))


def _part_of(data: Mapping[str, Any], where: str) -> _Backend:
    """A backend whose every text is one token: to see what one part of a tokenizer.json does."""
    model = {"type": "WordLevel", "vocab": {"a": _A_TEXT}, "unk_token": "a"}
    return make_backend({"version": "1.0", "model": model, "post_processor": None, "added_tokens": [], "padding": None,
                         "truncation": None, "normalizer": None, "pre_tokenizer": None, "decoder": None, **data},
                        where)  # fmt: skip


def _distinct(specials: Iterable[Special], normalizer: Any, where: str) -> list[Special]:
    """Of tokens with the same normalised text the first: the package takes now one, now another of them."""
    found: dict[str, Special] = {}
    backend = _part_of({"normalizer": normalizer}, where)
    for special in specials:
        text = special.text if backend.normalizer is None else backend.normalizer.normalize_str(special.text)
        found.setdefault(text, special)
    return list(found.values())


def surrounding(post_processor: Any, where: str) -> tuple[list[int], list[int]]:
    """Ids that the post-processor puts before and after a text."""
    if post_processor is None:
        return [], []
    backend = _part_of({"post_processor": post_processor}, where)
    with panics_as_errors(f"{where}: key post_processor"):
        ids = backend.encode("a").ids
    if _A_TEXT not in ids:
        return [], []
    at = ids.index(_A_TEXT)
    return ids[:at], ids[at + 1 :]


def parts_of(node: Any, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder and, of a sequence, its members; only those of a kind."""
    if not isinstance(node, dict):
        return
    if kind is None or node.get("type") == kind:
        yield node
    for key in ("normalizers", "pretokenizers", "decoders"):
        children = node.get(key)
        for child in children if isinstance(children, list) else []:
            yield from parts_of(child, kind)


def _json_token(special: Special) -> dict[str, Any]:
    return {"id": special.id, "content": special.text, "single_word": special.single_word, "lstrip": special.lstrip,
            "rstrip": special.rstrip, "normalized": True, "special": special.control}


def _check_growth(data: Mapping[str, Any], where: str) -> None:
    """ValueError where replacements, each in what the last one made, would make very long text of a short one."""
    contents = [part.get(key) for part in parts_of(data.get("normalizer")) for key in ("content", "prepend")]
    growth = math.prod(max(1, len(text)) for text in contents if isinstance(text, str))
    if growth > _MAX_GROWTH:
        raise ValueError(f"{where}: key normalizer: it may make {growth} characters of one, more than {_MAX_GROWTH}")


def _set_never(metaspace: dict[str, Any]) -> bool:
    first = metaspace.get("prepend_scheme") == "first"
    if first:
        metaspace["prepend_scheme"] = "never"
    return first


def _core(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the white space that a token may take at either side; a token of white space keeps it."""
    part = text[start:end]
    if not part.strip(WHITE_SPACE):
        return start, end
    return end - len(part.lstrip(WHITE_SPACE)), start + len(part.rstrip(WHITE_SPACE))
