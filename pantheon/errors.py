"""Exceptions of the Python API. Everything else is a ValueError, TypeError, OSError or MemoryError that names its
cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pantheon.admission import Verdict


class PantheonError(Exception):
    """Base of the errors that only Pantheon raises."""


class BusyError(PantheonError, RuntimeError):
    """A second thread used a state while a call on it was running."""


class ContextFullError(PantheonError, ValueError):
    """More positions were asked for than the state's context holds; the state is unchanged."""


class AdmissionError(PantheonError, MemoryError):
    """A request does not fit into memory and was refused before any work; verdict has the numbers."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict
