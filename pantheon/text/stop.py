"""Stop strings in streamed text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopMatcher:
    """Finds the first stop string in text that arrives in parts of any size.

    The result does not depend on how the text is cut: the match is the one that *ends* first, of those the longest.
    Held back is exactly the longest suffix that is a proper prefix of a stop string, which is the depth of the state in
    the Aho-Corasick automaton of the stops. Time is linear in the text.
    """

    def __init__(self, stops: Iterable[str]):
        self.stops = list(dict.fromkeys(stops))
        if any(not isinstance(s, str) or not s for s in self.stops):
            raise ValueError("stop: every stop string must be a non-empty str")
        self.matched: str | None = None
        self._held = ""
        self._state = 0
        self._build()

    def _build(self) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]  # longest stop that ends in this state
        for stop in self.stops:
            node = 0
            for c in stop:
                if c not in self._next[node]:
                    self._next[node][c] = len(self._next)
                    self._next.append({})
                    self._depth.append(self._depth[node] + 1)
                    self._match.append(None)
                node = self._next[node][c]
            self._match[node] = stop
        self._fail = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for c, child in self._next[node].items():
                fail = self._fail[node]
                while fail and c not in self._next[fail]:
                    fail = self._fail[fail]
                self._fail[child] = self._next[fail].get(c, 0)
                if self._match[child] is None:
                    self._match[child] = self._match[self._fail[child]]
                queue.append(child)

    def feed(self, text: str) -> str:
        """Text that may be sent. Once a stop was found `matched` is that string and nothing comes out any more."""
        if self.matched is not None:
            return ""
        buffer = self._held + text
        state, held = self._state, len(self._held)
        for i, c in enumerate(text):
            while state and c not in self._next[state]:
                state = self._fail[state]
            state = self._next[state].get(c, 0)
            found = self._match[state]
            if found is not None:
                self.matched, self._held = found, ""
                return buffer[: held + i + 1 - len(found)]
        self._state = state
        cut = len(buffer) - self._depth[state]
        self._held = buffer[cut:]
        return buffer[:cut]

    def flush(self) -> str:
        """The held text at the end of a generation that met no stop; the matcher is then ready for new text."""
        rest, self._held, self._state = self._held, "", 0
        return rest
