"""Compares Pantheon with llama.cpp on one file: load time, prefill, decode, peak memory.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python==0.3.36   # builds llama.cpp: 10-20 min
    python tools/compare_peers.py MODEL.gguf --peer-python /tmp/peer/bin/python [--pairs 5 --prefill 512 --decode 64]

Run it with a Python that has Pantheon installed, on an otherwise idle machine. Each engine runs in a child process of
its own, in turn, and who goes first changes from pair to pair, so that a slow minute of the machine falls on both. The
file is read once before, so both find it in the page cache. A ratio is the peer's figure over ours: above 1, Pantheon
is faster or smaller. llama.cpp parses the vocabulary and may repack weights when it loads; Pantheon does neither. Both
use an f16 cache; llama.cpp's other settings are its defaults.

Where the processor has AMX, a native build of 0.3.36 can crash in its matrix product (ggml_backend_amx_mul_mat). Build
it without, by naming the instruction sets instead, for a fair comparison; --peer-plain avoids it too but is slower:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX_VNNI=ON
        -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON" pip install ...
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

PEERS = Path(__file__).resolve().parent / "peers"

FIGURES = {  # field of a child's answer -> (title, unit, factor to the unit)
    "load_s": ("load", "ms", 1e3),
    "prefill_s": ("prefill", "ms", 1e3),
    "decode_s": ("decode", "ms", 1e3),
    "peak_rss_bytes": ("peak RSS", "MiB", 2.0**-20),
    "anonymous_bytes": ("anonymous", "MiB", 2.0**-20),
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


def spread(values: list[float], form: str) -> str:
    return "  ".join(f"{value:{form}}" for value in (min(values), median(values), max(values)))


def report(pairs: list[tuple[dict, dict]], job: dict) -> None:
    """Prints min, median and max of each figure and of the ratio within each pair."""
    ours, peer = pairs[0]
    print(f"{job['model']}: {ours['engine']} and {peer['engine']}, {len(pairs)} pairs, {job['threads']} threads, "
          f"prefill {job['n_prefill']}, decode {job['n_decode']}")
    print(f"{'':16}{'ours: min median max':>32}{'peer: min median max':>32}{'ratio: min median max':>28}")
    for field, (title, unit, factor) in FIGURES.items():
        columns = [[answer[field] * factor for answer in side] for side in zip(*pairs, strict=True)]
        ratios = [theirs / mine if mine else float("inf") for mine, theirs in zip(*columns, strict=True)]
        cells = [spread(column, "9.1f") for column in columns]
        print(f"{title + ' ' + unit:16}{cells[0]:>32}{cells[1]:>32}{spread(ratios, '7.2f'):>28}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer-python", required=True, help="python of an environment with llama-cpp-python")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=int, default=64, help="single tokens after it")
    parser.add_argument("--peer-plain", action="store_true", help="llama.cpp without repacking and AMX")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if min(args.pairs, args.prefill, args.decode, args.threads) < 1:
        parser.error("pairs, prefill, decode and threads are at least 1")
    job = {"model": str(args.model.resolve()), "n_prefill": args.prefill, "n_decode": args.decode,
           "threads": args.threads, "peer_plain": args.peer_plain}
    read_once(args.model)
    sides = [(sys.executable, "child_pantheon.py"), (args.peer_python, "child_llama_cpp.py")]
    pairs = []
    for index in range(args.pairs):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        answers = {side: run(*sides[side], job) for side in order}
        pairs.append((answers[0], answers[1]))
    report(pairs, job)


if __name__ == "__main__":
    main()
