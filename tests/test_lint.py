"""Style and layering of the sources, checked as tests. They read the clone that the tests stand in."""
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(p for p in (ROOT / "pantheon").rglob("*") if p.suffix in (".py", ".pyx", ".pxd", ".pyi"))

# Folder or file of pantheon/ -> what it must not import: imports go down only.
UPPER = {
    "_core": ("text", "generate", "serve", "cli", "hub", "cuda"),
    "text": ("generate", "serve", "cli", "hub"),
    "convert": ("generate", "serve", "cli", "hub"),
    "hub.py": ("text", "generate", "serve", "cli", "_core"),
    "generate.py": ("serve", "cli", "hub"),
    "bench.py": ("serve", "cli", "hub"),
}


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


@pytest.mark.parametrize("part", UPPER)
def test_imports_go_down_only(part):
    upper = "|".join(UPPER[part])
    pattern = re.compile(rf"^\s*(?:from\s+pantheon\.(?:{upper})\b|from\s+pantheon\s+c?import\s+(?:{upper})\b"
                         rf"|c?import\s+pantheon\.(?:{upper})\b)", re.MULTILINE)
    found = []
    for path in SOURCES:
        if path.relative_to(ROOT / "pantheon").parts[0] == part:
            found += [f"{path.relative_to(ROOT)}: {m.group().strip()}"
                      for m in pattern.finditer(path.read_text("utf-8"))]
    assert found == []
