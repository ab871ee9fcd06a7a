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
        print(json.dumps(report, indent=2))
        return 0
    del report["processor"]["types"]    # all of them: for programs; slower_types is what a reader looks for
    for section, facts in report.items():
        terminal.title(section)
        terminal.table([[f"  {name.replace('_', ' ')}", _text(name, value)] for name, value in facts.items()])
    return 0


def collect() -> dict[str, dict[str, Any]]:
    """Sections of facts, all plain JSON values; names that end in _bytes are numbers of bytes."""
    import pantheon
    from pantheon._core.threads import default_threads_and_reason

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


def memory() -> dict[str, int | None]:
    """Bytes of memory that this machine has and that are free to take, before any container limit."""
    total: int | None
    available: int | None
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            lines = dict(line.split(":", 1) for line in f)
        total, available = (int(lines[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        total = available = None
    return {"total_bytes": total, "available_bytes": available}


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
