"""The choice of the level: detection, PANTHEON_CPU, and what cpu_info tells."""
import os
import subprocess
import sys

import pytest

from pantheon._core.kernels import levels, table

SHOW_LEVEL = "from pantheon._core.kernels import table; print(table.cpu_info()['level'])"
# Levels of some machine that this one cannot run.
UNSUPPORTED = sorted({level.name for level in levels.read()} - set(table.levels_supported()))


def run_with_level(name):
    env = dict(os.environ, PANTHEON_CPU=name)
    return subprocess.run([sys.executable, "-c", SHOW_LEVEL], env=env, capture_output=True, text=True)


def test_info_is_consistent():
    info = table.cpu_info()
    assert info["levels_built"][0] == "ref"
    assert info["levels_supported"] == [level for level in info["levels_built"] if level in info["levels_supported"]]
    assert info["level"] in info["levels_supported"]
    assert set(info["types"].values()) <= set(info["levels_supported"])


def test_avx2_needs_all_of_its_features():
    info = table.cpu_info()
    has_features = {"avx2", "fma", "f16c"} <= set(info["features"])
    assert ("avx2" in info["levels_supported"]) == (has_features and "avx2" in info["levels_built"])


@pytest.mark.parametrize("level", table.levels_supported())
def test_every_level_can_be_pinned(level):
    assert run_with_level(level).stdout.strip() == level


def test_without_a_pin_the_highest_level_is_in_force():
    assert run_with_level("").stdout.strip() == table.levels_supported()[-1]


@pytest.mark.parametrize("name", ["pentium", "AVX2", "sve2", *UNSUPPORTED])
def test_unknown_or_unsupported_level_is_an_error_that_lists_the_choices(name):
    done = run_with_level(name)
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == (
        f"ValueError: PANTHEON_CPU={name}: this machine can run {', '.join(table.levels_supported())}")


@pytest.mark.parametrize("level", table.levels_supported())
def test_a_type_that_a_level_lacks_comes_from_the_next_lower_level_that_has_it(level):
    levels = table.levels_supported()
    below = levels[:levels.index(level)]
    for name in table.cpu_info()["types"]:
        source = table.type_info(name, level)["level"]
        assert source == level or source == table.type_info(name, below[-1])["level"]
