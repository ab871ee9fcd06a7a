"""The process that runs cases, one after the other, until it is told to stop, dies, or has taken too much memory.

It reads ranges of case numbers from its input and writes one line of JSON a case to its output; see Report. What the
libraries print goes to its error output.
"""
from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

import cases
from targets import TARGETS
from verdicts import Refused, Undocumented, Violation, place

MEMORY_LIMIT = 1 << 30
ADDRESS_SPACE = 4 << 30        # beyond what the process has at the start; saves the machine, not the count
RAN, REFUSED, FINDING = "ran", "refused", "finding"


def sanitized() -> bool:
    return "libasan" in Path("/proc/self/maps").read_text()


def peak_memory() -> int:
    """Most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Strict(logging.Handler):
    """Formats every record, so that a message that cannot be formatted is a finding."""

    def emit(self, record: logging.LogRecord) -> None:
        self.format(record)


class Worker:
    def __init__(self, target: str, seed: int, folder: Path):
        self.name, self.seed, self.folder = target, seed, folder
        self.target = TARGETS[target]
        self.unraisable: list[tuple[str, str, str]] = []
        sys.unraisablehook = self._unraisable
        logging.getLogger("pantheon").addHandler(Strict())

    def _unraisable(self, hook) -> None:
        kind = getattr(hook.exc_type, "__name__", "?")
        self.unraisable.append((f"unraisable {kind}", place(hook.exc_traceback), str(hook.exc_value)[:300]))

    def case(self, number: int) -> cases.Case:
        return self.target.make(cases.generator(self.name, self.seed, number))

    def run(self, options: dict) -> tuple[str, str, str, str]:
        """Runs what is in the folder: outcome, kind of error, place of the error, message."""
        try:
            self.target.run(self.folder, options)
            result = (RAN, "", "", "")
        except Refused as e:
            result = (REFUSED, *_described(e.__cause__))
        except Undocumented as e:
            kind, where, message = _described(e.__cause__)
            result = (FINDING, f"{kind}: {e}", where, message)
        except Violation as e:
            kind, where, message = _described(e)
            if e.__cause__ is not None:
                message = f"{e.__cause__}"
            result = (FINDING, f"Violation: {e}", where, message)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as e:
            result = (FINDING, *_described(e))
        if self.unraisable:
            result = (FINDING, *self.unraisable.pop())
            self.unraisable.clear()
        return result

    def one(self, number: int) -> list:
        """One case from its number: [number, milliseconds, outcome, kind, place, message]."""
        case = self.case(number)
        cases.write(case, self.folder)
        start = time.monotonic()
        result = self.run(case.options)
        took = time.monotonic() - start
        if peak_memory() > MEMORY_LIMIT:
            result = (FINDING, f"memory above {MEMORY_LIMIT >> 20} MB", "", f"{peak_memory() >> 20} MB at the most")
        return [number, round(took * 1000), *result]

    def leaks(self) -> str:
        """What is still open of cases that have ended: descriptors and mappings of their files."""
        gc.collect()
        links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
        with open("/proc/self/maps") as file:
            maps = [line.split(maxsplit=5)[-1].strip() for line in file]
        return ", ".join(sorted({path for path in links + maps if path.startswith(f"{self.folder}/")}))


def _described(error: BaseException) -> tuple[str, str, str]:
    return type(error).__name__, place(error.__traceback__), str(error)[:500]


def serve(worker: Worker, requests, report) -> None:
    """Runs the ranges "first end" that come in."""
    report({"sanitized": sanitized(), "memory": peak_memory()})
    for line in requests:
        first, end = map(int, line.split())
        for number in range(first, end):
            result = worker.one(number)
            report(result)
            if result[3].startswith("memory"):
                return
        leaked = worker.leaks()
        report({"leaks": leaked, "memory": peak_memory()})


def show(worker: Worker, number: int | None) -> int:
    """Runs one case, or what is in the folder already, and prints all about it."""
    if number is not None:
        case = worker.case(number)
        cases.write(case, worker.folder)
        options = case.options
    else:
        options = json.loads((worker.folder / "OPTIONS").read_text())
        (worker.folder / "OPTIONS").unlink()
    try:
        worker.target.run(worker.folder, options)
        print("ran to its end")
    except Exception:
        traceback.print_exc()
    finally:
        (worker.folder / "OPTIONS").write_text(json.dumps(options))
    print(f"{peak_memory() >> 20} MB at the most")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--write", type=int, help="only write the files of this case")
    parser.add_argument("--show", type=int, help="run this case and print what comes of it")
    parser.add_argument("--again", action="store_true", help="run what is in the folder")
    args = parser.parse_args()
    worker = Worker(args.target, args.seed, args.folder)
    by_hand = args.show is not None or args.write is not None
    if by_hand and any(args.folder.iterdir()) and not (args.folder / "OPTIONS").exists():
        parser.error(f"--folder {args.folder}: not empty, and not of an earlier case: its files would be lost")
    if args.write is not None:
        case = worker.case(args.write)
        cases.write(case, args.folder)
        (args.folder / "OPTIONS").write_text(json.dumps(case.options))
        return 0
    if args.show is not None or args.again:
        return show(worker, args.show)
    faulthandler.register(signal.SIGUSR1)
    if not sanitized():
        faulthandler.enable()
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESS_SPACE, size + ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker.case(0)                     # makes the seeds
    gc.collect()
    gc.freeze()
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    serve(worker, sys.stdin, lambda record: output.write(json.dumps(record) + "\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
