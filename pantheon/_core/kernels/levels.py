"""levels.h for Python: which sources of which kernel levels to compile, and with which flags.

For setup.py and tools/crosscheck.py, which run it by its path: nothing here needs Pantheon to be built.
"""
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
MACHINES = {"x86": {"x86_64", "AMD64"}, "arm": {"aarch64", "arm64"}}
INTRINSICS = {"x86": "immintrin.h", "arm": "arm_neon.h"}


class Feature(NamedTuple):
    """An instruction set extension."""

    name: str               # as pantheon.cpu_info() has it
    processor: str          # "x86" or "arm"
    flags: list             # that make the compiler use it
    use: str                # C statements that do, on the memory at p


class Level(NamedTuple):
    """A level of kernels."""

    name: str
    base: str               # level whose features it needs too; "none"
    features: list          # all that it needs, those of its base first
    sources: list           # paths below FOLDER, one for each family
    own: str                # what it has of its own, for the docs

    @property
    def processor(self):
        """"x86", "arm", or None for a level that runs on any."""
        return self.features[0].processor if self.features else None

    @property
    def flags(self):
        return [flag for feature in self.features for flag in feature.flags]


def read():
    """All levels, lowest first."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", (FOLDER / "levels.h").read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    features, levels = {}, {}
    for kind, row in re.findall(r"^(X86_FEATURE|ARM_FEATURE|LEVEL)\((.*?)\)$", text, re.DOTALL | re.MULTILINE):
        strings = ["".join(re.findall(r'"([^"]*)"', found)) for found in re.findall(r'"[^"]*"(?:\s*"[^"]*")*', row)]
        name, *words = (word.strip() for word in row.split(","))
        if kind == "LEVEL":
            base, needs, folder = words[:3]
            inherited = levels[base].features if base in levels else []
            own = [features[feature] for feature in re.findall(r"PN_CPU_(\w+)", needs)]
            files = re.findall(rf"FAMILY\({name}, (\w+)\)", text)
            levels[name] = Level(name, base, inherited + own, [f"{folder}/{file}.c" for file in files], strings[0])
        else:
            features[name] = Feature(strings[0], kind[:3].lower(), strings[1].split(), strings[2])
    return list(levels.values())


def buildable(compiler, machine):
    """The levels for a machine, as platform.machine() has it, less those that a compiler (a command) cannot build."""
    return [level for level in read()
            if level.processor is None or machine in MACHINES[level.processor] and compiles(compiler, level)]


def compiles(compiler, level):
    """Whether compiler and assembler know every extension of a level: by a use of each, as flags alone may mislead."""
    uses = "".join(f"void use_{feature.name}(void *p) {{ {feature.use} }}\n" for feature in level.features)
    with tempfile.TemporaryDirectory() as folder:
        command = [*compiler, *level.flags, "-Werror=implicit-function-declaration", "-x", "c", "-", "-c", "-o",
                   str(Path(folder, "use.o"))]
        source = f"#include <{INTRINSICS[level.processor]}>\n{uses}"
        return subprocess.run(command, input=source, capture_output=True, text=True).returncode == 0
