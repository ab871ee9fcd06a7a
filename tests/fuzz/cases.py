"""A case: the files of one folder and how they are to be used. Made from target, seed and number alone."""
from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path


class Special(Enum):
    """What may stand in the place of a regular file."""

    FIFO = auto()
    FOLDER = auto()
    NOWHERE = auto()       # a link to no file
    ITSELF = auto()        # a link to itself
    ZEROS = auto()         # a link to a device that never ends
    UNREADABLE = auto()    # a file without permissions; root reads it all the same


@dataclass
class Case:
    """files: content by path in the folder. options: plain data that the target's run takes."""

    files: dict[str, bytes | Special]
    options: dict = field(default_factory=dict)


def generator(target: str, seed: int, number: int) -> random.Random:
    """The random numbers of one case, the same in every process and on every machine."""
    return random.Random(f"{target}/{seed}/{number}")


def write(case: Case, folder: Path) -> None:
    """Puts the case's files, and nothing else, into the folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    for name, content in case.files.items():
        path = os.path.join(folder, name)
        if "/" in name:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, Special):
            _special(path, content)
        else:
            with open(path, "wb", buffering=0) as file:
                file.write(content)


def _special(path: str, kind: Special) -> None:
    if kind is Special.FIFO:
        os.mkfifo(path)
    elif kind is Special.FOLDER:
        os.mkdir(path)
    elif kind is Special.UNREADABLE:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0))
    else:
        targets = {Special.NOWHERE: "nowhere", Special.ITSELF: os.path.basename(path), Special.ZEROS: "/dev/zero"}
        os.symlink(targets[kind], path)
