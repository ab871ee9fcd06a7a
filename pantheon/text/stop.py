"""Stop strings in streamed text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

# What a character of the stream is: text to show, or of a control token, which nobody sees: its first, the others
_SHOWN, _FIRST, _INNER = 0, 1, 2


class StopMatcher:
    """Finds the first stop string in text that arrives in parts of any size.

    The result does not depend on how the text is cut: the match is the one that *ends* first, of those the longest.
    Held back is exactly the longest suffix that is a proper prefix of a stop string, which is the depth of the state in
    the Aho-Corasick automaton of the stops. Time is linear in the text.

    A control token takes part with its own text, which never comes out: a stop string may be one, or hold some among
    other characters. It is one symbol all the same, so no match begins or ends inside of it.
    """

    def __init__(self, stops: Iterable[str]):
        self.stops = list(dict.fromkeys(stops))
        if any(not isinstance(s, str) or not s for s in self.stops):
            raise ValueError("stop: every stop string must be a non-empty str")
        self.matched: str | None = None
        self._held = ""
        self._kinds = b""  # of each character of _held
        self._state = 0
        self._build()

    def _build(self) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._stop = [0]  # state of the longest stop that ends in this state, or 0
        for stop in self.stops:
            node = 0
            for c in stop:
                if c not in self._next[node]:
                    self._next[node][c] = len(self._next)
                    self._next.append({})
                    self._depth.append(self._depth[node] + 1)
                    self._stop.append(0)
                node = self._next[node][c]
            self._stop[node] = node
        self._fail = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for c, child in self._next[node].items():
                fail = self._fail[node]
                while fail and c not in self._next[fail]:
                    fail = self._fail[fail]
                self._fail[child] = self._next[fail].get(c, 0)
                if self._stop[child] == 0:
                    self._stop[child] = self._stop[self._fail[child]]
                queue.append(child)

    def feed(self, text: str) -> str:
        """Text that may be sent. Once a stop was found `matched` is that string and nothing comes out any more."""
        return self._take(text, bytes(len(text)))

    def feed_control(self, text: str) -> str:
        """As feed, for a control token of this text: what comes out is held text that it ends the hope for."""
        return self._take(text, bytes([_FIRST]) + bytes([_INNER]) * (len(text) - 1) if text else b"")

    def _take(self, text: str, kinds: bytes) -> str:
        if self.matched is not None:
            return ""
        buffer, kinds, state = self._held + text, self._kinds + kinds, self._state
        for end, c in enumerate(text, len(self._held) + 1):
            while state and c not in self._next[state]:
                state = self._fail[state]
            state = self._next[state].get(c, 0)
            while state and kinds[end - self._depth[state]] == _INNER:
                state = self._fail[state]
            stop = self._stop[state]
            if stop == 0 or (end < len(kinds) and kinds[end] == _INNER):
                continue
            while stop and kinds[end - self._depth[stop]] == _INNER:
                stop = self._stop[self._fail[stop]]
            if stop:
                begin = end - self._depth[stop]
                self.matched, self._held, self._kinds = buffer[begin:end], "", b""
                return _shown(buffer[:begin], kinds)
        self._state = state
        cut = len(buffer) - self._depth[state]
        self._held, self._kinds = buffer[cut:], kinds[cut:]
        return _shown(buffer[:cut], kinds)

    def flush(self) -> str:
        """The held text at the end of a generation that met no stop; the matcher is then ready for new text."""
        rest = _shown(self._held, self._kinds)
        self._held, self._kinds, self._state = "", b"", 0
        return rest


def _shown(text: str, kinds: bytes) -> str:
    return "".join(c for c, kind in zip(text, kinds, strict=False) if kind == _SHOWN)
