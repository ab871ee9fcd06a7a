"""Budgets are asked before anything is done: no operation runs out of memory, and none runs on for ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.hostile

ABUSE = Path(__file__).with_name("abuse.py")
KINDS = ("filters", "more filters", "conditions", "methods", "more methods", "data methods", "operators", "functions",
         "statements")
# What takes the same time whatever it is given, or one item at a time, or refuses anything but small values.
CHEAP = {
    "filters": {"count", "d", "default", "filesizeformat", "attr", "abs"},
    "more filters": {"count", "first", "last", "length", "round", "d", "default"},
    "conditions": {
        "boolean", "callable", "defined", "divisibleby", "escaped", "even", "false", "filter", "float", "integer",
        "iterable", "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test", "true", "undefined",
    },
    "operators": {"key", "item"},
    # A literal is one object however often it is kept; what has no text is refused, and numbers that share a hash.
    "statements": {"literal", "namespace shown", "macro shown", "collisions"},
}  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS and /proc are Linux")
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_under_a_memory_limit(kind):
    """Each is abused and answers with the budget's error, for its size and not only for the time it took by then. A new
    operation without an abuse that does fails here."""
    child = subprocess.run([sys.executable, ABUSE, kind], capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert child.returncode == 0, f"ended by {child.returncode} at {child.stderr[-600:]}"
    outcomes = json.loads(child.stdout)
    assert outcomes
    for defect in ("memory", "slow"):
        assert {name: found[defect] for name, found in outcomes.items() if defect in found} == {}
    assert {name for name, found in outcomes.items() if "budget" not in found} <= CHEAP.get(kind, set())
