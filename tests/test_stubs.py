"""What the stubs say of the compiled modules, and what type checkers make of the package with them."""
import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pantheon

PACKAGE = Path(__file__).resolve().parents[1] / "pantheon"
PROBES = "_core.probes."    # for tests and benchmarks alone

# What is in a compiled module and in no stub: what Cython adds, tables that only the module itself reads, and extension
# types that carry a C pointer from one module to another.
UNDECLARED = re.compile(r"\S+\.(__pyx_capi__|__test__|__(reduce|setstate)_cython__|[A-Z][A-Z0-9_]*"
                        r"|[A-Za-z]+Handle|TensorBytes) is not present in stub")
ALLOWED = [
    r".*\.__init__",                        # written as __cinit__, whose parameters nothing shows at run time
    r"pantheon\._core\.sampling\.sampler\.logprobs",  # its overloads: one of two optional arguments must be given
]


def modules(pattern):
    """Names of the modules whose sources in the clone fit."""
    return sorted(".".join(("pantheon", *path.relative_to(PACKAGE).with_suffix("").parts))
                  for path in PACKAGE.rglob(pattern))


def for_python(module):
    """The functions of a module, and its classes that have something to call or read, but for private ones."""
    own = {name: value for name, value in vars(module).items()
           if not name.startswith("_") and callable(value) and value.__module__ == module.__name__}
    return [name for name, value in own.items()
            if not isinstance(value, type) or any(not attribute.startswith("_") for attribute in vars(value))]


def run(*command, cwd):
    """What a Python program prints that runs in cwd, and its exit status."""
    result = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True)
    return result.stdout + result.stderr, result.returncode


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy on arguments; returns what it says and its exit status."""
    cache = tmp_path_factory.mktemp("mypy")

    def check(*arguments):
        return run("mypy", "--follow-imports", "silent", "--ignore-missing-imports", "--cache-dir", str(cache),
                   *arguments, cwd=cache)

    return check


@pytest.mark.parametrize("name", [name for name in modules("*.pyx") if PROBES not in name])
def test_a_module_with_names_for_python_has_a_stub(name):
    module = importlib.import_module(name)
    compiled = Path(module.__file__)
    assert for_python(module) == [] or compiled.with_name(compiled.name.partition(".")[0] + ".pyi").is_file()


def test_stubs_agree_with_the_compiled_modules(tmp_path):
    """Every name, parameter and default of the modules is what the stub declares, and the other way round."""
    checked = [name for name in modules("*.pyi") if not name.endswith("__init__")]
    assert len(checked) > 20
    (tmp_path / "allow").write_text("\n".join(ALLOWED))
    out, _ = run("mypy.stubtest", "--concise", "--ignore-disjoint-bases", "--allowlist", "allow", *checked,
                 cwd=tmp_path)
    lines = [line for line in out.splitlines() if not UNDECLARED.fullmatch(line)]
    assert lines == [], "\n".join(lines)
    assert "pantheon._core.base.pool.__test__ is not present in stub" in out         # so it did look


def test_the_stub_of_sampling_params_is_its_table():
    """The parameters are looked up at run time: stubtest sees neither their names nor their defaults."""
    stub = ast.parse((PACKAGE / "_core/sampling/params.pyi").read_text()).body[-1]
    init = next(node.args for node in stub.body if node.name == "__init__")
    defaults = {parameter.arg: ast.literal_eval(default)
                for parameter, default in zip(init.kwonlyargs, init.kw_defaults, strict=True)}
    fields = {**pantheon.SamplingParams()._arguments(), "logit_bias": None, "seed": None}
    assert defaults == fields and len(fields) == 26
    kinds = {parameter.arg: ast.unparse(parameter.annotation) for parameter in init.kwonlyargs}
    numbers = {name: type(value).__name__ for name, value in fields.items() if value is not None}
    assert {name: kinds[name] for name in numbers} == numbers


def test_every_public_name_has_a_type(tmp_path, mypy):
    """A name that comes from a module without a stub would be Any, which no checker complains of."""
    program = tmp_path / "names.py"
    program.write_text("import pantheon\n" + "".join(f"reveal_type(pantheon.{name})\n" for name in pantheon.__all__))
    out, _ = mypy(str(program))
    revealed = re.findall(r'Revealed type is "(.*)"', out)
    assert len(revealed) == len(pantheon.__all__), out
    assert [name for name, kind in zip(pantheon.__all__, revealed, strict=True) if kind == "Any"] == []


def test_types_of_the_package(mypy):
    """What the parts say of each other and of themselves."""
    out, status = mypy("-p", "pantheon.cli", "-p", "pantheon.convert", "-p", "pantheon.text", *(
        argument for name in modules("*.py") if name.count(".") == 1 and not name.endswith("__init__")
        for argument in ("-m", name)))
    assert status == 0, out
