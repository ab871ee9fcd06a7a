"""Builds the Cython modules of pantheon/ and the C kernels, each level of them with its own instruction set.

Metadata is in pyproject.toml; this file only knows how to compile. Three environment variables change the build:

PANTHEON_DEBUG=1          bounds checks, assertions, arena canaries, -O1 -g
PANTHEON_SANITIZE=a,b     compile and link with -fsanitize=a,b (address, undefined, thread)
PANTHEON_USE_THREADS=0    no thread pool: pn_model.pool is NULL and everything runs in the calling thread
"""
import os
import platform
import runpy
import shlex
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

ROOT = Path(__file__).parent
KERNELS = Path("pantheon/_core/kernels")
DEBUG = os.environ.get("PANTHEON_DEBUG", "0") == "1"
SANITIZE = os.environ.get("PANTHEON_SANITIZE", "")
USE_THREADS = os.environ.get("PANTHEON_USE_THREADS", "1") != "0"

# Products and sums are rounded where the source says so, never fused by the compiler: results must not depend on it.
CFLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Werror=format", "-Wno-unused-function"]
CFLAGS += ["-O1", "-g", "-fno-omit-frame-pointer"] if DEBUG else ["-O3", "-g0"]
LDFLAGS = []
if SANITIZE:
    CFLAGS += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined"]
    LDFLAGS += [f"-fsanitize={SANITIZE}"]

# The wheel's baseline is plain x86-64 or AArch64; a level above it is entered only after the processor and the system
# said that they support it.
LEVELS = runpy.run_path(str(ROOT / KERNELS / "levels.py"))
BUILT_LEVELS = LEVELS["buildable"](shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"),
                                   platform.machine())
DEFINES = [("PN_DEBUG", str(int(DEBUG))), ("PN_USE_THREADS", str(int(USE_THREADS)))]
KERNEL_DEFINES = [(f"PN_HAVE_{level.name.upper()}", "1") for level in BUILT_LEVELS]


class BuildExt(build_ext):
    """Compiles the kernels level by level, then links them into the module that owns the kernel table."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext):
        built = self.get_ext_fullpath(ext.name)
        if ext.name == "pantheon._core.kernels.table" and (self.force or newer_group(ext.sources + ext.depends, built)):
            for level in BUILT_LEVELS:
                ext.extra_objects += self.compiler.compile(
                    [str(KERNELS / source) for source in level.sources],
                    output_dir=str(Path(self.build_temp) / level.name),
                    macros=[*DEFINES, ("PN_LEVEL", level.name)],
                    include_dirs=[str(KERNELS)],
                    extra_preargs=CFLAGS + level.flags + ["-fPIC"],
                    depends=[str(p) for p in KERNELS.rglob("*.h")],
                )
        super().build_extension(ext)


def extensions():
    for path in sorted(Path("pantheon").rglob("*.pyx")):
        name = ".".join(path.with_suffix("").parts)
        is_table = name == "pantheon._core.kernels.table"
        yield Extension(
            name,
            [str(path)] + (sorted(str(p) for p in KERNELS.glob("*.c")) if is_table else []),
            include_dirs=[str(KERNELS), "pantheon/_core"],
            define_macros=DEFINES + (KERNEL_DEFINES if is_table else []),
            extra_compile_args=CFLAGS,
            extra_link_args=LDFLAGS,
            libraries=[] if sys.platform == "win32" else ["m", "pthread"],
            # what lies below kernels/ is only compiled into the table
            depends=[str(p) for p in Path("pantheon/_core").rglob("*.h") if is_table or KERNELS not in p.parent.parents]
            + (sorted(str(p) for p in KERNELS.rglob("*.c")) if is_table else []),
        )


os.chdir(ROOT)
setup(
    ext_modules=cythonize(
        list(extensions()),
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
            "freethreading_compatible": False,
        },
    ),
    cmdclass={"build_ext": BuildExt},
)
