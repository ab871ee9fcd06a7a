"""Memory-aware admission from Python: whether a request fits, and holding what it was promised.

The C side decides (pn_admit_reserve). This module adds what the ladder asks its caller to do first: rung 1, dropping
idle prefix-cache entries, and rung 4, unloading idle models, through functions that their owners register here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from pantheon._core.base.arguments import number, whole
from pantheon._core.base.single import Single
from pantheon._core.memory import memwatch
from pantheon._core.python import admission as core
from pantheon._core.python.model import ModelBase
from pantheon._core.python.state import State
from pantheon.errors import AdmissionError
from pantheon.verdict import Cost, Verdict

Reclaim = Callable[[int], int]               # frees about so many bytes of what is idle; returns how many it freed


class Reservation(Single):
    """What model.reserve holds until release, or the end of the with block."""

    def __init__(self, verdict: Verdict, decision: core.Decision) -> None:
        self.verdict = verdict
        self._decision = decision

    @property
    def nbytes(self) -> int:
        """Bytes that are promised; 0 after release, and when nothing was checked."""
        return self._decision.nbytes

    def progress(self, pos: int, checkpoints: int = 0) -> None:
        """The sequence holds pos tokens and as many checkpoints now: what they took is used, no longer promised."""
        self._decision.progress(pos, checkpoints)

    def release(self) -> None:
        """Gives the promise back; call it when the sequence's memory is freed. May be called again."""
        try:
            self._decision.release()
        finally:
            while _waiting:
                with suppress(IndexError):           # another thread's
                    _waiting.pop().release()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


# ---- what can be given back ------------------------------------------------------------------------------------------

_reclaimers: dict[int, list[tuple[Reclaim, Callable[[], int]]]] = {1: [], 4: []}
_RECLAIMED = {1: "idle prefix-cache entries evicted", 4: "idle models unloaded"}


def register_reclaimer(rung: int, reclaim: Reclaim, idle_bytes: Callable[[], int]) -> None:
    """Gives the ladder a way to free idle memory: rung 1 (cache entries) or 4 (models).

    reclaim(n) frees about n bytes, least recently used first, and returns how many it freed; idle_bytes() is how many
    it could free. Both are called without any lock of this module.
    """
    _reclaimers[rung].append((reclaim, idle_bytes))


def reclaimable_bytes() -> int:
    """Bytes that all registered reclaimers together could free."""
    return sum(idle() for entries in _reclaimers.values() for _, idle in entries)


def _reclaim(rung: int, wanted: int) -> int:
    freed = 0
    for reclaim, _ in _reclaimers[rung]:
        if freed < wanted:
            freed += reclaim(wanted - freed)
    return freed


# ---- asking and holding ----------------------------------------------------------------------------------------------


class _Request(NamedTuple):
    """Arguments of ask and reserve in the order of core.decide, converted once: objects may be another number each time
    that they are asked."""

    n_prompt: int
    max_tokens: int
    n_ctx: int | None
    kv_type: str | None
    window: int | None
    state: State | None
    checkpoints: int
    batch: int
    all_logits: bool

    @classmethod
    def of(cls, n_prompt: int, max_tokens: int, n_ctx: int | None, kv_type: str | None, window: int | None,
           state: State | None, checkpoints: int, batch: int, all_logits: bool) -> _Request:
        return cls(whole("n_prompt", n_prompt), whole("max_tokens", max_tokens),
                   None if n_ctx is None else whole("n_ctx", n_ctx), kv_type,
                   None if window is None else whole("window", window), state,
                   whole("checkpoints", checkpoints), whole("batch", batch), bool(all_logits))


def start_memwatch() -> None:
    """Starts memwatch, as pantheon.load does. PANTHEON_MEMWATCH=0 leaves it off; PANTHEON_MEMORY_LIMIT bounds what this
    process may take: bytes, or with a suffix K, M, G or T of powers of 1024."""
    wanted = os.environ.get("PANTHEON_MEMWATCH") or "1"
    if wanted not in ("0", "1"):
        raise ValueError(f"PANTHEON_MEMWATCH is {wanted!r}, not 0 or 1")
    if wanted == "1" and not memwatch.running():
        memwatch.start()


def cost(model: ModelBase, n_ctx: int | None = None, kv_type: str | None = None, window: int | None = None,
         batch: int = 1, all_logits: bool = False) -> Cost:
    """See Model.cost."""
    return core.cost(model, n_ctx, kv_type, window, batch, all_logits)


def ask(model: ModelBase, n_prompt: int, max_tokens: int = 0, n_ctx: int | None = None, *, kv_type: str | None = None,
        window: int | None = None, state: State | None = None, checkpoints: int = 0, batch: int = 1,
        all_logits: bool = False, quiet: bool = False) -> Verdict:
    """See Model.admit. quiet: without a log line."""
    request = _Request.of(n_prompt, max_tokens, n_ctx, kv_type, window, state, checkpoints, batch, all_logits)
    return core.decide(model, *request, reclaimable=reclaimable_bytes(), quiet=quiet).verdict()


def reserve(model: ModelBase, n_prompt: int, max_tokens: int = 0, n_ctx: int | None = None, *,
            kv_type: str | None = None, window: int | None = None, state: State | None = None, checkpoints: int = 0,
            batch: int = 1, all_logits: bool = False, timeout: float = 0.0) -> Reservation:
    """See Model.reserve."""
    request = _Request.of(n_prompt, max_tokens, n_ctx, kv_type, window, state, checkpoints, batch, all_logits)
    timeout = number("timeout", timeout)
    if not timeout >= 0:
        raise ValueError(f"timeout is {timeout}, not a number of seconds from 0 on")
    until = time.monotonic() + timeout
    while True:
        decision, steps = _decide(model, request)
        verdict = decision.verdict(steps)
        if decision.granted:
            return Reservation(verdict, decision)
        left = until - time.monotonic()
        if left <= 0:
            raise AdmissionError(_refusal(model, verdict, request), verdict)
        _wait_for_release(min(left, 0.25))


_waiting: list[Any] = []         # locks that are taken, one of everybody who waits: nobody waits for what others hold,
                                 # which in the child of a fork they would never give back


def _wait_for_release(seconds: float) -> None:
    """Until some reservation is released, or so long."""
    lock = threading.Lock()
    lock.acquire()
    _waiting.append(lock)
    try:
        lock.acquire(timeout=seconds)
    finally:
        with suppress(ValueError):       # release has it
            _waiting.remove(lock)


def _decide(model: ModelBase, request: _Request) -> tuple[core.Decision, list[str]]:
    """Decides, and where the ladder or a lack of room asks for it, frees what is idle and decides again."""
    steps = []
    decision = core.decide(model, *request, hold=True)
    for rung in (1, 4):
        wanted = decision.wanted(rung)
        freed = _reclaim(rung, wanted) if wanted else 0
        if freed:
            steps.append(f"rung {rung}: {decision.level}, {_RECLAIMED[rung]}, {freed} bytes")
        if freed or (decision.short and rung == 1):
            memwatch.trim()
            decision.release()
            decision = core.decide(model, *request, hold=True, quiet=True)
    return decision, steps


def _refusal(model: ModelBase, verdict: Verdict, request: _Request) -> str:
    """What a refused user reads: the numbers, and what would need less."""
    n_prompt, state = request.n_prompt, request.state
    hints = []
    if verdict.fit_tokens > 0:
        hints.append(f"a prompt of up to {verdict.fit_tokens} tokens fits")
    if verdict.kv_type in ("f16", "f32"):
        # In place of a state that is there already, a new one for all of its tokens.
        held, room = (0, request.n_ctx) if state is None else (state.pos, min(state.n_ctx, model.n_ctx_train))
        smaller = core.decide(model, held + n_prompt, request.max_tokens, room, "q8_0", quiet=True,
                              reclaimable=0 if state is None or held == 0 else core.touched_bytes(state)).verdict()
        if smaller.kv_type == "q8_0" and smaller.fit_tokens > held + verdict.fit_tokens:
            hints.append(f"with a q8_0 cache {smaller.fit_tokens} tokens fit")
    hints.append("a smaller context or another model needs less")
    return (f"the prompt of {n_prompt} tokens does not fit into memory: {verdict.need_bytes} bytes are needed for it "
            f"and the answer, {verdict.have_bytes} can be had ({'; '.join(hints)})")
