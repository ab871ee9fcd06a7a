"""Cython extensions built in a temporary folder against the package under test, and the code that pages show."""
import importlib.util
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pantheon

ROOT = Path(__file__).resolve().parents[2]
SETUP = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(name="{name}", ext_modules=cythonize([Extension("{name}", ["{name}.pyx"])], include_path=[{include!r}]))
"""


def build(folder, name, text, include="."):
    """Compiles text as the extension `name`; the path of the module. The generated C file lies beside it."""
    (folder / f"{name}.pyx").write_text(text)
    (folder / "setup.py").write_text(SETUP.format(name=name, include=str(include)))
    site = str(Path(pantheon.__file__).resolve().parent.parent)
    result = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, capture_output=True,
                            text=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": site})
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(page):
    """The Cython code that a page shows."""
    block, = re.findall(r"^```cython\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)
    return block
