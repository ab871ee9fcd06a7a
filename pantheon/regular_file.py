"""How files are opened that a model's folder or an argument names.

Folders come from strangers. A FIFO in the place of a file would keep a reader waiting for ever, a device would be read
without end, and what stat says of a size need not be what a read gives. So every such file is opened here.
"""

from __future__ import annotations

import os
import stat
from os import PathLike

AnyPath = str | bytes | PathLike[str] | PathLike[bytes]

_CHUNK = 1 << 20
_LFS_POINTER = b"version https://git-lfs"


def file_name(path: AnyPath) -> bytes:
    """The path as the system wants it; ValueError naming it where no file can have that name."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{path!r} is no name of a file: it has half a surrogate pair") from None
    if b"\0" in name:
        raise ValueError(f"{path!r} is no name of a file: it has a NUL byte")
    return name


def open_regular(path: AnyPath) -> int:
    """A descriptor of a regular file, open for reading; the caller closes it.

    Raises OSError (FileNotFoundError, IsADirectoryError, ...), or ValueError naming the file where it is anything else.
    """
    name = os.fsdecode(file_name(path))
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait. Regular files do not notice it.
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, "a file is needed, this is a directory", name)
    raise ValueError(f"{name}: not a regular file")


def read_start(path: AnyPath, max_bytes: int) -> bytes:
    """The first bytes of a regular file, all of a shorter one. Errors as open_regular, and if max_bytes is 24 or more
    ValueError for what Git LFS leaves in the place of a file that it has not fetched."""
    parts: list[bytes] = []
    left = max_bytes
    with open(open_regular(path), "rb", buffering=0) as file:
        try:
            while left > 0 and (part := file.read(min(left, _CHUNK))):
                parts.append(part)
                left -= len(part)
        except OSError as e:
            raise OSError(e.errno, e.strerror, os.fsdecode(path)) from None  # a read knows no names
    data = b"".join(parts)
    refuse_lfs_pointer(data, os.fsdecode(path))
    return data


def read_regular(path: AnyPath, max_bytes: int) -> bytes:
    """The content of a regular file. Errors as read_start; ValueError for a file of more than max_bytes."""
    data = read_start(path, max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{os.fsdecode(path)}: more than the {max_bytes} bytes that such a file may have")
    return data


def refuse_lfs_pointer(start: bytes, path: str) -> None:
    """start: the first bytes of a file, 24 or more."""
    if start.startswith(_LFS_POINTER):
        raise ValueError(f"{path}: this is a Git LFS pointer to a file, not the file: fetch it with git lfs pull")
