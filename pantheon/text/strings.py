"""String methods, operators and formatting for templates: bounded in what they make, and keeping the marks of
provenance.py. The METHODS table is all that a template can call on a string."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from markupsafe import Markup

from pantheon.text import provenance as prov
from pantheon.text.budget import Budget, BudgetExceeded

MAX_WIDTH = 1000  # of any padded field
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
    "%": operator.mod,
}
_CONVERSION = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?[-#0 +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<kind>.)", re.DOTALL
)


def to_text(budget: Budget, value: Any) -> str:
    """str(value) for plain data and undefined values; other objects have no text."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, Undefined)):
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        budget.container(value)
        budget.characters(_printed_length(value))
        return str(value)
    raise SecurityError(f"a {type(value).__name__} cannot be printed")


def json_length(value: Any, indent: int) -> int:
    """Upper bound of the JSON text of a container that Budget.container has passed."""
    return _printed_length(value, indent * (Budget.MAX_DEPTH if indent else 0))


def _printed_length(value: Any, margin: int = 0) -> int:
    """Upper bound of len(repr(value)) for a container that Budget.container has passed; margin: added per line."""
    total, stack = 0, [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(node.keys())
            stack.extend(node.values())
            total += 4 + 4 * len(node)
        elif isinstance(node, (list, tuple)):
            stack.extend(node)
            total += 4 + 2 * len(node)
        else:
            total += 10 * len(node) + 2 if isinstance(node, str) else 2048 if type(node) is int else 64
    return total


def binary_operator(budget: Budget, symbol: str, left: Any, right: Any) -> Any:
    if symbol == "+" and isinstance(left, str) and isinstance(right, str):
        budget.characters(len(left) + len(right))
        return prov.concat((left, right))
    if symbol == "%" and isinstance(left, str):
        return printf(budget, left, right)
    if symbol == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.items(len(left) + len(right))
    elif symbol == "*":
        left, right = (right, left) if isinstance(right, (str, list, tuple)) else (left, right)
        if isinstance(left, (str, list, tuple)) and isinstance(right, int):
            return _repeat(budget, left, right)
        _check_bits(budget, left, right, lambda a, b: a + b)
    elif symbol == "**":
        _check_bits(budget, left, right, lambda a, b: a * max(1, abs(right)))
    else:
        budget.tick()
    return _OPERATORS[symbol](left, right)


def _repeat(budget: Budget, value: Any, times: int) -> Any:
    n = len(value) * max(0, times)
    if not isinstance(value, str):
        budget.items(n)
        return value * times
    budget.characters(n)
    return prov.marked(str.__mul__(value, times), prov.mask_of(value) * times)


def _check_bits(budget: Budget, left: Any, right: Any, bits: Callable[[int, int], int]) -> None:
    if isinstance(left, int) and isinstance(right, int):
        budget.integer_bits(bits(left.bit_length(), right.bit_length()))
    budget.tick()


# -- formatting


def printf(budget: Budget, template: str, values: Any) -> str:
    """template % values, one conversion at a time."""
    if not isinstance(values, (tuple, dict)):
        values = (values,)
    positional = list(values) if isinstance(values, tuple) else None
    parts: list[str] = []
    at = 0
    for m in _CONVERSION.finditer(template):
        parts.append(template[at : m.start()])
        at = m.end()
        if m["kind"] == "%":
            parts.append("%")
            continue
        for size in (m["width"], m["precision"]):
            if size and (size == "*" or len(size) > 4 or int(size) > MAX_WIDTH):
                raise BudgetExceeded(f"template formats a field wider than {MAX_WIDTH}")
        if m["key"] is not None:
            if not isinstance(values, dict):
                raise TypeError("format requires a mapping")
            value = values[m["key"]]
        elif positional:
            value = positional.pop(0)
        else:
            raise TypeError("not enough arguments for format string")
        conversion = "%" + m[0][m[0].index(")") + 1 if m["key"] is not None else 1 :]
        if conversion == "%s":
            parts.append(to_text(budget, value))
            continue
        if m["kind"] in "sra":
            value = to_text(budget, value)
        elif not isinstance(value, (int, float)):
            raise TypeError(f"%{m['kind']} needs a number, not {type(value).__name__}")
        parts.append(str.__mod__(conversion, (value,)))
        budget.characters(len(parts[-1]))
    if positional and isinstance(values, tuple):
        raise TypeError("not all arguments converted during string formatting")
    parts.append(template[at:])
    budget.characters(sum(map(len, parts)))
    return prov.concat(parts)


class _Formatter(Formatter):
    """str.format over the environment's own attribute access."""

    def __init__(self, environment: Any):
        self._environment = environment

    def get_field(self, field_name, args, kwargs):
        first, *rest = re.split(r"[.\[]", field_name.replace("]", ""))
        value = self.get_value(int(first) if first.isdigit() else first, args, kwargs)
        for name in rest:
            value = self._environment.getitem(value, int(name) if name.isdigit() else name)
        return value, first


def format_method(environment: Any, template: str, *args: Any, **kwargs: Any) -> str:
    budget: Budget = environment.budget
    formatter = _Formatter(environment)
    # Doubled braces change positions, so the literal parts keep their marks only if all of template has them.
    own = prov.template_text if 0 not in prov.mask_of(template) else str
    parts: list[str] = []
    for counter, (literal, field, spec, conversion) in enumerate(_fields(template)):
        parts.append(own(literal))
        if field is None:
            continue
        value, _ = formatter.get_field(field or str(counter), args, kwargs)
        if "{" in spec:
            raise SecurityError("a format width cannot be a field")
        if any(int(n[-5:]) > MAX_WIDTH or len(n) > 5 for n in re.findall(r"\d+", spec)):
            raise BudgetExceeded(f"template formats a field wider than {MAX_WIDTH}")
        if conversion or not isinstance(value, (int, float)):
            value = to_text(budget, value)
        if conversion in ("r", "a"):
            budget.characters(10 * len(value))
            value = repr(str(value))
        piece = value if isinstance(value, str) and not spec else format(value, spec)
        budget.characters(len(piece))
        parts.append(piece)
    budget.characters(sum(map(len, parts)))
    return prov.concat(parts)


def _fields(template: str) -> Iterable[tuple[str, str | None, str, str | None]]:
    """(literal, field, spec, conversion) with automatic numbers filled in."""
    number = 0
    for literal, field, spec, conversion in Formatter().parse(template):
        if field is not None and (not field or field[0] in ".["):
            field, number = f"{number}{field}", number + 1
        yield literal, field, spec or "", conversion


# -- methods: function(environment, value, *arguments)


def _text_argument(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a str is needed, not {type(value).__name__}")
    return value


def _strip(left: bool, right: bool) -> Callable[..., str]:
    def method(environment: Any, value: str, chars: str | None = None) -> str:
        environment.budget.characters(len(value))
        return prov.strip(value, chars, left, right)

    return method


def _case(change: Callable[[str], str]) -> Callable[..., str]:
    def method(environment: Any, value: str) -> str:
        environment.budget.characters(3 * len(value))  # a character may become three
        return prov.change_case(value, change(value))

    return method


def _split(function: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def method(environment: Any, value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        environment.budget.characters(len(value))
        pieces = str.count(value, sep) + 1 if sep else len(value) // 2 + 1
        if maxsplit >= 0:
            pieces = min(pieces, maxsplit + 1)
        environment.budget.items(pieces)
        return prov.cut_at(value, function(value, sep, maxsplit), len(sep) if sep is not None else None)

    return method


def _splitlines(environment: Any, value: str, keepends: bool = False) -> list[str]:
    environment.budget.characters(len(value))
    environment.budget.items(len(value) if len(value) < 4096 else sum(1 for _ in re.finditer(r"\s", value)) + 1)
    lines = prov.cut_at(value, str.splitlines(value, True), 0)
    return lines if keepends else [line[: len(str.splitlines(line)[0])] for line in lines]


def _partition(function: Callable[[str, str], tuple[str, str, str]]) -> Callable[..., tuple[str, ...]]:
    def method(environment: Any, value: str, sep: str) -> tuple[str, ...]:
        environment.budget.characters(len(value))
        return tuple(prov.cut_at(value, list(function(value, sep)), 0))

    return method


def replace(environment: Any, value: str, old: str, new: str, count: int = -1) -> str:
    found = str.count(value, _text_argument(old))
    if count >= 0:
        found = min(found, count)
    environment.budget.characters(len(value) + found * max(0, len(_text_argument(new)) - len(old)))
    environment.budget.items(found)
    return prov.replace(value, old, new, count)


def join(environment: Any, value: str, parts: Iterable[Any]) -> str:
    budget: Budget = environment.budget
    if isinstance(parts, str):
        budget.items(len(parts))
    texts: list[str] = []
    length = 0
    for part in parts:
        length += len(_text_argument(part)) + len(value)
        budget.characters(len(part) + len(value), total=length)
        texts.append(part)
    budget.items(len(texts))
    return prov.join(value, texts)


def _remove_prefix(environment: Any, value: str, prefix: str) -> str:
    return value[len(prefix) :] if str.startswith(value, prefix) else value


def _remove_suffix(environment: Any, value: str, suffix: str) -> str:
    return value[: len(value) - len(suffix)] if suffix and str.endswith(value, suffix) else value


def _pad(function: Callable[..., str]) -> Callable[..., str]:
    def method(environment: Any, value: str, width: int, *fill: str) -> str:
        if width > MAX_WIDTH + len(value):
            raise BudgetExceeded(f"template pads a text by more than {MAX_WIDTH}")
        environment.budget.characters(max(len(value), width))
        return function(value, width, *fill)

    return method


def _query(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(environment: Any, value: str, *args: Any) -> Any:
        environment.budget.tick()
        return function(value, *args)

    return method


_QUERIES = (
    "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower",
    "isnumeric", "isspace", "istitle", "isupper", "rfind", "rindex", "startswith",
)  # fmt: skip

METHODS: dict[str, Callable[..., Any]] = {
    "strip": _strip(True, True),
    "lstrip": _strip(True, False),
    "rstrip": _strip(False, True),
    **{name: _case(getattr(str, name)) for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold")},
    "split": _split(str.split),
    "rsplit": _split(str.rsplit),
    "splitlines": _splitlines,
    "partition": _partition(str.partition),
    "rpartition": _partition(str.rpartition),
    "replace": replace,
    "join": join,
    "format": format_method,
    "removeprefix": _remove_prefix,
    "removesuffix": _remove_suffix,
    **{name: _pad(getattr(str, name)) for name in ("center", "ljust", "rjust", "zfill")},
    **{name: _query(getattr(str, name)) for name in _QUERIES},
}


def unmarked(value: Any) -> Any:
    """Markup that a library function returned as plain text."""
    return str.__str__(value) if isinstance(value, (Markup, prov.Text)) else value
