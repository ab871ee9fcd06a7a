"""Which errors are documented, and where one was raised.

The API's errors are ValueError, OSError, MemoryError and Pantheon's own, in one line that names the file; everything
else that comes out of a call is a finding.
"""
from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from types import TracebackType

from pantheon import PantheonError
from pantheon.text import TemplateError

LOADING = (ValueError, OSError, MemoryError)
LONGEST = 3000             # characters of a message


class Refused(Exception):
    """The input was refused as documented; the error is the cause."""


class Undocumented(Exception):
    """The input was refused with an error that the documentation does not promise; it is the cause."""


class Violation(Exception):
    """Nothing was raised, and the result is wrong."""


@contextlib.contextmanager
def may_refuse(*kinds: type[Exception], names: str = "") -> Iterator[None]:
    """A block that may raise these. names: what the message has to hold."""
    try:
        yield
    except kinds as e:
        wrong = _what_is_wrong(e, names)
        if wrong:
            raise Undocumented(wrong) from e
        raise Refused from e


def _what_is_wrong(error: Exception, names: str) -> str:
    text = str(error)
    plain = type(error) in (ValueError, MemoryError) or isinstance(error, (PantheonError, TemplateError, OSError))
    if "\n" in text:
        return "several lines"
    if len(text) > LONGEST:
        return f"more than {LONGEST} characters"
    if names not in text and not isinstance(error, MemoryError):
        return "does not name the file"
    if not plain and not (names and names in text):
        return "a kind of ValueError that is not documented"
    return ""


def place(tb: TracebackType | None) -> str:
    """The line that raised, and the one that called it: the last two of the package, else the last two."""
    frames = [f"{frame.filename.rpartition('pantheon/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(tb)
              if "pantheon/" in frame.filename and "/tests/" not in frame.filename]
    if not frames:
        frames = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(tb)]
    return " < ".join(reversed(frames[-2:]))
