"""What the installed distribution carries."""
import os
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = {str(path) for path in distribution("pantheon").files}


def sources(pattern):
    """Files of the clone's package, as paths from its root."""
    return {str(p.relative_to(ROOT)) for p in (ROOT / "pantheon").rglob(pattern)}


@pytest.mark.parametrize("pattern", ["*.py", "*.pxd", "*.pyi", "py.typed", "*.h"])
def test_carries(pattern):
    wanted = sources(pattern)
    assert wanted
    assert wanted <= INSTALLED


def test_every_package_can_be_cimported():
    packages = {os.path.dirname(path) for path in INSTALLED if path.endswith(".pxd")}
    assert "pantheon" in packages
    assert {f"{package}/__init__.pxd" for package in packages} <= INSTALLED


def test_carries_no_sources_of_what_is_compiled():
    assert [path for path in INSTALLED if path.endswith((".c", ".pyx", ".o"))] == []


def test_compiled_modules_are_there():
    modules = {path.removesuffix(".pyx") for path in sources("*.pyx")}
    compiled = {path.split(".")[0] for path in INSTALLED if path.endswith((".so", ".pyd"))}
    assert modules and modules == compiled


def test_license_and_command():
    dist = distribution("pantheon")
    assert any(path.endswith("licenses/LICENSE") for path in INSTALLED)
    assert dist.metadata["License-Expression"] == "Apache-2.0"
    assert [e.value for e in dist.entry_points if e.name == "pantheon"] == ["pantheon.cli:main"]
