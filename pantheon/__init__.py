"""Pantheon runs large language models on the machine that is there.

    import pantheon

    with pantheon.load("model.gguf") as model:
        for chunk in model.generate("The capital of France is", max_tokens=16):
            print(chunk.text, end="")
"""
import importlib
from types import ModuleType

from pantheon._imports import whole_imports
from pantheon._version import __version__ as __version__

# Module -> what it gives this package; __init__.pyi is the same for type checkers. The engine is imported when the
# first of these names is used: the command line needs neither it nor numpy to show its help, and can say in one line
# why an import fails.
_API = {
    "_core.python.state": ("Checkpoint", "State"),
    "_core.kernels.table": ("cpu_info",),
    "_core.sampling.sampler": ("sample",),
    "_core.sampling.params": ("SamplingParams",),
    "admission": ("Reservation",),
    "config": ("Config",),
    "errors": ("AdmissionError", "BusyError", "ContextFullError", "PantheonError"),
    "generate": ("Chunk", "Generation"),
    "model": ("Model", "load"),
    "prefix_cache": (),
    "text": (),
    "verdict": ("Cost", "Verdict"),
}

__all__ = sorted(["__version__", *(name for names in _API.values() for name in names)])


def __getattr__(name: str) -> object:
    if name in _API:
        return _module(name)
    for module, names in _API.items():
        if name in names:
            globals()[name] = value = getattr(_module(module), name)
            return value
    raise AttributeError(f"module 'pantheon' has no attribute {name!r}")


def _module(name: str) -> ModuleType:
    with whole_imports:
        return importlib.import_module(f"pantheon.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
