"""`pantheon pull`: fetch a known model into the cache, or check the one that is there."""
import argparse

from pantheon import hub
from pantheon.cli import options, terminal
from pantheon.cli.errors import UsageError

SUMMARY = "fetch a known model, or check the fetched one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(f"{m.name} ({m.summary}, {terminal.size(m.size)}, {m.license})" for m in hub.known())
    parser.add_argument("model", nargs="?", default=hub.DEFAULT_MODEL, metavar="MODEL",
                        help=f"a known model (default: %(default)s): {names}")
    parser.add_argument("--verify", action="store_true",
                        help="hash the cached file from first byte to last, and fetch it again if it is damaged")


def run(args: argparse.Namespace) -> int:
    if args.model not in hub.KNOWN:
        raise UsageError(f"unknown model {args.model!r}; known: {', '.join(sorted(hub.KNOWN))}")
    if args.verify and hub.cached(args.model):
        with terminal.progress() as progress:
            whole = hub.verify(args.model, progress)
        terminal.note("SHA-256 is the pinned one" if whole else "the cached file was damaged and is fetched again")
    terminal.line(str(options.find_model(args.model)))
    return 0
