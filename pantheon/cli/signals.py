"""How signals end a command: without a traceback, and with the status that shells give, 128 + the signal's number."""
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT

# What ends a process, and Python's own way of handling it. Windows has no SIGHUP.
_DEFAULTS: "dict[int, signal._HANDLER]" = {
    signal.SIGINT: signal.default_int_handler,
    **{getattr(signal, name): signal.SIG_DFL for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)},
}


@contextlib.contextmanager
def as_exceptions(last: bool) -> Iterator[None]:
    """Within it Ctrl-C raises KeyboardInterrupt, SIGTERM and SIGHUP raise SystemExit: all that is open gets closed.

    last: nothing of this process comes afterwards, and signals end it at once then. A signal that whoever started this
    process has ignored, as nohup does, or that the caller handles, is left alone.
    """
    if threading.current_thread() is not threading.main_thread():   # only the main thread may set handlers
        yield
        return
    numbers = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default]
    unraisable = sys.unraisablehook

    def cannot_be_raised(args: "sys.UnraisableHookArgs") -> None:
        """A callback or a destructor was interrupted: the exception ends there, and would be a traceback."""
        if (status := ended_with(args.exc_value)) is not None:
            os._exit(status)
        unraisable(args)

    try:
        sys.unraisablehook = cannot_be_raised
        for number in numbers:
            signal.signal(number, _end)
        yield
    finally:
        for number in numbers:
            # Not SIG_DFL: Python prints a traceback for a signal that has come and finds that in its handler's place.
            signal.signal(number, _end_now if last else _DEFAULTS[number])
        sys.unraisablehook = unraisable


def ended_with(error: BaseException | None) -> int | None:
    """The exit status when a signal is behind error, None otherwise. What cleans up may fail for it, and hide it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return EXIT_INTERRUPTED
        if isinstance(error, SystemExit):
            return int(error.code or 0)
        error = error.__context__
    return None


def _end_now(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _end(number: int, frame: FrameType | None) -> None:
    if _importing(frame):
        # What is raised into an import can get lost there, or become an ImportError. Nothing open needs closing yet.
        _end_now(number, frame)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
