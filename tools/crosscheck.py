"""Compares kernel levels with ref, bit for bit, in a program without Python: also levels that this processor lacks.

    python tools/crosscheck.py [TARGET ...] [--cflags FLAGS]    # all targets that can be built here; --list names them

native   the levels that this processor has, with its own compiler
simde    avxvnni, avx512 and amx on AVX2, their instructions emulated: needs libsimde-dev
qemu     neon and dotprod, cross-compiled and run under qemu-user: needs gcc-aarch64-linux-gnu and qemu-user

Each target is built in a temporary folder. The exit status is 1 when a level differs from ref, 2 when a target that was
named cannot be built.
"""
from __future__ import annotations

import argparse
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "pantheon/_core/kernels"
HARNESS = ROOT / "tests/kernels/crosscheck"
CFLAGS = ["-std=gnu11", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wno-unused-function",
          "-Wno-psabi"]

LEVELS = runpy.run_path(str(KERNELS / "levels.py"))
SIMDE_HEADER = Path("/usr/include/simde/x86/avx512.h")


class Target(NamedTuple):
    """How to build and run the program."""

    compiler: list[str]
    built: list[tuple]                  # (level of levels.py, flags for its sources)
    cpu: Path                           # what says which levels can run
    run: list[list[str]]                # one prefix for each processor to run as
    levels: list[str] | None = None     # None: all that the processor has


def targets() -> dict[str, Target]:
    """The targets that can be built and run here."""
    gcc, machine = shlex.split(os.environ.get("CC", "gcc")), platform.machine()
    cross, qemu = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    cpu = KERNELS / "cpu.c"
    found = {}
    if shutil.which(gcc[-1]):
        found["native"] = Target(gcc, own_flags(gcc, machine), cpu, [[]])
    if "native" in found and machine in ("x86_64", "AMD64") and SIMDE_HEADER.exists() and has_avx2():
        x86 = [level for level in LEVELS["read"]() if level.processor != "arm"]
        above = [level.name for level in x86 if level.name not in ("ref", "avx2")]
        shim = ["-mavx2", "-mfma", "-mf16c", "-O0", f"-I{HARNESS / 'simde'}"]   # gcc takes minutes to optimise it
        built = [(level, shim if level.name in above else level.flags) for level in x86]
        found["simde"] = Target(gcc, built, HARNESS / "all_features.c", [[]], above)
    if cross and qemu:
        found["qemu"] = Target([cross], own_flags([cross], "aarch64"), cpu,
                               [[qemu, "-cpu", "cortex-a53"], [qemu, "-cpu", "max"]])
    return found


def own_flags(compiler: list[str], machine: str) -> list[tuple]:
    return [(level, level.flags) for level in LEVELS["buildable"](compiler, machine)]


def has_avx2() -> bool:
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    return {"avx2", "fma", "f16c"} <= set(flags.split())


def build(target: Target, folder: Path, cflags: list[str]) -> Path:
    """The program; static for an emulator, which has no libraries here. RuntimeError with the compiler's words."""
    have = [f"-DPN_HAVE_{level.name.upper()}=1" for level, _ in target.built]
    jobs = [(f"{level.name}_{Path(source).stem}.o", KERNELS / source, [f"-DPN_LEVEL={level.name}", *flags])
            for level, flags in target.built for source in level.sources]
    harness = sorted(source for source in HARNESS.glob("*.c") if source.name != "all_features.c")
    jobs += [(f"{source.stem}.o", source, []) for source in [KERNELS / "levels.c", target.cpu, *harness]]

    def compile_one(job: tuple[str, Path, list[str]]) -> Path:
        name, source, flags = job
        out = folder / name
        call([*target.compiler, *CFLAGS, *cflags, *have, f"-I{KERNELS}", *flags, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, jobs))
    program = folder / "crosscheck"
    static = ["-static"] if any(target.run) else []
    call([*target.compiler, *cflags, *static, *map(str, objects), "-o", str(program), "-lm", "-lpthread"])
    return program


def call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)


def check(name: str, target: Target, cflags: list[str]) -> bool:
    """Builds and runs one target, each level on the first processor that has it; True when every level equals ref."""
    equal = True
    with tempfile.TemporaryDirectory(prefix="crosscheck-") as folder:
        program = str(build(target, Path(folder), cflags))
        done = {"ref"}
        for prefix in target.run:
            listing = subprocess.run([*prefix, program], capture_output=True, text=True).stdout
            for level in listing.split(":")[-1].split():
                if level in done or (target.levels and level not in target.levels):
                    continue
                done.add(level)
                print(f"{name}: ", end="", flush=True)
                equal &= subprocess.run([*prefix, program, level]).returncode == 0
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*", help="native, simde, qemu (default: those that can be built here)")
    parser.add_argument("--cflags", default="", help="more flags for the compiler, such as -fsanitize=undefined")
    parser.add_argument("--list", action="store_true", help="print the targets that can be built here")
    args = parser.parse_args()
    known = targets()
    if args.list:
        print(*known)
        return
    for name in args.target or known:
        if name not in known:
            print(f"{name}: cannot be built here; can be: {', '.join(known) or 'none'}", file=sys.stderr)
            raise SystemExit(2)
    try:
        results = [check(name, known[name], shlex.split(args.cflags)) for name in args.target or known]
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
