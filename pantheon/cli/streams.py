"""The standard streams as they come: closed, full, without a reader, in another encoding."""
from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from pantheon.cli.errors import UsageError

TYPE_CHECKING = False               # typing is not imported for it: until main() runs, Ctrl-C is a traceback
if TYPE_CHECKING:
    from typing import TextIO

# Most bytes of a prompt or a line: beyond what any context holds, so that an endless stream is refused, not collected.
MAX_INPUT = 64 << 20


class OutputError(OSError):
    """Nothing more can be written to stdout."""


def prepare() -> None:
    """Makes stdout and stderr safe to write to. OSError when stdout is closed.

    A closed descriptor is opened on the null device first: the next file opened would get its number otherwise, and
    what is meant for a stream would be written into it.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for the rest of the process)
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")    # a character that cannot be shown is a question mark, no failure


@contextlib.contextmanager
def output() -> Iterator[TextIO]:
    """stdout to write to; OutputError when that fails, and what it still holds is dropped."""
    try:
        yield sys.stdout
    except OSError as e:
        _drop(sys.stdout)
        raise OutputError(e.errno, e.strerror, "standard output") from None


def settle() -> None:
    """Writes what stdout still holds, or drops it where that fails: Python would end with a traceback of its own."""
    with contextlib.suppress(OutputError), output() as out:
        if out is not None:
            out.flush()


@contextlib.contextmanager
def messages() -> Iterator[TextIO]:
    """stderr to write to. What is said beside the answer is dropped when nobody can hear it; the command goes on."""
    try:
        yield sys.stderr
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Gives the stream a place for what it still holds: Python flushes it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):      # a stand-in for a stream has no descriptor
        fd = os.open(os.devnull, os.O_WRONLY)
        os.dup2(fd, stream.fileno())
        os.close(fd)


# -- input ------------------------------------------------------------------------------------------------------------


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def read_all() -> str:
    """All of stdin, which is UTF-8 whatever the terminal's encoding."""
    return _text(_read("read"))


def read_line() -> str | None:
    """The next line of stdin, which is not a terminal; None at its end."""
    return _text(_read("readline")) or None


def typed_line(prompt: str) -> str | None:
    """The next line of a terminal, in its encoding; None after Ctrl-D."""
    try:
        line = input(prompt)
    except EOFError:
        return None
    except UnicodeDecodeError as e:
        raise UsageError(f"the line is not valid {e.encoding}") from None
    return valid(line, "the line")


def valid(text: str, name: str) -> str:
    """An argument or a typed line as it was meant: where the locale has no such character, its bytes are UTF-8.

    UsageError when they are not; Python passes such bytes on as surrogates.
    """
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        pass
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{name} is not valid UTF-8") from None


def _read(method: str) -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    try:
        data = getattr(sys.stdin.buffer, method)(MAX_INPUT + 1)
    except OSError as e:
        raise OSError(e.errno, e.strerror, "standard input") from None
    if len(data) > MAX_INPUT:
        raise UsageError(f"the prompt on stdin is longer than {MAX_INPUT >> 20} MiB")
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise UsageError(f"the prompt on stdin is not valid UTF-8 (byte {e.start})") from None
