"""Mutation fuzzing of everything that is read from files. Not part of the tests but for a few cases: test_fuzz.py.

    python tests/fuzz/run.py --target gguf --cases 100000 --resume gguf.json --keep findings/
    python tests/fuzz/run.py --target gguf --case 1234 --folder /tmp/it      # one case again, with its traceback
    python tests/fuzz/run.py --target gguf --folder findings/gguf-1-1234     # what a finding's folder holds, again

A case is made from target, seed and number alone. Cases run in a worker process that is restarted after a crash, a hang
or every so many cases; a finding is counted, its files are kept, and the run goes on. Findings: a signal or a
sanitizer's report; 20 seconds; 1 GB of memory; an error that is not documented, or does not name the file; files left
open. The exit status is 1 when there were any.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from campaign import Campaign

HERE = Path(__file__).resolve().parent
WORKER = HERE / "worker.py"
NAMES = ("gguf", "folders", "tokenizers", "rwkv", "split", "templates", "convert")
BATCH = 200                # cases between two looks for what was left open
RESTART = 10_000           # cases of one worker
HANG = 20.0                # seconds of a case, of the processor's while it runs, of the clock's while it waits
STARTING = 300.0           # seconds for a worker to make its seeds
KILL_AT = 3 << 29          # bytes in memory at which a worker is not waited for
_SUMMARY = re.compile(r"^(SUMMARY: .*|.*runtime error: .*|Fatal Python error: .*|thread '.*' panicked at .*)$",
                      re.MULTILINE)


class Ended(Exception):
    """The worker stopped in the middle of a case: kind, message."""


def worker(target: str, seed: int, folder: Path) -> list[str]:
    return [sys.executable, str(WORKER), "--target", target, "--seed", str(seed), "--folder", str(folder)]


def environment() -> dict[str, str]:
    """What a worker's is: it finds the helpers of the tests, and admission does not depend on the machine. With
    AddressSanitizer, a size that no memory has is answered with NULL, and freed memory does not count for long."""
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    options = os.environ.get("ASAN_OPTIONS", "")
    return {"PANTHEON_MEMWATCH": "0", **os.environ, "PYTHONPATH": path,
            "ASAN_OPTIONS": f"{options}:allocator_may_return_null=1:quarantine_size_mb=32"}


class Runner:
    """A worker process and the folder that its cases are written to."""

    def __init__(self, target: str, seed: int):
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(prefix="pantheon-fuzz-", dir=shared))
        self.folder = self.home / "case"
        self.folder.mkdir()
        self.command = worker(target, seed, self.folder)
        self.process: subprocess.Popen | None = None

    def start(self) -> dict:
        self.errors = open(self.home / "errors", "w+b")      # noqa: SIM115 (closed in stop)
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env=environment())
        self.rest = b""
        try:
            return self.read(STARTING)
        except Ended as e:
            raise SystemExit(f"the worker does not start: {e.args[0]}\n{e.args[1]}") from None

    def ask(self, first: int, end: int) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"%d %d\n" % (first, end))
            self.process.stdin.flush()

    def read(self, limit: float | None = None):
        """The worker's next record. Ended when there will be none, or none within limit: HANG seconds unless given."""
        limit = HANG if limit is None else limit
        spent: float | None = None
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], 0.25)
            if ready:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise Ended(*self.last_words())
                self.rest += data
                continue
            if spent is None:              # most cases are over before they are looked at
                moved, spent = time.monotonic(), self.processor_seconds()
            now, used = time.monotonic(), self.processor_seconds() - spent
            # A worker that others leave no processor is not hanging: it is one that runs long, or that only waits.
            if self.state() == "R":
                moved = now
            if used > limit or now - moved > limit:
                raise Ended(f"hang above {limit:g} s", self.stacks())
            if self.memory() > KILL_AT:
                self.process.kill()
                raise Ended("memory above 1024 MB", f"{self.memory() >> 20} MB and growing")
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def _proc(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.process.pid}/{name}").read_text()
        except OSError:
            return ""

    def processor_seconds(self) -> float:
        fields = self._proc("stat").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def state(self) -> str:
        return (self._proc("stat").rpartition(")")[2].split() or ["Z"])[0]

    def memory(self) -> int:
        fields = self._proc("statm").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0

    def stacks(self) -> str:
        """Where the worker is: its Python stacks, which it prints on SIGUSR1. It is killed then."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        self.process.kill()
        self.process.wait()
        return self.printed()[-1500:]

    def last_words(self) -> tuple[str, str]:
        """How the worker died, and what it printed."""
        status = self.process.wait()
        text = self.printed()
        summary = _SUMMARY.search(text)
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"{how}: {summary.group()[:300] if summary else '?'}", text[-3000:]

    def printed(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.errors.close()
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def code() -> str:
    """The commit of the sources beside this file, or the package's version."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "an installed package"


def keep(args, number: int) -> None:
    """Writes the case's files where findings are kept."""
    if args.keep is not None:
        folder = args.keep / f"{args.target}-{args.seed}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        command = [*worker(args.target, args.seed, folder), "--write", str(number)]
        subprocess.run(command, env=environment(), capture_output=True, check=False)


def campaign(args) -> int:
    state = Campaign.open(args.resume, args.target, args.seed, args.first)
    end = state.first + args.cases
    runner = Runner(args.target, args.seed)
    deadline = time.monotonic() + args.seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while state.next < end and time.monotonic() < deadline:
            one_worker(args, state, runner, end, deadline)
    except KeyboardInterrupt:
        pass
    finally:
        runner.close()
        if args.resume is not None:
            state.save(args.resume)
    print(state.report(), flush=True)
    return 1 if state.findings else 0


def one_worker(args, state: Campaign, runner: Runner, end: int, deadline: float) -> None:
    """Starts a worker and lets it run cases, until it has run enough of them or has ended."""
    hello = runner.start()
    state.begin(args.code, "sanitized" if hello["sanitized"] else "plain")
    restart = state.next + RESTART
    began = time.monotonic()
    try:
        while state.next < min(end, restart) and time.monotonic() < deadline:
            batch_end = min(state.next + BATCH, end, restart)
            runner.ask(state.next, batch_end)
            while state.next < batch_end:
                result = runner.read()
                count(args, state, result)
                if result[3].startswith("memory"):     # the most it had: the worker cannot tell the next case's
                    return
            closing = runner.read()
            state.peak_mb = max(state.peak_mb, closing["memory"] >> 20)
            if closing["leaks"]:
                record(args, state, f"left open: {closing['leaks'].rpartition('/')[2]}", closing["leaks"])
            if args.resume is not None:
                state.save(args.resume)
    except Ended as e:
        kind, message = e.args
        if state.next < batch_end:
            count(args, state, [state.next, 0, "finding", kind, "", message])
        print(f"{args.target} case {state.next - 1}: {kind}", flush=True)
    finally:
        state.seconds += time.monotonic() - began
        runner.stop()


def record(args, state: Campaign, kind: str, message: str) -> None:
    """A finding of a batch, not of a case."""
    entry = state.findings.setdefault(kind, {"count": 0, "case": state.next - 1, "message": message})
    entry["count"] += 1


def count(args, state: Campaign, result: list) -> None:
    if state.add(*result):
        print(f"{args.target} case {result[0]}: {result[3]} at {result[4]}: {result[5][:300]!r}", flush=True)
        keep(args, result[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=NAMES, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=1000, help="how many, those of earlier runs included")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--resume", type=Path, help="file that holds the counts; read when it is there")
    parser.add_argument("--keep", type=Path, help="folder that the files of findings are kept in")
    parser.add_argument("--case", type=int, help="run this case alone, in --folder")
    parser.add_argument("--folder", type=Path, help="run what is in this folder, or --case in it")
    args = parser.parse_args()
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
        which = ["--again"] if args.case is None else ["--show", str(args.case)]
        command = [*worker(args.target, args.seed, args.folder.resolve()), *which]
        return subprocess.run(command, env=environment(), check=False).returncode
    args.code = code()
    return campaign(args)


if __name__ == "__main__":
    sys.exit(main())
