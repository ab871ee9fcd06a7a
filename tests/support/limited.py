"""A memory cgroup of its own for a child process, where this process may make one.

As a program, `python limited.py JOIN PROGRAM...`: enters the group whose cgroup.procs file is JOIN, then runs PROGRAM,
which ends with its parent. Only what is allocated after the move is charged to the group, so nothing is before it.
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

PR_SET_PDEATHSIG = 1


class Group:
    """A cgroup with a limit in bytes; v is its version."""

    def __init__(self, folder, v, limit):
        self.folder, self.v = folder, v
        folder.mkdir()
        try:
            self.limit_file.write_text(str(limit))
            if v == 2 and (folder / "memory.swap.max").exists():
                (folder / "memory.swap.max").write_text("0")
        except BaseException:
            folder.rmdir()
            raise

    @property
    def limit_file(self):
        return self.folder / ("memory.max" if self.v == 2 else "memory.limit_in_bytes")

    @property
    def join(self):
        """What a process enters the group through."""
        return self.folder / "cgroup.procs"

    def oom_kills(self):
        """Processes of the group that the system has killed for memory."""
        text = (self.folder / ("memory.events" if self.v == 2 else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def remove(self):
        """Kills what is left in the group and removes it."""
        for _ in range(500):
            for pid in self.join.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                return self.folder.rmdir()
            except OSError:              # the dead leave a moment later
                time.sleep(0.01)
        raise RuntimeError(f"{self.folder} cannot be removed")


@contextlib.contextmanager
def memory_group(limit):
    """A Group, or None where this process may not make one. However the block ends, the group is gone afterwards."""
    with contextlib.ExitStack() as cleanup:
        for parent, v in _parents():
            with contextlib.suppress(OSError):
                group = Group(parent / f"pantheon-test-{uuid.uuid4().hex}", v, limit)
                cleanup.callback(group.remove)
                if subprocess.run([sys.executable, __file__, str(group.join), "-c", ""], capture_output=True,
                                  check=False).returncode == 0:
                    yield group
                    return
        yield None


def _parents(proc=Path("/proc/self/cgroup"), root=Path("/sys/fs/cgroup")):
    """Folders that a group with a memory limit might be made in: the root of what this process sees, where a container
    has its own group, then the process's own and those above it."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, v, sign = root / "memory", 1, "memory.limit_in_bytes"
        elif not controllers:
            base, v, sign = root, 2, "cgroup.subtree_control"
        else:
            continue
        own = base / path.lstrip("/")
        for folder in (base, own, *own.parents):
            if folder.is_relative_to(base) and (folder / sign).exists() and (
                    v == 1 or "memory" in (folder / sign).read_text().split()):
                yield folder, v


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(os.getpid()))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
