"""Exceptions of the Python API. Everything else is a ValueError, TypeError, OSError or MemoryError that names its
cause."""


class PantheonError(Exception):
    """Base of the errors that only Pantheon raises."""


class BusyError(PantheonError, RuntimeError):
    """A second thread used a state while a call on it was running."""


class ContextFullError(PantheonError, ValueError):
    """More positions were asked for than the state's context holds; the state is unchanged."""
