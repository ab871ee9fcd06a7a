"""The list of levels: the sources it names, what they include, which compilers can build them, and the docs."""
import os
import platform
import re
import shlex
from pathlib import Path

import pytest

from pantheon._core.kernels import levels

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "pantheon/_core/kernels"
SHARED = ["x86"]                             # folders between kernels/ and the levels
LEVELS = {level.name: level for level in levels.read()}
SOURCES = sorted(path for path in KERNELS.rglob("*") if path.suffix in (".c", ".h"))
COMPILER = shlex.split(os.environ.get("CC", "gcc"))
ON_X86 = platform.machine() in levels.MACHINES["x86"]


def rank(path):
    """0 for kernels/ itself, 1 for what levels share, 2 for a level's own."""
    return 0 if path.parent == KERNELS else 1 if path.parent.name in SHARED else 2


def includes(path):
    """Files of the project that a source includes, found as the compiler finds them."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text("utf-8"), re.MULTILINE):
        yield next(found.resolve() for found in (path.parent / name, KERNELS / name) if found.exists())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(KERNELS)))
def test_includes_go_down(path):
    """A level includes its own files, those of kernels/ and shared ones, never another level's."""
    wrong = [str(other.relative_to(KERNELS)) for other in includes(path)
             if other.parent != path.parent and rank(other) >= rank(path)]
    assert wrong == []


def test_every_include_is_seen():
    assert sum(len(list(includes(path))) for path in SOURCES) > 150
    assert {rank(path) for path in SOURCES} == {0, 1, 2}


def test_the_list_names_every_source():
    named = {source for level in LEVELS.values() for source in level.sources}
    assert named == {str(path.relative_to(KERNELS)) for path in SOURCES if path.suffix == ".c" and rank(path) == 2}


def test_a_level_needs_what_its_base_needs():
    assert LEVELS["ref"].features == [] and LEVELS["ref"].processor is None
    assert [feature.name for feature in LEVELS["avx512"].features[:4]] == ["avx2", "fma", "f16c", "avx512f"]
    assert LEVELS["amx"].flags[-2:] == ["-mamx-tile", "-mamx-int8"]
    assert LEVELS["dotprod"].processor == "arm"
    for level in LEVELS.values():
        if level.base in LEVELS:
            assert LEVELS[level.base].features == level.features[:len(LEVELS[level.base].features)]


@pytest.mark.parametrize("level", LEVELS)
def test_the_docs_have_the_row_of_a_level(level):
    level = LEVELS[level]
    above = LEVELS[level.base].features if level.base in LEVELS else []
    needs = [f"level `{level.base}`"] if above else []
    needs += [feature.name for feature in level.features[len(above):]]
    row = f"| `{level.name}` | {', '.join(needs) or 'nothing'} | {level.own} |"
    assert row in (ROOT / "docs/levels.md").read_text("utf-8").splitlines()


def compiler_without(flag, tmp_path, rest):
    """A compiler that does `rest` when it meets a flag."""
    script = tmp_path / "cc"
    script.write_text(f"""#!/bin/sh
for word; do
    shift
    case "$word" in {flag}) {rest} ;; *) set -- "$@" "$word" ;; esac
done
exec {shlex.join(COMPILER)} "$@"
""")
    script.chmod(0o755)
    return [str(script)]


def names(compiler):
    return [level.name for level in levels.buildable(compiler, "x86_64")]


@pytest.mark.skipif(not ON_X86, reason="needs a compiler for x86")
@pytest.mark.parametrize(("flag", "lost"), [("-mamx-tile", {"amx"}), ("-mavx512vnni", {"avx512", "amx"}),
                                            ("-mavxvnni", {"avxvnni"})])
@pytest.mark.parametrize("rest", ["exit 1", ":"], ids=["refuses", "ignores"])
def test_a_level_that_a_compiler_cannot_build_is_left_out(flag, lost, rest, tmp_path):
    """Whether it refuses the flag, or takes it and does not know the instructions."""
    if rest == ":" and flag == "-mamx-tile":
        flag = "-mamx-*"
    known = names(COMPILER)
    assert lost <= set(known), "the compiler here is too old for this test"
    assert names(compiler_without(flag, tmp_path, rest)) == [name for name in known if name not in lost]
