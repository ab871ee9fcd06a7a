"""What a failed command says: exceptions as one line."""


class UsageError(Exception):
    """The command line asks for something that cannot be; the message is for the user who typed it."""


# What no input and no circumstance should lead to.
_DEFECTS = (TypeError, AttributeError, NameError, LookupError, AssertionError, ArithmeticError)
_LONGEST = 1000                          # characters


def describe(error: BaseException) -> str:
    """The one line that tells a user what went wrong."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error)
    text = printable(" ".join(text.split()))
    if len(text) > _LONGEST:            # names of files and tensors can be of any length
        text = f"{text[:_LONGEST // 2]} ... {text[-_LONGEST // 2:]}"
    if not text:
        return "out of memory" if isinstance(error, MemoryError) else type(error).__name__
    if isinstance(error, _DEFECTS):
        return f"{type(error).__name__}: {text} (a defect; PANTHEON_TRACEBACK=1 shows where)"
    return text


def printable(text: str) -> str:
    """text with everything that could steer a terminal made visible; newlines and tabs stay.

    Model files and their answers come from strangers, and an escape sequence can rewrite what a terminal has shown.
    """
    return "".join(c if c in "\n\t" or not _steers(c) else "�" for c in text)


def _steers(c: str) -> bool:
    return c < " " or "\x7f" <= c <= "\x9f"
