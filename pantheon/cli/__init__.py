"""The command line: `pantheon COMMAND ...`, one module of this package per command.

A command module has SUMMARY, `add_arguments(parser)` and `run(args) -> exit status`; dispatch.py finds and runs it.
Commands import the engine and the terminal library when they run, so that `--version` and `--help` stay quick, and so
that an import that fails is one line, too.
"""
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (None: the process's own) and returns its exit status."""
    try:
        from pantheon.cli import dispatch  # here, because until then Ctrl-C is a traceback
    except KeyboardInterrupt:
        return 130
    return dispatch.run(argv)
