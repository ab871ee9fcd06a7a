"""Writes the file: header, keys and directory by the gguf package, then the data, slab by slab.

The file takes shape under another name beside its own and gets that name when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert.types import Plan, encoded

Progress = Callable[[str, int, int], None]  # (stage, done, total) in bytes of the file


@contextlib.contextmanager
def replaced(path: Path, force: bool) -> Iterator[Path]:
    """The name to write to; the file becomes `path` at the end, and is removed when anything goes wrong."""
    refuse_existing(path, force)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        refuse_existing(path, force)
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # mkstemp's are for the owner alone
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def refuse_existing(path: Path, force: bool) -> None:
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder", str(path))
    if path.exists() and not force:
        raise FileExistsError(17, "exists already; --force replaces it", str(path))


def write_file(path: Path, writer: Any, plans: Sequence[Plan], source: SafetensorsFile, what: str,
               progress: Progress) -> None:
    """path: an existing empty file; writer: a gguf.GGUFWriter without file, with all keys; source: what the plans read
    from; what: its name, for messages."""
    total = sum(_padded(plan.nbytes, writer.data_alignment) for plan in plans)
    free = shutil.disk_usage(path.parent).free
    if total > free:
        raise OSError(28, f"the file needs {total} bytes, {free} are free on this disk", str(path.parent))
    for plan in plans:
        output = plan.output
        writer.add_tensor_info(output.name, output.shape, np.dtype(np.float32), plan.nbytes, raw_dtype=plan.kind)
    try:
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()
    done = 0
    with open(path, "ab") as file:
        _pad(file, file.tell(), writer.data_alignment)
        for plan in plans:
            written = 0
            source.check()
            for tensor, slab in plan.output.slabs():
                data = encoded(slab, plan.kind, f"{what}: tensor {tensor}")
                file.write(data.data)
                written += data.nbytes
                source.check()           # before the next slab is read
                progress("convert", done + written, total)
            assert written == plan.nbytes, plan.output.name
            done += _padded(written, writer.data_alignment)
            _pad(file, written, writer.data_alignment)
        file.flush()
        os.fsync(file.fileno())
    progress("convert", total, total)


def _padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def _pad(file: Any, n: int, alignment: int) -> None:
    file.write(b"\0" * (_padded(n, alignment) - n))
