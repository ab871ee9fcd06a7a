"""What the installed distribution carries, and whether its types tell the truth."""
import os
import subprocess
import sys
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


def test_carries_the_cuda_sources():
    assert sources("*.cu") <= INSTALLED


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


def run(*command, cwd):
    """Runs a module away from the clone, so that it finds the installed package."""
    result = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_stubs_agree_with_the_compiled_modules(tmp_path):
    """Every name, parameter and default that a .pyi declares is what the module has."""
    stubs = sorted(path for path in sources("*.pyi") if not path.endswith("__init__.pyi"))
    modules = [path.removesuffix(".pyi").replace("/", ".") for path in stubs]
    assert modules
    # What Cython adds to modules and classes is in no stub, nor that every extension type is a disjoint base.
    allowed = [
        r".*\.__init__",                        # written as __cinit__, whose parameters nothing shows at run time
        r"pantheon\._core\.sampler\.logprobs",  # its overloads say that one of two optional arguments must be given
    ]
    (tmp_path / "allow").write_text("\n".join(allowed))
    run("mypy.stubtest", "--ignore-missing-stub", "--ignore-disjoint-bases", "--allowlist", "allow",
        "--ignore-unused-allowlist", *modules, cwd=tmp_path)


def test_types_of_the_command_line_and_the_converter(tmp_path):
    """What the command line and the converter say of the Python API, and of themselves."""
    run("mypy", "--follow-imports", "silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache"),
        "-p", "pantheon.cli", "-p", "pantheon.convert", "-m", "pantheon.hub", cwd=tmp_path)
