"""What both children do: the job from the command line, the tokens to feed, the process's own memory, the answer.

A job is {"model": path, "n_prefill": N, "n_decode": M, "threads": T, "cold": bool, "peer_plain": bool}; the answer is
{"engine": name, seconds, bytes}. Unless it is cold, the same prefill and one token run untimed before the timed ones.
"""
from __future__ import annotations

import json
import random
import sys
from pathlib import Path


def job() -> dict:
    """The job that the parent gave as the only argument."""
    return json.loads(sys.argv[1])


def tokens(n_vocab: int, n: int) -> list[int]:
    """n ids, the same for both engines; low ids are left out, since control tokens live there."""
    rng = random.Random(7)
    low = min(1000, n_vocab // 2)
    return [rng.randrange(low, min(n_vocab, 32000)) for _ in range(n)]


def memory() -> dict:
    """Peak resident bytes of this process, mapped file included, and what of it is anonymous now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {f"{name}_bytes": int(fields[key].split()[0]) * 1024
            for name, key in (("peak_rss", "VmHWM"), ("anonymous", "RssAnon"))}


def answer(**fields) -> None:
    """Prints the one line that the parent reads."""
    print(json.dumps(fields), flush=True)
