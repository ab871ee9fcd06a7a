"""`import pantheon`: light until a name of it is used, and then all of it."""
import ast
import os
import subprocess
import sys
from pathlib import Path

import pantheon


def child(code, cwd):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=env)


def test_the_engine_is_imported_with_the_first_name(tmp_path):
    done = child("import sys, pantheon\n"
                 "assert not {'numpy', 'pantheon._core'} & set(sys.modules)\n"
                 "from pantheon import *\n"
                 "assert load is pantheon.load and issubclass(AdmissionError, pantheon.errors.PantheonError)\n"
                 "assert set(pantheon.__all__) <= set(dir(pantheon))\n"
                 "try:\n    pantheon.nothing\nexcept AttributeError as e:\n    print(e)\n", tmp_path)
    assert (done.stdout, done.stderr) == ("module 'pantheon' has no attribute 'nothing'\n", "")


def test_the_stub_has_the_same_names():
    stub = ast.parse(Path(pantheon.__file__).with_suffix(".pyi").read_text("utf-8"))
    imported = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    declared = next(ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(imported) == sorted(declared) == sorted(pantheon.__all__)
    assert all(hasattr(pantheon, name) for name in pantheon.__all__)


def test_log_lines_are_routed_for_those_who_only_cimport(tmp_path):
    """A compiled module imports what it cimports, and nothing of pantheon's Python names."""
    done = child("import pantheon._core.engine\n"
                 "from pantheon._core.base.logging_bridge import emit\nemit(30, 'heard')\n", tmp_path)
    assert done.stderr == "heard\n"
