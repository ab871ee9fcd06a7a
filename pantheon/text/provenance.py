"""Strings that know which of their characters come from a chat template.

A rendered prompt mixes two kinds of text: what the template's author wrote, where "<|im_end|>" means the control token,
and what came from outside (messages, tools, arguments), where the same characters are only characters. `Text` marks
each character of the first kind. The mark is *positive*: an operation that does not carry it leaves plain str, which
counts as text from outside. So a forgotten operation can cost a template its control token, never give one to a user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Segment(NamedTuple):
    """A run of prompt text. trusted: written by the template, control tokens in it are control tokens."""

    text: str
    trusted: bool


class Text(str):
    """A str with one mark per character: mask[i] is 1 where character i was written by the template."""

    __module__ = "builtins"  # and __name__ below: messages of Python and Jinja name a value's type, which is str to all
    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, value: str, mask: bytes) -> Text:
        self = super().__new__(cls, value)
        if len(mask) != len(self):
            raise ValueError("one mark per character is needed")
        self.mask = mask
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key):  # type: ignore[override]
        part = super().__getitem__(key)
        mask = self.mask[key]
        return marked(part, mask if isinstance(key, slice) else bytes((mask,)))

    def __iter__(self) -> Iterator[str]:
        return (marked(c, bytes((m,))) for c, m in zip(super().__iter__(), self.mask, strict=True))

    def __reduce__(self):
        return _text, (str.__str__(self), self.mask)


Text.__name__ = Text.__qualname__ = "str"


def _text(value: str, mask: bytes) -> Text:
    return Text(value, mask)


def marked(value: str, mask: bytes) -> str:
    """value with marks, or plain str when no character is marked."""
    return Text(value, mask) if 1 in mask else _plain(value)


def template_text(value: str) -> str:
    """value as written by the template."""
    return Text(value, b"\1" * len(value)) if value else value


def is_marked(value: str) -> bool:
    """Whether any character of value is the template's."""
    return type(value) is Text


def mask_of(value: str) -> bytes:
    return value.mask if type(value) is Text else bytes(len(value))


def _plain(value: str) -> str:
    return value if type(value) is str else str.__str__(value)


def concat(parts: Iterable[str]) -> str:
    parts = list(parts)
    joined = "".join(parts)
    if not any(type(p) is Text for p in parts):
        return joined
    return marked(joined, b"".join(map(mask_of, parts)))


def join(separator: str, parts: Iterable[str]) -> str:
    spaced: list[str] = []
    for part in parts:
        if spaced:
            spaced.append(separator)
        spaced.append(part)
    return concat(spaced)


def strip(value: str, chars: str | None = None, left: bool = True, right: bool = True) -> str:
    start = len(value) - len(str.lstrip(value, chars)) if left else 0
    kept = str.rstrip(value, chars) if right else value
    return value[start : max(start, len(kept))]


def cut_at(value: str, parts: list[str], gap: int | None) -> list[str]:
    """Marks for the parts that a split of value gave; gap: length of the separator, None for any whitespace."""
    if type(value) is not Text:
        return parts
    out, at = [], 0
    for part in parts:
        if gap is None:
            at = str.find(value, part, at)
        out.append(value[at : at + len(part)])
        at += len(part) + (gap or 0)
    return out


def replace(value: str, old: str, new: str, count: int = -1) -> str:
    if not old or not (type(value) is Text or type(new) is Text):
        return str.replace(value, old, new, count)
    return join(new, cut_at(value, str.split(value, old, count), len(old)))


def change_case(value: str, changed: str) -> str:
    """Marks for upper, lower and the like, as long as every character stayed one character."""
    return marked(changed, value.mask) if type(value) is Text and len(changed) == len(value) else changed


def segments(value: str) -> list[Segment]:
    """value as maximal runs of one kind."""
    plain = _plain(value)
    return [Segment(plain[m.start() : m.end()], m[0][0] == 1) for m in re.finditer(rb"\x00+|\x01+", mask_of(value))]
