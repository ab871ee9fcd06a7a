"""Filters for templates. Jinja's own where their work is linear in what they are given; here those that could make
something large, would lose marks (provenance.py), or differ in chat templates (tojson)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from jinja2.exceptions import FilterArgumentError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Undefined

from pantheon.text import provenance as prov
from pantheon.text import strings
from pantheon.text.budget import BudgetExceeded

# Linear in their input, which has been sized before, and without text of their own.
_JINJA_OWN = (
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length",
    "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "unique", "wordcount",
)  # fmt: skip
# The same, but their text is HTML or otherwise new: never the template's own.
_TEXT_MAKING = ("e", "escape", "forceescape", "striptags", "urlencode", "xmlattr", "filesizeformat")
MAX_INDENT = 16


def table(environment: Any) -> dict[str, Callable[..., Any]]:
    """All filters by name, bound to environment."""
    filters: dict[str, Callable[..., Any]] = {name: FILTERS[name] for name in _JINJA_OWN}
    for name in _TEXT_MAKING:
        filters[name] = _plain_text(environment, FILTERS[name])

    def text(value: Any) -> str:
        return strings.to_text(environment.budget, value)

    def method(name: str) -> Callable[..., Any]:
        function = strings.METHODS[name]
        return lambda value, *args, **kwargs: function(environment, text(value), *args, **kwargs)

    for name in ("upper", "lower", "title", "capitalize"):
        filters[name] = method(name)
    filters["trim"] = method("strip")
    filters["string"] = text
    filters["safe"] = text

    def replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
        return strings.replace(environment, text(value), text(old), text(new), -1 if count is None else count)

    def join(value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = map(make_attrgetter(environment, attribute), value)
        return strings.join(environment, text(d), (text(v) for v in value))

    def format_(value: str, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
        return strings.printf(environment.budget, text(value), kwargs or args)

    def indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        space = width if isinstance(width, str) else " " * _small(width, strings.MAX_WIDTH)
        lines = strings.METHODS["splitlines"](environment, prov.concat((text(s), "\n")))
        environment.budget.characters(len(s) + len(lines) * len(space))
        out = [prov.concat((space, ln)) if (ln or blank) and (n or first) else ln for n, ln in enumerate(lines)]
        return prov.join("\n", out)

    def center(value: str, width: int = 80) -> str:
        return strings.METHODS["center"](environment, text(value), width)

    def truncate(
        s: str, length: int = 255, killwords: bool = False, end: str = "...", leeway: int | None = None
    ) -> str:
        s, leeway = text(s), 5 if leeway is None else leeway
        if len(s) <= length + leeway:
            return s
        cut = s[: max(0, length - len(end))]
        if not killwords:
            cut = cut[: max(0, str.rfind(cut, " "))] or cut
        environment.budget.characters(len(cut) + len(end))
        return prov.concat((cut, end))

    def list_(value: Any) -> list[Any]:
        out: list[Any] = []
        for item in environment.loop(value):
            out.append(item)
            if not len(out) & 1023:
                environment.budget.items(1024)
        return out

    def batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> list[list[Any]]:
        values = list_(value)
        environment.budget.items(_small(linecount, 1 << 16) + len(values))
        rows = [values[i : i + linecount] for i in range(0, len(values), linecount)]
        if rows and fill_with is not None:
            rows[-1] = rows[-1] + [fill_with] * (linecount - len(rows[-1]))
        return rows

    def slice_(value: Iterable[Any], slices: int, fill_with: Any = None) -> list[list[Any]]:
        values = list_(value)
        environment.budget.items(_small(slices, 1 << 16) + len(values))
        size, extra = divmod(len(values), slices)
        rows, at = [], 0
        for n in range(slices):
            end = at + size + (n < extra)
            rows.append(values[at:end] + ([fill_with] if fill_with is not None and n >= extra and extra else []))
            at = end
        return rows

    def sum_(iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        get = make_attrgetter(environment, attribute) if attribute is not None else None
        total = start
        for item in environment.loop(iterable):
            total = strings.binary_operator(environment.budget, "+", total, get(item) if get else item)
        return total

    def round_(value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > 100:
            raise BudgetExceeded("template rounds to more than 100 digits")
        return FILTERS["round"](value, precision, method)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(value, Undefined):
            raise FilterArgumentError("tojson: the value is undefined")
        if isinstance(indent, str) or (indent is not None and not 0 <= indent <= MAX_INDENT):
            raise BudgetExceeded(f"tojson: indent must be 0..{MAX_INDENT}")
        wrapped = [value]
        environment.budget.container(wrapped)
        environment.budget.characters(strings.json_length(wrapped, indent or 0))
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    own = (replace, join, indent, center, truncate, batch, tojson)
    filters.update({f.__name__: f for f in own})
    filters.update({"format": format_, "list": list_, "slice": slice_, "sum": sum_, "round": round_})
    return filters


def _small(n: int, limit: int) -> int:
    if not 0 < n <= limit:
        raise BudgetExceeded(f"template asks for {n} where 1..{limit} is possible")
    return n


def _plain_text(environment: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        environment.budget.characters(8 * sum(len(a) for a in args if isinstance(a, str)))
        return strings.unmarked(function(*args, **kwargs))

    return filtered
