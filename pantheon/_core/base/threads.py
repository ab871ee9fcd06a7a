"""How many threads a model gets when nobody says: what the process may use, not what the machine has."""
import os
from pathlib import Path


def physical_cores(cpuinfo="/proc/cpuinfo"):
    """Cores of this machine, hyper-threads counted once; None when the system does not say."""
    text = _text(cpuinfo)
    cores = set()
    for block in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        if "physical id" in fields and "core id" in fields:
            cores.add((fields["physical id"], fields["core id"]))
    return len(cores) or None


def cgroup_quota(proc="/proc", root="/sys/fs/cgroup"):
    """CPUs that the tightest cgroup from the process's own up to the root allows, as a float; None without a limit."""
    tightest = None
    for line in _text(Path(proc) / "self/cgroup").splitlines():
        if line.count(":") < 2:
            continue
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base, read = Path(root), _v2_quota
        elif "cpu" in controllers.split(","):
            base, read = Path(root) / "cpu", _v1_quota
        else:
            continue
        folder = base / path.lstrip("/")
        for level in [folder, *folder.parents]:
            quota = read(level)
            if quota is not None and (tightest is None or quota < tightest):
                tightest = quota
            if level == base:
                break
    return tightest


def _text(path):
    """A file of the system, "" where it cannot be read: whatever stands in it must not keep a model from loading."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, ValueError):        # ValueError: a path with a NUL
        return ""


def _v2_quota(folder):
    return _quota(*[*_text(folder / "cpu.max").split(), "", ""][:2])


def _v1_quota(folder):
    return _quota(_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip())


def _quota(quota, period):
    """CPUs that quota microseconds of every period are; None for "max", -1 and anything else that is no limit."""
    known = all(text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0 for text in (quota, period))
    return int(quota) / int(period) if known else None


def thread_count(affinity, quota, cores):
    """(threads, reason): the least of three numbers, any of which may be None, rounded down, at least 1."""
    limits = [(affinity, "CPUs this process may run on"), (quota, "CPU quota of the container"),
              (cores, "physical cores")]
    known = [(int(n), name) for n, name in limits if n is not None]
    if not known:
        return 1, "the system does not say how many CPUs there are"
    n, name = min(known, key=lambda limit: limit[0])
    return max(1, n), name


def default_threads_and_reason():
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return thread_count(affinity, cgroup_quota(), physical_cores())


def default_threads():
    return default_threads_and_reason()[0]
