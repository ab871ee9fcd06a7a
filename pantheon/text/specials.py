"""Cutting special tokens out of text before any tokenising."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator

from pantheon.text.vocab import TokenType, Vocab

log = logging.getLogger("pantheon")

# Far above any real vocabulary: a file must not make the prefix tree eat the memory.
MAX_LENGTH = 512  # characters of one special token that is looked for
MAX_TOTAL = 1 << 18  # characters of all

Allowed = Callable[[int, int], bool]  # may the control token in text[start:end] be one?


class SpecialPartition:
    """Splits text at special tokens: longest special first, of equal ones the lowest id, left to right.

    User-defined tokens count in any text. Control and unknown tokens count only where the caller allows it, so that
    text from outside cannot become one. Time is linear in the text for a given vocabulary.
    """

    def __init__(self, vocab: Vocab):
        self._ids: dict[str, int] = {}
        self._user: set[str] = set()
        kinds = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        for i, (raw, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
            if kind not in kinds or not raw:
                continue
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if len(text) > MAX_LENGTH:
                log.warning("special token %d has %d characters: never found in text", i, len(text))
                continue
            if text not in self._ids:
                self._ids[text] = i
                if kind == TokenType.USER_DEFINED:
                    self._user.add(text)
        total = sum(map(len, self._ids))
        if total > MAX_TOTAL:
            raise ValueError(f"tokenizer.ggml.tokens: special tokens of {total} characters in all, over {MAX_TOTAL}")
        self._order = sorted(self._ids, key=lambda t: (-len(t.encode()), self._ids[t]))
        self._rank = {text: n for n, text in enumerate(self._order)}
        self._prefixes = {t: [p for n in range(len(t), 0, -1) if (p := t[:n]) in self._ids] for t in self._order}
        try:
            self._all_regex = _longest_at(self._ids)
            self._user_regex = _longest_at(self._user)
        except RecursionError:
            raise ValueError("tokenizer.ggml.tokens: too many special tokens continue each other") from None

    def split(self, text: str, control: bool | Allowed) -> list[tuple[str, int | None]]:
        """text as items (fragment, None) and (special text, id), in order, without empty fragments.

        control: True or False for all control tokens, or a function of (start, end) that decides each occurrence.
        """
        items: list[tuple[str, int | None]] = []
        done = 0
        for start, end, special in self._occurrences(text, control):
            if start > done:
                items.append((text[done:start], None))
            items.append((special, self._ids[special]))
            done = end
        if done < len(text):
            items.append((text[done:], None))
        return items

    def _occurrences(self, text: str, control: bool | Allowed) -> Iterator[tuple[int, int, str]]:
        """Chosen occurrences (start, end, special), ascending, disjoint."""
        regex = self._user_regex if control is False else self._all_regex
        if regex is None:
            return
        cluster: list[tuple[int, str]] = []  # candidates that overlap in a chain: (start, longest special there)
        reach = 0
        for m in regex.finditer(text):
            start = m.start()
            special = self._longest_allowed(m[1], start, control)
            if special is None:
                continue
            if start >= reach:
                yield from self._resolve(text, cluster, reach, control)
                cluster = []
            cluster.append((start, special))
            reach = max(reach, start + len(special))
        yield from self._resolve(text, cluster, reach, control)

    def _longest_allowed(self, special: str, start: int, control: bool | Allowed) -> str | None:
        for candidate in self._prefixes[special]:
            if self._is_allowed(candidate, start, control):
                return candidate
        return None

    def _is_allowed(self, special: str, start: int, control: bool | Allowed) -> bool:
        if special in self._user:
            return True
        return control if isinstance(control, bool) else control(start, start + len(special))

    def _resolve(
        self, text: str, cluster: list[tuple[int, str]], end: int, control: bool | Allowed
    ) -> Iterable[tuple[int, int, str]]:
        """Longest special first within candidates that overlap; alone, a candidate simply wins."""
        if len(cluster) <= 1:
            return [(start, start + len(special), special) for start, special in cluster]
        present = {p for special in {s for _, s in cluster} for p in self._prefixes[special]}
        raw = [(cluster[0][0], end)]
        chosen = []
        for special in sorted(present, key=self._rank.__getitem__):
            rest = []
            for lo, hi in raw:
                at = text.find(special, lo, hi)
                while at >= 0:
                    if self._is_allowed(special, at, control):
                        chosen.append((at, at + len(special), special))
                        if at > lo:
                            rest.append((lo, at))
                        lo = at + len(special)
                        at = text.find(special, lo, hi)
                    else:
                        at = text.find(special, at + 1, hi)
                if lo < hi:
                    rest.append((lo, hi))
            raw = rest
        return sorted(chosen)


def _longest_at(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A regex that matches, at every position where one of texts starts, the longest that does (as group 1).

    The alternatives form a prefix tree, so the work at a position is bounded by the longest text, not by their number.
    """
    root: dict[str, dict] = {}
    for text in texts:
        node = root
        for c in text:
            node = node.setdefault(c, {})
        node[""] = {}
    return re.compile(f"(?=({_tree_regex(root)}))", re.DOTALL) if root else None


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
