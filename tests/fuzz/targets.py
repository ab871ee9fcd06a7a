"""The seven targets: what is mutated, and what is done with it."""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cases import Case
from target_folders import make_convert, make_folders, run_convert, run_folders
from target_gguf import make_gguf, make_split, run_gguf, run_split
from target_rwkv import make_rwkv, run_rwkv
from target_text import make_templates, make_tokenizers, run_templates, run_tokenizers


@dataclass(frozen=True)
class Target:
    """make: a case from random numbers alone. run: uses its files the way a program would, in a folder that holds them;
    ends normally, with Refused, or with a finding."""

    make: Callable[[random.Random], Case]
    run: Callable[[Path, dict], None]


TARGETS = {
    "gguf": Target(make_gguf, run_gguf),
    "folders": Target(make_folders, run_folders),
    "tokenizers": Target(make_tokenizers, run_tokenizers),
    "rwkv": Target(make_rwkv, run_rwkv),
    "split": Target(make_split, run_split),
    "templates": Target(make_templates, run_templates),
    "convert": Target(make_convert, run_convert),
}
