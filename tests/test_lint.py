"""Style of the sources, checked as tests. They read the clone that the tests stand in."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(p for p in (ROOT / "pantheon").rglob("*") if p.suffix in (".py", ".pyx", ".pxd", ".pyi"))

def test_there_is_something_to_check():
    assert (ROOT / "pyproject.toml").is_file()
    assert len(SOURCES) > 10


def check(*command):
    # cython-lint looks for its helper on the path, where a virtual environment is only when it is activated.
    env = {**os.environ, "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])}
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff():
    check("ruff", "check", "--no-cache", ".")


def test_cython_lint():
    files = [str(p) for p in SOURCES if p.suffix in (".pyx", ".pxd")]
    check("cython_lint.cython_lint", "--max-line-length", "120", *files)
