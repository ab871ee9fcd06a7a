from os import PathLike
from typing import Any

def host_memory(
    proc: str | PathLike[str] = "/proc", cgroup: str | PathLike[str] = "/sys/fs/cgroup"
) -> dict[str, Any] | None: ...
