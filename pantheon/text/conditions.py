"""Tests for templates ({% if x is odd %}): Jinja's own, with what they compare or print paid for before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2.tests import TESTS

from pantheon.text import strings

_COMPARING = (
    "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt", "lessthan", "<=", "le",
)  # fmt: skip
_NUMERIC = ("odd", "even", "divisibleby")  # with a text before it, % would be formatting
_TEXTUAL = ("lower", "upper")


def table(environment: Any) -> dict[str, Callable[..., Any]]:
    """All tests by name, bound to environment."""

    def comparing(function: Callable[[Any, Any], bool]) -> Callable[..., bool]:
        return lambda value, other: function(environment.operand(value), environment.operand(other))

    def contained(value: Any, other: Any) -> bool:
        return environment.operand(value) in environment.collection(other)

    def numeric(function: Callable[..., bool]) -> Callable[..., bool]:
        def test(*values: Any) -> bool:
            if not all(isinstance(v, (int, float)) for v in values):
                raise TypeError("a number is needed")
            return function(*values)

        return test

    def textual(function: Callable[[str], bool]) -> Callable[..., bool]:
        def test(value: Any) -> bool:
            text = strings.to_text(environment.budget, value)
            environment.budget.work(len(text))
            return function(text)

        return test

    def naming(known: Callable[[], dict[str, Any]]) -> Callable[..., bool]:
        return lambda value: isinstance(value, str) and value in known()

    jinja_own: dict[str, Any] = {**TESTS}
    tests: dict[str, Callable[..., Any]] = dict(jinja_own)
    tests.update({name: comparing(jinja_own[name]) for name in _COMPARING})
    tests.update({name: numeric(jinja_own[name]) for name in _NUMERIC})
    tests.update({name: textual(jinja_own[name]) for name in _TEXTUAL})
    tests.update({"in": contained, "filter": naming(lambda: environment.filters),
                  "test": naming(lambda: environment.tests)})
    return tests
