"""Where the numbers of a folder of fixtures come from: its manifest.json.

Each model has an entry of its own with the script, the seed and the versions that made it, so that making one anew says
nothing of the others.
"""
from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path


def provenance(script: str, seed: int, packages: tuple[str, ...]) -> dict:
    """What every entry has: the script's name, the seed and the versions of the packages that are installed now."""
    return {"script": f"tools/{Path(script).name}", "seed": seed,
            "versions": {package: version(package) for package in packages}}


def update(folder: Path, entries: dict[str, dict], names: list[str]) -> None:
    """Writes the entries into folder's manifest beside those that it has, in the order of names; others are dropped."""
    path = folder / "manifest.json"
    models = json.loads(path.read_text("utf-8"))["models"] if path.exists() else {}
    models |= entries
    models = {name: models[name] for name in names if name in models}
    path.write_text(json.dumps({"models": models}, indent=1) + "\n", "utf-8")
