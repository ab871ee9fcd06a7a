"""What a command writes: answers to stdout as they come, everything else to stderr; markup on terminals only."""
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from pantheon.cli import streams
from pantheon.cli.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from pantheon.hub import Progress


def write(text: str) -> None:
    """Writes a piece of an answer and shows it at once. Text is plain: nothing in it is markup."""
    with streams.output() as out:
        out.write(printable(text) if out.isatty() else text)
        out.flush()


def line(text: str) -> None:
    """Writes a line to stdout."""
    with streams.output() as out:
        print(text, file=out)


def note(text: str) -> None:
    """One line beside the answer, on stderr; dim where stderr is a terminal."""
    with streams.messages() as err:
        _console(err).print(printable(text), style="dim", markup=False, highlight=False, soft_wrap=True)


def show_log() -> None:
    """From now on what the engine warns of is a note, as what this package says itself; unless a handler is there."""
    import logging

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(" ".join(record.getMessage().split()))

    logger = logging.getLogger("pantheon")
    if not logger.hasHandlers():
        logger.addHandler(Notes(logging.WARNING))


def table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> None:
    """Writes rows as aligned columns to stdout; cells are plain text. The last column is never padded."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, *([header] if header else []), strict=True)]

    def aligned(row: Sequence[str]) -> str:
        return "  ".join([cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)] + [row[-1]])

    if header:
        title(aligned(header))
    for row in rows:
        line(aligned(row))


def title(text: str) -> None:
    """A heading on stdout, bold where it is a terminal."""
    with streams.output() as out:
        _console(out).print(printable(text), style="bold", markup=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            """The caller knows what that means for its stream; rich would end the process."""
            raise

    return Plain(file=stream)


@contextlib.contextmanager
def progress() -> Iterator["Progress"]:
    """A callback for pantheon.hub that draws a bar per stage on stderr; on anything but a terminal it draws nothing."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description:<8}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=_console(sys.stderr), disable=not sys.stderr.isatty(), transient=True) as bar:
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield show


def size(n: int | None) -> str:
    """Bytes for a reader: 98.4 MB, 1.2 GB (powers of 1000), or ? when it is not known."""
    if n is None:
        return "?"
    value = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rate(n: int, seconds: float) -> str:
    """n things in a time: 12 in 0.5 s (24.0/s)."""
    return f"{n} in {seconds:.2f} s" + (f" ({n / seconds:.1f}/s)" if n and seconds > 0 else "")
