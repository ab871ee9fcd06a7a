"""`pantheon doctor`: what this machine offers, what Pantheon makes of it, and why."""
import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pantheon import hub
from pantheon.cli import terminal

SUMMARY = "show the processor, memory, versions and cache that Pantheon works with"

_PACKAGES = ("pantheon", "numpy", "tokenizers", "sentencepiece", "jinja2", "rich")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    report = collect()
    if args.json:
        terminal.line(json.dumps(report, indent=2))
        return 0
    del report["processor"]["types"]    # all of them: for programs; slower_types is what a reader looks for
    for section, facts in report.items():
        terminal.title(section)
        terminal.table([[f"  {name.replace('_', ' ')}", _text(name, value)] for name, value in facts.items()])
    return 0


def collect() -> dict[str, dict[str, Any]]:
    """Sections of facts, all plain JSON values; names that end in _bytes are numbers of bytes."""
    import pantheon
    from pantheon._core.base.threads import default_threads_and_reason

    threads, reason = default_threads_and_reason()
    cpu = pantheon.cpu_info()
    model = hub.KNOWN[hub.DEFAULT_MODEL]
    path = hub.cached()
    return {
        "processor": {**cpu, "slower_types": slower_types(cpu), "threads": threads, "threads_because_of": reason},
        "memory": memory(),
        "versions": {"python": platform.python_version(), "system": platform.platform(),
                     **{name: _version(name) for name in _PACKAGES}},
        "cache": {"folder": str(hub.cache_dir()), "default_model": model.name,
                  "present": str(path) if path else f"no; `pantheon pull {model.name}` fetches it"},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("PANTHEON_")},
    }


def slower_types(cpu: dict[str, Any]) -> dict[str, list[str]]:
    """Weight types that the level in force has no vector product of its own for, by the level whose they use."""
    found: dict[str, list[str]] = {}
    for name, level in cpu["types"].items():
        if level != cpu["level"]:
            found.setdefault(level, []).append(name)
    return found


def memory() -> dict[str, Any]:
    """What this process may take, in bytes: the machine's memory, less what containers and the user hold back."""
    from pantheon import admission
    from pantheon._core.memory import memwatch
    from pantheon._core.memory.host import host_memory

    admission.start_memwatch()
    memwatch.sample()
    host = host_memory()
    state = memwatch.read()
    known = state["host_total"] > 0
    report: dict[str, Any] = {"total_bytes": state["host_total"] if known else None,
                              "available_bytes": state["host_avail"] if known else None, "level": state["level"],
                              "limited_by": "the machine" if known else "nothing that is known"}
    if host is not None:
        report |= {"machine_total_bytes": host["mem_total"], "machine_available_bytes": host["mem_available"]}
        if host["cgroup_limit"] is not None:
            report |= {"container_limit_bytes": host["cgroup_limit"], "container_used_bytes": host["cgroup_used"]}
            if host["cgroup_limit"] - host["cgroup_used"] < host["mem_available"]:
                report["limited_by"] = f"control group {host['cgroup']} (v{host['cgroup_version']})"
    if memwatch.limit() is not None:
        report |= {"limit_bytes": memwatch.limit()}
        if host is None or state["host_avail"] < host["available"]:
            report["limited_by"] = "PANTHEON_MEMORY_LIMIT"
    return report


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return terminal.size(value)
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_text(k, v)}" for k, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "none"
    return "not installed" if value is None else str(value)
