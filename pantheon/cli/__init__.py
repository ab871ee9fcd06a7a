"""The command line: `pantheon COMMAND ...`, one module of this package per command.

A command module has SUMMARY, `add_arguments(parser)` and `run(args) -> exit status`. This file finds the command,
parses its arguments and turns whatever goes wrong into one line on stderr and an exit status: 0 done, 1 failed, 2 the
command line is wrong, 130 interrupted. Commands import the engine and the terminal library when they run, so that
`--version` and `--help` stay quick.
"""
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from pantheon.cli.errors import UsageError, describe
from pantheon.cli.options import ArgumentParser

COMMANDS = ("run", "chat", "info", "bench", "doctor", "pull", "convert")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (None: the process's own) and returns its exit status."""
    _forgive_encoding()
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output has seen enough. Python flushes stdout once more when it ends: give it a place to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as e:
        if os.environ.get("PANTHEON_TRACEBACK") == "1":
            raise
        print(f"pantheon: error: {describe(e)}", file=sys.stderr)
        return EXIT_USAGE if isinstance(e, UsageError) else EXIT_FAILED


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from importlib.metadata import version

        print(f"pantheon {version('pantheon')}")
        return 0
    if name not in COMMANDS:
        _unknown(name)
    command = importlib.import_module(f"pantheon.cli.{name}")
    parser = ArgumentParser(prog=f"pantheon {name}", description=command.SUMMARY)
    command.add_arguments(parser)
    words = argv[1:argv.index("--")] if "--" in argv else argv[1:]
    if "-h" in words or "--help" in words:
        print(parser.format_help(), end="")
        return 0
    # Intermixed, so that options may stand between MODEL and PROMPT. It hides positional arguments from argparse's own
    # help while it works, hence the help above.
    return command.run(parser.parse_intermixed_args(argv[1:]))


def _help() -> str:
    rows = [(name, importlib.import_module(f"pantheon.cli.{name}").SUMMARY) for name in COMMANDS]
    return "\n".join([
        "usage: pantheon COMMAND ...",
        "",
        "Runs large language models on this machine.",
        "",
        "commands:",
        *(f"  {name:<8} {summary}" for name, summary in rows),
        "",
        "`pantheon COMMAND --help` lists a command's arguments; `pantheon --version` prints the version.",
    ])


def _unknown(name: str) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
    raise UsageError(f"unknown command {name!r}; {hint}")


def _forgive_encoding() -> None:
    """A terminal that cannot show a character shows a question mark; output never fails for it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
