"""Levels in a program without Python, those too that this processor lacks: see tools/crosscheck.py.

The levels of this processor's own always have a test. PANTHEON_CROSSCHECK=1, which takes a minute or two, adds every
target whose compiler and emulator are here; .ci/run sets it.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pantheon._core.kernels import levels, table

TOOL = Path(__file__).resolve().parents[2] / "tools" / "crosscheck.py"

listed = subprocess.run([sys.executable, str(TOOL), "--list"], capture_output=True, text=True).stdout.split()
TARGETS = listed if os.environ.get("PANTHEON_CROSSCHECK") == "1" else ["native"]
LEVELS = {"native": set(table.levels_supported()) - {"ref"},
          "simde": {level.name for level in levels.read() if level.processor == "x86"} - {"avx2"},
          "qemu": {level.name for level in levels.read() if level.processor == "arm"}}


def test_the_machine_s_own_compiler_is_found():
    assert "native" in listed


@pytest.mark.parametrize("target", TARGETS)
def test_levels_equal_ref(target):
    done = subprocess.run([sys.executable, str(TOOL), target, "--cflags=-O1" if target == "native" else "--cflags="],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"(\w+): (\d+) values compared with ref, 0 checks differ; own products: (.*)", done.stdout)
    assert {level for level, _, _ in lines} == LEVELS[target]
    for level, compared, products in lines:
        assert int(compared) > 10**7, level
        assert {"F32", "Q4_0", "Q8_0", "Q4_K", "Q6_K"} <= set(products.split()), level


def test_a_target_that_cannot_be_built_is_named():
    done = subprocess.run([sys.executable, str(TOOL), "sparc"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("sparc: cannot be built here")
