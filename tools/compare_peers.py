"""Compares Pantheon with llama.cpp on one file: load time, prefill, decode, peak memory.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python==0.3.36   # builds llama.cpp: 10-20 min
    python tools/compare_peers.py MODEL.gguf --peer-python /tmp/peer/bin/python [--pairs 5 --prefill 512 --decode 64]

docs/benchmarks.md has figures and says what to look out for.

Run it with a Python that has Pantheon installed, on an otherwise idle machine. Each engine runs in a child process of
its own, in turn, and who goes first changes from pair to pair, so that a slow minute of the machine falls on both. The
file is read once before, so both find it in the page cache, and each runs the prompt once untimed unless --cold is
given. A ratio compares the two figures of one pair: above 1, Pantheon is faster or smaller. llama.cpp parses the
vocabulary and may repack weights when it loads; Pantheon does neither. Both use an f16 cache; llama.cpp's other
settings are its defaults.

Where the processor has AMX, a native build of 0.3.36 can crash in its matrix product (ggml_backend_amx_mul_mat). Build
it without, by naming the instruction sets instead, for a fair comparison; --peer-plain avoids it too but is slower:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX_VNNI=ON
        -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON" pip install ...
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median

PEERS = Path(__file__).resolve().parent / "peers"

BUSY = 0.3  # load average above which the machine is not called idle


def figures(job: dict) -> dict:
    """Field of a child's answer -> (title with unit, what is shown of the field's value)."""
    return {
        "load_s": ("load ms", lambda s: 1e3 * s),
        "prefill_s": ("prefill tok/s", lambda s: job["n_prefill"] / s),
        "decode_s": ("decode tok/s", lambda s: job["n_decode"] / s),
        "peak_rss_bytes": ("peak RSS MiB", lambda n: n / 2**20),
        "anonymous_bytes": ("anonymous MiB", lambda n: n / 2**20),
    }


def run(python: str, program: str, job: dict) -> dict:
    """One child's answer; its own error output goes to ours."""
    done = subprocess.run([python, str(PEERS / program), json.dumps(job)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{program} failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def read_once(path: Path) -> None:
    """Brings the file into the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def machine() -> str:
    """Processor, CPUs, memory, system and how busy it is, in one line."""
    fields = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    names = {key.strip(): value.strip() for key, value in fields}
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (f"{names.get('model name', platform.machine())}, {len(os.sched_getaffinity(0))} CPUs, {gib:.0f} GiB, "
            f"{platform.system()} {platform.release()}, load average {os.getloadavg()[0]:.2f}")


def spread(values: list[float], form: str) -> str:
    return "  ".join(f"{value:{form}}" for value in (min(values), median(values), max(values)))


def ratios(field: str, pairs: list[tuple[dict, dict]]) -> list[float]:
    """The peer's seconds or bytes over ours, pair by pair: above 1 is in our favour."""
    return [peer[field] / ours[field] if ours[field] else float("inf") for ours, peer in pairs]


def report(pairs: list[tuple[dict, dict]], job: dict) -> None:
    """Prints min, median and max of each figure and of the ratio within each pair."""
    ours, peer = pairs[0]
    print(f"{job['model']}: {ours['engine']}; {peer['engine']}; {len(pairs)} pairs, {job['threads']} threads, "
          f"prefill {job['n_prefill']}, decode {job['n_decode']}{', cold' if job['cold'] else ''}")
    print(f"{'':16}{'ours: min median max':>32}{'peer: min median max':>32}{'ratio: min median max':>28}")
    for field, (title, shown) in figures(job).items():
        cells = [spread([shown(answer[field]) for answer in side], "9.1f") for side in zip(*pairs, strict=True)]
        print(f"{title:16}{cells[0]:>32}{cells[1]:>32}{spread(ratios(field, pairs), '7.2f'):>28}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer-python", required=True, help="python of an environment with llama-cpp-python")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=int, default=64, help="single tokens after it")
    parser.add_argument("--cold", action="store_true", help="time the first pass, page faults included")
    parser.add_argument("--json", action="store_true", help="print one JSON object: machine, job, pairs, median ratios")
    parser.add_argument("--peer-plain", action="store_true", help="llama.cpp without repacking and AMX")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if min(args.pairs, args.prefill, args.decode, args.threads) < 1:
        parser.error("pairs, prefill, decode and threads are at least 1")
    job = {"model": str(args.model.resolve()), "n_prefill": args.prefill, "n_decode": args.decode,
           "threads": args.threads, "cold": args.cold, "peer_plain": args.peer_plain}
    line = machine()
    if os.getloadavg()[0] > BUSY:
        print("this machine is not idle: figures will be off", file=sys.stderr)
    read_once(args.model)
    sides = [(sys.executable, "child_pantheon.py"), (args.peer_python, "child_llama_cpp.py")]
    pairs = []
    for index in range(args.pairs):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        answers = {side: run(*sides[side], job) for side in order}
        pairs.append((answers[0], answers[1]))
    if args.json:
        medians = {field: median(ratios(field, pairs)) for field in figures(job)}
        print(json.dumps({"machine": line, "job": job, "pairs": pairs, "median_ratios": medians}, indent=2))
        return
    print(f"machine: {line}")
    report(pairs, job)


if __name__ == "__main__":
    main()
