"""Style of the sources, checked as tests. They read the clone that the tests stand in."""
import ast
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


def imported(folder):
    """First names of all modules that a folder's files import."""
    nodes = [node for path in (ROOT / folder).rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    return {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names} | {
        node.module.partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}


def test_tools_and_tests_do_not_import_one_another():
    """What one has for the other lies in files: tests/fixtures, and the programs of both."""
    tools = {path.stem for path in (ROOT / "tools").glob("*.py")} | {"tools", "tiny", "peers"}
    by_tools, by_tests = imported("tools"), imported("tests")
    assert "tiny" in by_tools and "support" in by_tests
    assert not by_tools & {"tests", "support"} and not by_tests & tools
