"""String methods, operators and formatting for templates: paid for before they run, and keeping the marks of
provenance.py. METHODS and BYTES_METHODS are all that a template can call on a string."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from markupsafe import Markup

from pantheon.text import provenance as prov
from pantheon.text.budget import Budget, BudgetExceeded

MAX_WIDTH = 1000  # of any padded field
_INT_DIGITS = Budget.MAX_INT_BITS * 3 // 10 + 2
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
    "%": operator.mod,
}
_CONVERSION = re.compile(r"[-#0 +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?[hlL]?(?P<kind>.)", re.DOTALL)
_CODECS = ("utf-8", "utf8", "ascii", "latin-1", "latin1", "iso-8859-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32")


def to_text(budget: Budget, value: Any) -> str:
    """str(value) for plain data and undefined values; other objects have no text."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, Undefined)):
        return str(value)
    if isinstance(value, (list, tuple, dict, bytes, range)):
        budget.characters(printed_length(budget, value))
        return str(value)
    raise SecurityError(f"a {type(value).__name__} cannot be printed")


def printed_length(budget: Budget, value: Any, margin: int = 0) -> int:
    """Upper bound of len(repr(value)); margin: characters added per line. Only plain data can be printed."""
    budget.work(budget.walk(value))
    total, stack = margin, [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(node.keys())
            stack.extend(node.values())
            total += 4 + (4 + margin) * len(node)
        elif isinstance(node, (list, tuple)):
            stack.extend(node)
            total += 4 + (2 + margin) * len(node)
        elif isinstance(node, str):
            total += 2 + len(node) * _escape_length(node)
        elif isinstance(node, bytes):
            total += 3 + 4 * len(node)
        elif node is None or isinstance(node, (int, float, range, Undefined)):
            total += _INT_DIGITS if type(node) is int else 3 * _INT_DIGITS if isinstance(node, range) else 64
        else:
            raise SecurityError(f"a {type(node).__name__} cannot be printed")
    return total


def _escape_length(text: str) -> int:
    """Most characters that repr or JSON write for one of text."""
    if text.isprintable():
        return 2
    return 6 if text.isascii() or "".join(str.split(text)).isprintable() else 10


def binary_operator(budget: Budget, symbol: str, left: Any, right: Any) -> Any:
    if symbol == "+" and isinstance(left, str) and isinstance(right, str):
        budget.characters(len(left) + len(right))
        return prov.concat((left, right))
    if symbol == "%" and isinstance(left, str):
        return printf(budget, left, right)
    if isinstance(left, bytes) and symbol == "%":
        raise TypeError("bytes cannot be formatted")
    if symbol == "*" and isinstance(right, (str, list, tuple, bytes)):
        left, right = right, left
    if isinstance(left, (str, list, tuple, bytes)):
        if symbol == "*" and isinstance(right, int):
            return _repeat(budget, left, right)
        if symbol == "+" and isinstance(right, bytes):
            budget.characters(len(left) + len(right))
        elif symbol == "+" and isinstance(right, (list, tuple)):
            budget.items(len(left) + len(right))
    elif isinstance(left, int) and isinstance(right, int):
        a, b = left.bit_length(), right.bit_length()
        budget.integer_bits(a + b if symbol == "*" else a * max(1, abs(right)) if symbol == "**" else max(a, b) + 1)
    budget.tick()
    return _OPERATORS[symbol](left, right)


def _repeat(budget: Budget, value: Any, times: int) -> Any:
    n = len(value) * max(0, times)
    if isinstance(value, (list, tuple)):
        budget.items(n)
        return value * times
    budget.characters(n)
    if isinstance(value, bytes):
        return value * times
    return prov.marked(str.__mul__(value, times), prov.mask_of(value) * times)


# -- formatting


def printf(budget: Budget, template: str, values: Any) -> str:
    """template % values, one conversion at a time."""
    if not isinstance(values, (tuple, dict)):
        values = (values,)
    positional = iter(values) if isinstance(values, tuple) else None
    parts: list[str] = []
    at = 0
    while (start := str.find(template, "%", at)) >= 0:
        parts.append(template[at:start])
        key = None
        begin = start + 1
        if str.startswith(template, "(", begin):
            end = str.find(template, ")", begin)
            if end < 0:
                raise ValueError("incomplete format key")
            key, begin = str.__str__(template[begin + 1 : end]), end + 1
        m = _CONVERSION.match(template, begin)
        if m is None:
            raise ValueError("incomplete format")
        at = m.end()
        if m["kind"] == "%":
            parts.append("%")
            continue
        for size in (m["width"], m["precision"]):
            if size and (size == "*" or len(size) > 4 or int(size) > MAX_WIDTH):
                raise BudgetExceeded(f"template formats a field wider than {MAX_WIDTH}")
        if key is not None:
            if not isinstance(values, dict):
                raise TypeError("format requires a mapping")
            value = values[key]
        else:
            value = next(positional, _NOTHING) if positional is not None else values
            if value is _NOTHING:
                raise TypeError("not enough arguments for format string")
        if len(m[0]) > 64:
            raise ValueError("format with too many flags")
        parts.append(_formatted(budget, "%" + str.__str__(m[0]), m["kind"], value))
        budget.characters(len(parts[-1]))
    if positional is not None and next(positional, _NOTHING) is not _NOTHING:
        raise TypeError("not all arguments converted during string formatting")
    parts.append(template[at:])
    budget.characters(sum(map(len, parts)))
    return prov.concat(parts)


_NOTHING = object()


def _formatted(budget: Budget, conversion: str, kind: str, value: Any) -> str:
    if kind in "sra":
        if kind != "s":
            budget.characters(printed_length(budget, value))
            value, kind = {"r": repr, "a": ascii}[kind](value), "s"
        value = to_text(budget, value)
        if conversion == "%s":
            return value
        budget.characters(len(value) + MAX_WIDTH)
        return str.__mod__(conversion[:-1] + kind, (value,))
    if not isinstance(value, (int, float)) and not (kind == "c" and isinstance(value, str)):
        raise TypeError(f"%{kind} needs a number, not {type(value).__name__}")
    return str.__mod__(conversion, (value,))


class _Formatter(Formatter):
    """str.format over the environment's own attribute access."""

    def __init__(self, environment: Any):
        self._environment = environment

    def get_field(self, field_name, args, kwargs):
        self._environment.budget.items(len(field_name))
        first, *rest = re.split(r"[.\[]", field_name.replace("]", ""))
        value = self.get_value(int(first) if first.isdigit() else first, args, kwargs)
        for name in rest:
            value = self._environment.getitem(value, int(name) if name.isdigit() else name)
        return value, first


def format_method(environment: Any, template: str, *args: Any, **kwargs: Any) -> str:
    return _format(environment, template, args, kwargs)


def _format_map(environment: Any, template: str, mapping: Mapping[str, Any]) -> str:
    if not isinstance(mapping, dict):
        raise TypeError("format_map needs a mapping")
    return _format(environment, template, (), mapping)


def _format(environment: Any, template: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    budget: Budget = environment.budget
    formatter = _Formatter(environment)
    # Doubled braces change positions, so the literal parts keep their marks only if all of template has them.
    own = prov.template_text if 0 not in prov.mask_of(template) else str
    parts: list[str] = []
    for counter, (literal, field, spec, conversion) in enumerate(_fields(template)):
        budget.characters(len(literal))
        parts.append(own(literal))
        if field is None:
            continue
        value, _ = formatter.get_field(field or str(counter), args, kwargs)
        if "{" in spec:
            raise SecurityError("a format width cannot be a field")
        if any(len(n) > 5 or int(n) > MAX_WIDTH for n in re.findall(r"\d+", spec)):
            raise BudgetExceeded(f"template formats a field wider than {MAX_WIDTH}")
        if conversion in ("r", "a"):
            budget.characters(printed_length(budget, value))
            value = repr(value) if conversion == "r" else ascii(value)
        elif conversion or not isinstance(value, (int, float)):
            value = to_text(budget, value)
        budget.characters(len(value) + MAX_WIDTH if isinstance(value, str) else MAX_WIDTH)
        parts.append(value if isinstance(value, str) and not spec else format(value, spec))
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
        environment.budget.work(len(value) * (len(_text_argument(chars)) if chars is not None else 1))
        environment.budget.characters(len(value))
        return prov.strip(value, chars, left, right)

    return method


def _case(change: Callable[[str], str]) -> Callable[..., str]:
    def method(environment: Any, value: str) -> str:
        environment.budget.characters(3 * len(value))  # a character may become three
        return prov.change_case(value, change(value))

    return method


def _split(function: Callable[..., list[str]], backwards: bool) -> Callable[..., list[str]]:
    def method(environment: Any, value: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        budget: Budget = environment.budget
        budget.work(len(value) * _factor(sep, backwards))
        budget.characters(len(value))
        pieces = str.count(value, sep) + 1 if sep else len(value) // 2 + 1
        if not sep and pieces > 4096:
            pieces = sum(1 for _ in re.finditer(r"\S+", value))
        if maxsplit >= 0:
            pieces = min(pieces, maxsplit + 1)
        budget.items(pieces)
        budget.reserve(pieces * budget.OBJECT)
        return prov.cut_at(value, function(value, sep, maxsplit), len(sep) if sep is not None else None)

    return method


def _factor(sep: Any, backwards: bool) -> int:
    """Steps per character of a search: forwards it is linear, backwards it may look at all of sep each time."""
    return max(1, len(sep)) if backwards and isinstance(sep, str) else 1


def _splitlines(environment: Any, value: str, keepends: bool = False) -> list[str]:
    budget: Budget = environment.budget
    budget.characters(2 * len(value))
    pieces = len(value) if len(value) < 4096 else sum(1 for _ in re.finditer(r"\s", value)) + 1
    budget.items(pieces)
    budget.reserve(pieces * budget.OBJECT)
    lines = prov.cut_at(value, str.splitlines(value, True), 0)
    return lines if keepends else [line[: len(str.splitlines(line)[0])] for line in lines]


def _partition(function: Callable[[str, str], tuple[str, str, str]], backwards: bool) -> Callable[..., tuple[str, ...]]:
    def method(environment: Any, value: str, sep: str) -> tuple[str, ...]:
        environment.budget.work(len(value) * _factor(sep, backwards))
        environment.budget.characters(len(value))
        return tuple(prov.cut_at(value, list(function(value, sep)), 0))

    return method


def replace(environment: Any, value: str, old: str, new: str, count: int = -1) -> str:
    budget: Budget = environment.budget
    found = str.count(value, _text_argument(old))
    if count >= 0:
        found = min(found, count)
    budget.characters(len(value) + found * max(0, len(_text_argument(new)) - len(old)))
    if prov.is_marked(value) or prov.is_marked(new):  # cut into pieces and joined again
        budget.items(2 * found)
        budget.reserve(2 * found * budget.OBJECT)
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
    environment.budget.characters(len(value))
    return value[len(prefix) :] if str.startswith(value, _text_argument(prefix)) else value


def _remove_suffix(environment: Any, value: str, suffix: str) -> str:
    environment.budget.characters(len(value))
    return value[: len(value) - len(suffix)] if suffix and str.endswith(value, _text_argument(suffix)) else value


def _pad(function: Callable[..., str]) -> Callable[..., str]:
    def method(environment: Any, value: str, width: int, *fill: str) -> str:
        if width > MAX_WIDTH + len(value):
            raise BudgetExceeded(f"template pads a text by more than {MAX_WIDTH}")
        environment.budget.characters(max(len(value), width))
        return function(value, width, *fill)

    return method


def _expandtabs(environment: Any, value: str, tabsize: int = 8) -> str:
    if tabsize > MAX_WIDTH:
        raise BudgetExceeded(f"template pads a text by more than {MAX_WIDTH}")
    tabs = str.count(value, "\t")
    environment.budget.characters(len(value) + tabs * max(0, tabsize))
    environment.budget.items(2 * tabs)
    environment.budget.reserve(2 * tabs * environment.budget.OBJECT)
    parts, column, at = [], 0, 0
    for m in re.finditer(r"[\t\n\r]", value):
        column += m.start() - at
        if m[0] == "\t":
            width = tabsize - column % tabsize if tabsize > 0 else 0
            parts += [value[at : m.start()], prov.marked(" " * width, prov.mask_of(value[m.start()]) * width)]
            column, at = column + width, m.end()
        else:
            parts.append(value[at : m.end()])
            column, at = 0, m.end()
    return prov.concat([*parts, value[at:]])


def _encode(environment: Any, value: str, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    environment.budget.characters(10 * len(value))  # what the errors handlers make of a character
    return str.encode(value, _codec(encoding), errors)


def _decode(environment: Any, value: bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    environment.budget.characters(4 * len(value))
    return value.decode(_codec(encoding), errors)


def _hex(environment: Any, value: bytes) -> str:
    environment.budget.characters(2 * len(value))
    return value.hex()


def _codec(name: str) -> str:
    if _text_argument(name).lower().replace("_", "-") not in _CODECS:
        raise LookupError(f"unknown encoding: {name[:100]}")
    return name


def _query(name: str) -> Callable[..., Any]:
    function, backwards = getattr(str, name), name.startswith("r")

    def method(environment: Any, value: str, *args: Any) -> Any:
        environment.budget.work(len(value) * _factor(args[0] if args else None, backwards))
        return function(value, *args)

    return method


_QUERIES = (
    "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier",
    "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "rfind", "rindex", "startswith",
)  # fmt: skip

def named(functions: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """functions, each under the name that templates have for it: Python's messages show it."""
    for name, function in functions.items():
        own = getattr(function, "__func__", function)
        if (own.__module__ or "").startswith(__package__):
            own.__name__ = own.__qualname__ = name
    return functions


METHODS: dict[str, Callable[..., Any]] = named({
    "strip": _strip(True, True),
    "lstrip": _strip(True, False),
    "rstrip": _strip(False, True),
    **{name: _case(getattr(str, name)) for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold")},
    "split": _split(str.split, backwards=False),
    "rsplit": _split(str.rsplit, backwards=True),
    "splitlines": _splitlines,
    "partition": _partition(str.partition, backwards=False),
    "rpartition": _partition(str.rpartition, backwards=True),
    "replace": replace,
    "join": join,
    "format": format_method,
    "format_map": _format_map,
    "removeprefix": _remove_prefix,
    "removesuffix": _remove_suffix,
    "expandtabs": _expandtabs,
    "encode": _encode,
    **{name: _pad(getattr(str, name)) for name in ("center", "ljust", "rjust", "zfill")},
    **{name: _query(name) for name in _QUERIES},
})  # fmt: skip
BYTES_METHODS: dict[str, Callable[..., Any]] = named({"decode": _decode, "hex": _hex})


def unmarked(value: Any) -> Any:
    """Markup that a library function returned as plain text."""
    return str.__str__(value) if isinstance(value, (Markup, prov.Text)) else value
