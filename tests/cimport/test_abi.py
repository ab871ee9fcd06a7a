"""Extensions that were compiled against another version of the package are refused when they are imported."""
import re
import shutil
from pathlib import Path

import pytest
from support.extensions import build, load

import pantheon

PACKAGE = Path(pantheon.__file__).parent
CONSUMER = """
from pantheon cimport pn_get_forward_fn, PN_ARCH_LLAMA
found = pn_get_forward_fn(PN_ARCH_LLAMA) != NULL
"""


def other_version(folder, header, pattern, replacement):
    """A copy of the package's .pxd files in which one line is another."""
    for path in [*PACKAGE.rglob("*.pxd"), *PACKAGE.rglob("__init__.py")]:
        target = folder / "pantheon" / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    path = folder / "pantheon/_core" / header
    changed, n = re.subn(pattern, replacement, path.read_text(), count=1)
    assert n == 1
    path.write_text(changed)
    return folder


def test_this_version_is_taken(tmp_path):
    assert load(build(tmp_path, "same", CONSUMER), "same").found


@pytest.mark.parametrize(("header", "pattern", "replacement"), [
    ("types.pxd", r"PN_ABI_VERSION = \d+", "PN_ABI_VERSION = 1"),
    ("types.pxd", r"PN_ABI_VERSION = \d+", "PN_ABI_VERSION = 99"),
    ("types.pxd", r"    int n_layer\n", ""),
    ("types.pxd", r"    int n_layer\n", "    int64_t n_layer\n    int64_t more\n"),
    ("types.pxd", r"    uint64_t host_rss .*\n", ""),
    ("types.pxd", r"    int n_checkpoints .*\n    int batch", "    uint64_t n_checkpoints\n    uint64_t batch"),
])
def test_another_version_is_refused(tmp_path, header, pattern, replacement):
    include = other_version(tmp_path / "other", header, pattern, replacement)
    module = build(tmp_path, "consumer", CONSUMER, include)
    with pytest.raises(ValueError, match=r"AbiVersion size changed, may indicate binary incompatibility"):
        load(module, "consumer")
