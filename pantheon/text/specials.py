"""Cutting added tokens, control tokens among them, out of text before any tokenising.

The rules are those of the tokenizers package, which the vocabularies were made with: leftmost first, of those that
begin at one place the longest; then the flags of the one that was found.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

log = logging.getLogger("pantheon")

# Far above any real vocabulary: a file must not make the prefix tree eat the memory.
MAX_LENGTH = 512  # characters of one token that is looked for
MAX_TOTAL = 1 << 18  # characters of all

# Unicode's White_Space. Python's isspace takes U+001C to U+001F too.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_BLANKS = frozenset(WHITE_SPACE)
_WORD_CATEGORIES = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Mn", "Mc", "Me", "Pc"))
# Alphabetic by a property of their own (letters in circles and squares), and the joiners.
_WORD_RANGES = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189), (0x200C, 0x200D))

Trust = bool | bytes  # of all characters of a text, or one byte for each


@dataclass(frozen=True)
class Special:
    """A token that is cut out of text.

    control         it steers the model: only text that is trusted may become one
    lstrip, rstrip  it takes the white space before, or after, it
    single_word     it is none within a word
    normalized      it is looked for in the normalised text, by the normaliser's owner: a SpecialPartition has no such
    """

    id: int
    text: str
    control: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


class SpecialPartition:
    """Splits text at added tokens.

    Tokens that are no control tokens are found in any text. Control tokens are found where the text is trusted: each in
    one run of trusted characters, so that no text from outside becomes or completes one. In text that is not trusted a
    control token's text stays whole, as that of ordinary words. Time is linear in the text for a given vocabulary.
    """

    def __init__(self, specials: Iterable[Special], where: str):
        """Of tokens with the same text the lowest id counts. ValueError, which begins with `where`, for too many."""
        self._specials: dict[str, Special] = {}
        for special in sorted(specials, key=lambda s: s.id):
            if len(special.text) > MAX_LENGTH:
                log.warning("%s: added token %d has %d characters: never found in text", where, special.id,
                            len(special.text))
            elif special.text:
                self._specials.setdefault(special.text, special)
        total = sum(map(len, self._specials))
        if total > MAX_TOTAL:
            raise ValueError(f"{where}: added tokens of {total} characters in all, over {MAX_TOTAL}")
        try:
            self._any = _longest(self._specials)
            self._plain = _longest(text for text, special in self._specials.items() if not special.control)
        except RecursionError:
            raise ValueError(f"{where}: too many added tokens continue each other") from None

    def split(self, text: str, trusted: Trust) -> list[tuple[int, int, int | None]]:
        """text as pieces (start, end, id of the token or None), in order.

        Pieces cover the text. They may overlap where a token takes white space that is a token itself: both count, but
        for one that takes white space before it and finds itself taken.
        """
        pieces: list[tuple[int, int, int | None]] = []
        done = blanks_end = 0
        for start, end, special in self._matches(text, trusted):
            if special.single_word and _in_word(text, start, end):
                continue
            if special.lstrip:
                start = max(start, done)
                while start > done and text[start - 1] in _BLANKS:
                    start -= 1
            if special.rstrip:
                if end >= blanks_end:
                    blanks_end = end
                    while blanks_end < len(text) and text[blanks_end] in _BLANKS:
                        blanks_end += 1
                end = blanks_end
            if done < start:
                pieces.append((done, start, None))
            if start < end:
                pieces.append((start, end, special.id))
            done = end
        if done < len(text):
            pieces.append((done, len(text), None))
        return pieces

    def _matches(self, text: str, trusted: Trust) -> Iterator[tuple[int, int, Special]]:
        """Tokens as they are written (start, end, token), ascending and disjoint."""
        if self._any is None:
            return
        at = run_end = 0  # run_end: where the run of equally trusted characters ends that was looked at last
        while match := self._any.search(text, at):
            start, end = match.span()
            special = self._specials[match[0]]
            if special.control and trusted is not True:
                if start >= run_end:
                    run_end = _run_end(text, trusted, start)
                if end > run_end:
                    match = self._within(text, start, run_end)
                    if match is None:
                        at = start + 1
                        continue
                    end = match.end()
                    special = self._specials[match[0]]
                if special.control and not (trusted and trusted[start]):
                    at = end
                    continue
            yield start, end, special
            at = end

    def _within(self, text: str, start: int, run_end: int) -> re.Match[str] | None:
        """The longest token at start that may be one there although its run ends: only tokens that are no control
        tokens go on into the next."""
        assert self._any is not None
        within = self._any.match(text, start, run_end)
        across = self._plain and self._plain.match(text, start)
        return max(filter(None, (within, across)), key=re.Match.end, default=None)


def _run_end(text: str, trusted: Trust, start: int) -> int:
    if isinstance(trusted, bool):
        return len(text)
    end = trusted.find(0 if trusted[start] else 1, start)
    return end if end >= 0 else len(text)


def _in_word(text: str, start: int, end: int) -> bool:
    return (start > 0 and _is_word(text[start - 1])) or (end < len(text) and _is_word(text[end]))


def _is_word(c: str) -> bool:
    return unicodedata.category(c) in _WORD_CATEGORIES or any(lo <= ord(c) <= hi for lo, hi in _WORD_RANGES)


def _longest(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A regex for the longest of texts; None for no texts.

    The alternatives form a prefix tree, so the work at a position is bounded by the longest text, not by their number.
    """
    root: dict[str, dict] = {}
    for text in texts:
        node = root
        for c in text:
            node = node.setdefault(c, {})
        node[""] = {}
    return re.compile(_tree_regex(root), re.DOTALL) if root else None


def _tree_regex(root: dict[str, dict]) -> str:
    """Nested alternation of a prefix tree; chains without branches are joined to keep the nesting shallow."""
    # Post-order without recursion, as deep as the longest text.
    done: dict[int, str] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if not ready:
            stack.append((node, True))
            stack.extend((child, False) for c, child in node.items() if c)
            continue
        branches = [re.escape(c) + done.pop(id(child)) for c, child in node.items() if c]
        if not branches:
            done[id(node)] = ""
        elif "" in node:
            done[id(node)] = f"(?:{'|'.join(branches)})?"
        elif len(branches) == 1:
            done[id(node)] = branches[0]
        else:
            done[id(node)] = f"(?:{'|'.join(branches)})"
    return done[id(root)]
