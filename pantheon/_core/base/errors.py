"""What the engine raises beside ValueError, TypeError, OSError and MemoryError; users have it from pantheon.errors."""


class PantheonError(Exception):
    """Base of the errors that only Pantheon raises."""

    __module__ = "pantheon.errors"


class BusyError(PantheonError, RuntimeError):
    """A second thread used a state while a call on it was running."""

    __module__ = "pantheon.errors"


class ContextFullError(PantheonError, ValueError):
    """More positions were asked for than the state's context holds; the state is unchanged."""

    __module__ = "pantheon.errors"
