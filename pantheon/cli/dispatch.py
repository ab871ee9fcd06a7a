"""From a command line to its command, and from whatever goes wrong there to one line on stderr and an exit status:
0 done, 1 failed, 2 the command line is wrong, 128 + n ended by signal n (130: Ctrl-C)."""
import errno
import importlib
import os
import sys
from collections.abc import Sequence

from pantheon.cli import signals, streams
from pantheon.cli.errors import UsageError, describe

COMMANDS = ("run", "chat", "info", "bench", "doctor", "pull", "convert")

EXIT_FAILED = 1
EXIT_USAGE = 2


def run(argv: Sequence[str] | None) -> int:
    """See pantheon.cli.main."""
    try:
        with signals.as_exceptions(last=argv is None):
            streams.prepare()
            status = _dispatch(list(sys.argv[1:] if argv is None else argv))
            with streams.output() as out:
                out.flush()
            return status
    except BaseException as e:
        if (ended := signals.ended_with(e)) is not None:
            return ended
        if isinstance(e, streams.OutputError) and e.errno == errno.EPIPE:
            return 0                    # the reader of our output has seen enough
        if os.environ.get("PANTHEON_TRACEBACK") == "1":
            raise
        with streams.messages() as err:
            print(f"pantheon: error: {describe(e)}", file=err)
        return EXIT_USAGE if isinstance(e, UsageError) else EXIT_FAILED
    finally:
        streams.settle()


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        _show(_help())
        return 0
    if name in ("-V", "--version"):
        from pantheon import __version__

        _show(f"pantheon {__version__}")
        return 0
    if name not in COMMANDS:
        raise _unknown(name)
    from pantheon.cli.options import ArgumentParser

    command = importlib.import_module(f"pantheon.cli.{name}")
    parser = ArgumentParser(prog=f"pantheon {name}", description=command.SUMMARY)
    command.add_arguments(parser)
    words = argv[1:argv.index("--")] if "--" in argv else argv[1:]
    if "-h" in words or "--help" in words:
        _show(parser.format_help().rstrip())
        return 0
    # Intermixed, so that options may stand between MODEL and PROMPT. It hides positional arguments from argparse's own
    # help while it works, hence the help above.
    return command.run(parser.parse_intermixed_args(argv[1:]))


def _show(text: str) -> None:
    with streams.output() as out:
        print(text, file=out)


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


def _unknown(name: str) -> UsageError:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
    return UsageError(f"unknown command {name!r}; {hint}")
