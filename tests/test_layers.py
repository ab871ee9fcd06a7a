"""The house: every import of the sources goes down the floors, and no file is in a circle with another.

A floor is a folder or a file. What lies on one floor side by side does not import one another; files of one folder may.
"""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(p for p in (ROOT / "pantheon").rglob("*") if p.suffix in (".py", ".pyx", ".pxd"))

# From the ground up. A module belongs to the longest name that it begins with.
FLOORS = [
    ["pantheon._version", "pantheon._imports", "pantheon.regular_file", "pantheon.verdict", "pantheon._core.types"],
    ["pantheon._core.base"],
    ["pantheon._core.kernels"],
    ["pantheon._core.files"],
    ["pantheon._core.memory", "pantheon._core.sampling"],
    ["pantheon._core.layers"],
    ["pantheon._core.load"],
    ["pantheon._core.arch"],
    ["pantheon._core"],                                     # engine, registry, admit_steps
    ["pantheon._core.python", "pantheon._core.probes"],
    ["pantheon.config"],
    ["pantheon.errors"],
    ["pantheon.admission"],
    ["pantheon.prefix_cache"],
    ["pantheon.text"],
    ["pantheon.text_model"],
    ["pantheon.generate"],
    ["pantheon.model"],
    ["pantheon"],                                           # what `import pantheon` and `cimport pantheon` give
    ["pantheon.bench", "pantheon.convert", "pantheon.hub"],
    ["pantheon.cli"],
]
RANK = {name: rank for rank, names in enumerate(FLOORS) for name in names}

# module -> what it may import although that lies higher, and why.
EXCEPTIONS = {
    ("pantheon._core", "pantheon._core.base.logging_bridge"),       # importing the engine connects its log
}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in SOURCES}


def floor_of(module):
    """The name in FLOORS that a module belongs to."""
    while module not in RANK:
        module = module.rpartition(".")[0]
    return module


def statements(text):
    """(module, names) of each import and cimport of the package."""
    for found in re.finditer(r"^[ \t]*from[ \t]+(pantheon[\w.]*)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]*)", text,
                             re.MULTILINE):
        names = re.sub(r"#[^\n]*", "", found[2]).strip("() \n")
        yield found[1], [name.split(" as ")[0].strip() for name in names.split(",") if name.strip()]
    for found in re.finditer(r"^[ \t]*c?import[ \t]+(pantheon[\w., ]*)", text, re.MULTILINE):
        for name in found[1].split(","):
            yield name.split(" as ")[0].strip(), []


def imports(path):
    """Modules that a source imports, its own pair left out."""
    found = set()
    for module, names in statements(path.read_text("utf-8")):
        found |= {f"{module}.{name}" if f"{module}.{name}" in MODULES else module for name in names} or {module}
    return found - {module_of(path)}


GRAPH = {}
for source in SOURCES:
    GRAPH.setdefault(module_of(source), set()).update(imports(source))


def wrong(module, other):
    """Whether module must not import other."""
    if (module, other) in EXCEPTIONS or other not in MODULES and other != "pantheon":
        return False
    here, there = floor_of(module), floor_of(other)
    if here == there:
        return False
    return RANK[there] >= RANK[here]


def test_every_file_has_its_floor():
    assert len(SOURCES) > 150
    assert {floor_of(module) for module in MODULES} == set(RANK)


@pytest.mark.parametrize("module", sorted(GRAPH))
def test_imports_go_down(module):
    arrows = [f"{module} -> {other}: {floor_of(other)} is not below {floor_of(module)}"
              for other in sorted(GRAPH[module]) if wrong(module, other)]
    assert arrows == [], "\n".join(arrows)


def test_no_file_is_in_a_circle():
    state, path = {}, []

    def visit(module):
        state[module] = "open"
        path.append(module)
        for other in sorted(GRAPH.get(module, ())):
            if state.get(other) == "open":
                raise AssertionError(" -> ".join([*path[path.index(other):], other]))
            if other not in state:
                visit(other)
        path.pop()
        state[module] = "done"

    for module in sorted(GRAPH):
        if module not in state:
            visit(module)


def test_no_relative_imports():
    """They would slip past this test."""
    found = [f"{path.relative_to(ROOT)}: {line}" for path in SOURCES for line in path.read_text("utf-8").splitlines()
             if re.match(r"\s*from\s+\.", line)]
    assert found == []


def test_the_command_line_comes_up_without_the_engine():
    """What is fetched and how is no business of the engine, which may be what cannot be imported."""
    assert GRAPH["pantheon.hub"] <= {"pantheon.regular_file", "pantheon._version"}


@pytest.mark.parametrize(("module", "other"), [
    ("pantheon._core.base.pool", "pantheon._core.engine"),
    ("pantheon._core.memory.cost", "pantheon._core.sampling.params"),
    ("pantheon._core.layers.rope", "pantheon._core.arch.run"), ("pantheon._core.engine", "pantheon.errors"),
    ("pantheon.text.chat", "pantheon.generate"), ("pantheon._core.engine", "pantheon"),
])
def test_an_arrow_up_or_across_is_found(module, other):
    assert wrong(module, other)
