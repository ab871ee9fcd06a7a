"""Exceptions of the Python API. Everything else is a ValueError, TypeError, OSError or MemoryError that names its
cause."""

from pantheon._core.base.errors import BusyError, ContextFullError, PantheonError
from pantheon.verdict import Verdict

__all__ = ["AdmissionError", "BusyError", "ContextFullError", "PantheonError"]


class AdmissionError(PantheonError, MemoryError):
    """A request does not fit into memory and was refused before any work; verdict has the numbers."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict

    def __reduce__(self) -> tuple[type, tuple[str, Verdict]]:
        return type(self), (str(self), self.verdict)
