"""What `from pantheon cimport` reaches: all of the C API, by the names that the headers have."""
import re
from pathlib import Path

from support.extensions import build, load

import pantheon

CORE = Path(pantheon.__file__).parent / "_core"
ROOT = Path(__file__).resolve().parents[2]


def types():
    """Names of types.pxd: types and enumerators."""
    text = (CORE / "types.pxd").read_text()
    return {*re.findall(r"^    (PN_\w+) = ", text, re.M),
            *re.findall(r"^c(?:type)?def (?:enum|struct) (\w+)", text, re.M),
            *re.findall(r"^    ctypedef struct (\w+)", text, re.M), *re.findall(r"^ctypedef .*\(\*(\w+)\)", text, re.M)}


def functions():
    """Names of engine.pxd, where each function is declared under a line that says whether it needs the GIL."""
    text = (CORE / "engine.pxd").read_text()
    sections = text.split("\n# ---- ")[2:]           # behind the imports and the version
    assert all(re.match(r".* ----\n# (GIL|nogil)\b", section) for section in sections)
    return set(re.findall(r"^cdef [\w ]+[ *](pn_\w+)\(", text, re.M))


def exported():
    return set(re.findall(r"^    (\w+),$", (CORE.parent / "__init__.pxd").read_text(), re.M))


def test_all_of_the_headers_is_exported():
    assert types() | functions() == exported()
    assert {"PN_NO_TOKEN", "PN_KV_Q8_0", "pn_cost_of", "pn_cost_total", "pn_arch_name", "pn_memwatch_set_dies",
            "pn_log_fn", "pn_interrupt_fn", "PN_LOG_WARNING", "PN_CHAT_RWKV", "PN_ROPE_NEOX"} <= exported()


def test_the_page_lists_what_is_exported():
    listed = re.findall(r"`(\w+)`", (ROOT / "docs/cython.md").read_text().split("\n## All there is\n")[1])
    assert set(listed) == exported()
    assert [name for name in exported() if listed.count(name) > 1] == []


def test_every_name_compiles(tmp_path):
    """Functions and enumerators by their values, types by their sizes; opaque ones by a pointer's."""
    names = sorted(exported())
    values = [name for name in names if name.startswith("PN_")]
    called = [name for name in names if name in functions()]
    opaque = ("pn_arena", "fw_pool", "ft_tokenizer", "pn_reservation")
    sizes = [f"sizeof({name} *)" if name in opaque else f"sizeof({name})" for name in names
             if name not in values + called]
    text = f"""
from pantheon cimport {", ".join(names)}
cimport pantheon
values = [{", ".join(f"<long long>{name}" for name in values)}]
same = [{", ".join(f"<long long>pantheon.{name}" for name in values)}]
there = [{", ".join(f"<void *>{name} != NULL" for name in called)}]
sizes = [{", ".join(sizes)}]
"""
    module = load(build(tmp_path, "names", text), "names")
    assert module.values == module.same and dict(zip(values, module.values, strict=True))["PN_NO_TOKEN"] == 0xFFFFFFFF
    assert len(called) > 50 and all(module.there)
    assert len(sizes) > 20 and min(module.sizes) > 0
