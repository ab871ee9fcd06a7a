"""States of finished requests, kept so that a prompt that begins like an earlier one costs only what is new.

An entry is taken out while it is in use, so nobody else sees a state change. What is reused was computed from the same
tokens by the same weights with the same type of KV cache, and a state that was cut back goes on with the same bits as a
fresh one: an answer does not depend on whether the cache was warm.

All caches of the process together are rung 1 of the memory ladder: the least recently used entry goes first.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pantheon import admission
from pantheon._core.base.single import Single
from pantheon._core.base.turn import TurnLock
from pantheon._core.base.weak import WeakRegistry
from pantheon._core.memory import memwatch
from pantheon._core.python.admission import touched_bytes
from pantheon._core.python.model import ModelBase
from pantheon._core.python.state import Checkpoint, State

MIN_SHARED = 16                  # tokens; less is not worth an entry that something else could use
MAX_CHECKPOINTS = 4              # of one entry, the latest: ends of messages, and of the prompt


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens a and b have in common from their beginning on."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def cut_back(state: State, keep: int, checkpoints: Iterable[Checkpoint] = ()) -> int:
    """Takes state back to position keep and returns where it is then.

    A recurrent architecture cannot go back just anywhere: there it is the last valid checkpoint up to keep, or the
    beginning.
    """
    try:
        state.truncate(min(keep, state.pos))
    except ValueError:
        usable = [c for c in checkpoints if c.valid and c.pos <= keep]
        if usable:
            state.restore(max(usable, key=lambda c: c.pos))
        else:
            state.reset()
    return state.pos


def rotates(state: State, reach: int | None) -> bool:
    """Whether the positions that state holds have the rotation of a sequence of so many; what it has room for does not
    matter. An empty state takes it on."""
    try:
        state.set_reach(reach)
    except ValueError:
        return False
    return True


def go_on(state: State, held: Sequence[int], prompt: Sequence[int], reach: int | None,
          checkpoints: Iterable[Checkpoint] = ()) -> int:
    """Cuts state, whose first positions hold these tokens, back to what prompt shares; returns how many tokens that is.

    The prompt's last token is never shared: feeding it is what gives the answer's first logits. Nothing is, where the
    model takes prompts whole, or what the state holds has the rotation of another sequence than one of reach tokens.
    """
    shared = 0 if state.model.whole_prompts else common_prefix(held[:state.pos], prompt[:-1])
    cut_back(state, shared, checkpoints)
    if not rotates(state, reach):
        state.reset()
        state.set_reach(reach)
    return state.pos


class Prefix(NamedTuple):
    """A state taken out of the cache; it holds the first state.pos tokens of the prompt."""

    state: State
    checkpoints: list[Checkpoint]


@dataclass(eq=False)
class _Entry:
    tokens: list[int]            # state.pos of them
    state: State
    checkpoints: list[Checkpoint]
    nbytes: int                  # what the state has touched, and the checkpoints
    used: int                    # ticks of the clock below


_clock = itertools.count()
_caches: WeakRegistry[PrefixCache] = WeakRegistry()


class PrefixCache(Single):
    """The cache of one model; Model.use_prefix_cache makes it.

    max_bytes    most bytes that idle entries hold
    n_ctx        positions of the states that are made to be kept
    """

    def __init__(self, model: ModelBase, max_bytes: int, n_ctx: int) -> None:
        self.max_bytes = max_bytes
        self.n_ctx = n_ctx
        self._model = weakref.ref(model)
        self._entries: list[_Entry] = []
        # Reentrant: a generation that is collected while the lock is held gives its state back.
        self._lock = TurnLock("the prefix cache", reentrant=True)
        _caches.add(self)

    @property
    def nbytes(self) -> int:
        """Bytes that idle entries hold."""
        with self._lock:
            return sum(entry.nbytes for entry in tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, tokens: Sequence[int], kv_type: str | None, n_ctx: int = 0,
             reach: int | None = None) -> Prefix | None:
        """Takes out the state that shares most with a prompt, cut back to that; None when none is worth it.

        At least the prompt's last token is left to be fed, which gives its logits. An entry must be of this KV type,
        have n_ctx positions and the rotation of a sequence of reach, and share MIN_SHARED tokens and half of its own:
        no long one is given up for a greeting.
        """
        prompt = tokens[:-1]
        with self._lock:
            best, shared = None, MIN_SHARED - 1
            for entry in tuple(self._entries):
                try:
                    if entry.state.kv_type != kv_type or entry.state.n_ctx < n_ctx or not rotates(entry.state, reach):
                        continue
                except ValueError:       # closed, just now
                    continue
                n = common_prefix(entry.tokens, prompt)
                if n > shared and 2 * n >= len(entry.tokens):
                    best, shared = entry, n
            if best is None or not self._take_out(best):
                return None
        if go_on(best.state, best.tokens, tokens, reach, best.checkpoints) == 0:
            best.state.close()
            return None
        return Prefix(best.state, [c for c in best.checkpoints if c.valid])

    def put(self, tokens: Sequence[int], state: State, checkpoints: Iterable[Checkpoint] = ()) -> None:
        """Keeps a state that holds these tokens, or closes it: the state is the cache's from here on."""
        kept = [c for c in checkpoints if c.valid][-MAX_CHECKPOINTS:]
        try:
            fits = state.model is self._model() and len(tokens) == state.pos >= MIN_SHARED
            nbytes = touched_bytes(state) + sum(c.nbytes for c in kept)
        except ValueError:               # closed, with its model perhaps, and perhaps just now
            return
        if not fits or nbytes > self.max_bytes:
            state.close()
            return
        with self._lock:
            self._entries.append(_Entry(list(tokens), state, kept, nbytes, next(_clock)))
            self.evict(self.nbytes - self.max_bytes)
        if memwatch.running() and evict_idle(memwatch.read()["evict_bytes"]):
            memwatch.trim()

    def evict(self, nbytes: int) -> int:
        """Closes the least recently used entries until nbytes are free or none is left; returns the bytes freed."""
        freed = 0
        with self._lock:
            while freed < nbytes and (entries := tuple(self._entries)):
                oldest = min(entries, key=lambda entry: entry.used)
                if self._take_out(oldest):
                    oldest.state.close()
                    freed += oldest.nbytes
        return freed

    def clear(self) -> None:
        """Closes all entries. Without the lock, which would have to be waited for: close() of a model comes here."""
        for entry in tuple(self._entries):
            if self._take_out(entry):
                entry.state.close()

    def _take_out(self, entry: _Entry) -> bool:
        """False when it is gone already: clear takes no lock, and a collected generation has the same one."""
        try:
            self._entries.remove(entry)
        except ValueError:
            return False
        return True

    def _oldest(self) -> int | None:
        with self._lock:
            return min((entry.used for entry in tuple(self._entries)), default=None)


def idle_bytes() -> int:
    """Bytes that the idle entries of all caches hold."""
    return sum(cache.nbytes for cache in _caches.alive())


def evict_idle(nbytes: int) -> int:
    """Closes the least recently used entries of all caches until nbytes are free or none is left; returns the bytes
    freed."""
    freed = 0
    while freed < nbytes:
        ages = [(used, cache) for cache in _caches.alive() if (used := cache._oldest()) is not None]
        if not ages:
            break
        freed += min(ages, key=lambda age: age[0])[1].evict(1)
    return freed


admission.register_reclaimer(1, evict_idle, idle_bytes)
