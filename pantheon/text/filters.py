"""Filters for templates: Jinja's own where they cost nothing to speak of, here all that could make something large,
take long in one call, would lose marks (provenance.py), or differ in chat templates (tojson).

urlize, random and lipsum are left out: HTML, and prompts that nobody can repeat.
"""

from __future__ import annotations

import json
import pprint
import re
import textwrap
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from jinja2.exceptions import FilterArgumentError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Undefined

from pantheon.text import list_filters, strings
from pantheon.text import provenance as prov
from pantheon.text.budget import BudgetExceeded

# They look at one object, or at one item of an iterable at a time, and make no text.
_JINJA_OWN = (
    "count", "d", "default", "first", "items", "last", "length", "map", "reject", "rejectattr", "select", "selectattr",
)  # fmt: skip
# Their text is HTML or otherwise new, never the template's own: at most so many characters for one that is printed.
_TEXT_MAKING = {"e": 5, "escape": 5, "forceescape": 5, "striptags": 1, "urlencode": 12, "xmlattr": 8}
MAX_INDENT = 16
MAX_NUMBER_LENGTH = 1024  # characters of a number in a text
MAX_PRETTY_DEPTH = 32
_WORD_BEGINNING = re.compile(r"([-\s({\[<]+)")


def table(environment: Any) -> dict[str, Callable[..., Any]]:
    """All filters by name, bound to environment."""
    filters: dict[str, Callable[..., Any]] = {name: FILTERS[name] for name in _JINJA_OWN}
    for name, factor in _TEXT_MAKING.items():
        filters[name] = _plain_text(environment, name, factor)
    filters.update(list_filters.table(environment))

    def text(value: Any) -> str:
        return strings.to_text(environment.budget, value)

    def method(name: str) -> Callable[..., Any]:
        function = strings.METHODS[name]
        return lambda value, *args, **kwargs: function(environment, text(value), *args, **kwargs)

    for name in ("upper", "lower", "capitalize"):
        filters[name] = method(name)
    filters["trim"] = method("strip")
    filters["string"] = text
    filters["safe"] = text

    def title(value: Any) -> str:
        value = text(value)
        environment.budget.characters(4 * len(value))
        words = _WORD_BEGINNING.split(str.__str__(value) if prov.is_marked(value) else value)
        return prov.change_case(value, "".join([w[0].upper() + w[1:].lower() for w in words if w]))

    def replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
        return strings.replace(environment, text(value), text(old), text(new), -1 if count is None else count)

    def join(value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = map(make_attrgetter(environment, attribute), value)
        return strings.join(environment, text(d), (text(v) for v in environment.loop(value)))

    def format_(value: str, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
        return strings.printf(environment.budget, text(value), kwargs or args)

    def indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        space = width if isinstance(width, str) else " " * list_filters.small(width, strings.MAX_WIDTH, least=0)
        lines = strings.METHODS["splitlines"](environment, prov.concat((_text("indent", s), "\n")))
        environment.budget.characters(len(s) + len(lines) * len(space))
        out = [prov.concat((space, ln)) if (ln or blank if n else first) else ln for n, ln in enumerate(lines)]
        return prov.join("\n", out)

    def center(value: str, width: int = 80) -> str:
        return strings.METHODS["center"](environment, text(value), width)

    def truncate(
        s: str, length: int = 255, killwords: bool = False, end: str = "...", leeway: int | None = None
    ) -> str:
        s, leeway = text(s), 5 if leeway is None else leeway
        if length < len(end) or leeway < 0:
            raise FilterArgumentError("truncate: length must be at least that of end, leeway at least 0")
        if len(s) <= length + leeway:
            return s
        environment.budget.characters(length)
        cut = s[: length - len(end)]
        blank = str.rfind(cut, " ")
        return prov.concat((cut if killwords or blank < 0 else cut[:blank], end))

    def wordcount(s: Any) -> int:
        environment.budget.work(len(value := text(s)))
        return sum(1 for _ in re.finditer(r"\w+", value))

    def wordwrap(
        s: str,
        width: int = 79,
        break_long_words: bool = True,
        wrapstring: str | None = None,
        break_on_hyphens: bool = True,
    ) -> str:
        newline = "\n" if wrapstring is None else wrapstring
        wrapped: list[str] = []
        for line in strings.METHODS["splitlines"](environment, _text("wordwrap", s)):
            environment.budget.work(len(line) ** 2)  # textwrap cuts a long word from its rest again and again
            wrapped += textwrap.wrap(
                str.__str__(line), width, expand_tabs=False, replace_whitespace=False,
                break_long_words=break_long_words, break_on_hyphens=break_on_hyphens,
            ) or [""]  # fmt: skip
        return strings.join(environment, newline, wrapped)

    def abs_(value: Any) -> Any:
        return abs(_number("abs", value))

    def round_(value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > 100:
            raise BudgetExceeded("template rounds to more than 100 digits")
        return FILTERS["round"](_number("round", value), precision, method)

    def filesizeformat(value: Any, binary: bool = False) -> str:
        return FILTERS["filesizeformat"](float(_short(value)), binary)

    def int_(value: Any, default: Any = 0, base: int = 10) -> Any:
        return FILTERS["int"](_short(value), default, base)

    def float_(value: Any, default: Any = 0.0) -> Any:
        return FILTERS["float"](_short(value), default)

    def attr(value: Any, name: str) -> Any:
        if not isinstance(name, str):
            raise FilterArgumentError("attr: the name must be a string")
        return FILTERS["attr"](environment, value, name)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(value, Undefined):
            raise TypeError("tojson: the value is undefined")
        if len(indent) > MAX_INDENT if isinstance(indent, str) else indent is not None and indent > MAX_INDENT:
            raise BudgetExceeded(f"tojson: indent must be at most {MAX_INDENT}")
        budget = environment.budget
        margin = len(indent) if isinstance(indent, str) else max(0, indent or 0)
        depth = budget.size(value).depth + 1
        between = sum(len(text(s)) for s in separators or ())
        length = strings.printed_length(budget, value, margin * depth + between)
        budget.characters(length * (6 if ensure_ascii else 1))
        budget.work(length * (depth if sort_keys else 1))
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def pretty(value: Any) -> str:
        budget = environment.budget
        size = budget.size(value)
        if size.depth > MAX_PRETTY_DEPTH:
            raise BudgetExceeded(f"pprint: nested more than {MAX_PRETTY_DEPTH} deep")
        # Every line is as far to the right as the keys around it are long, and a text has a line for each word.
        margin = size.depth * (_longest_key(value) + 4) + 4
        length = strings.printed_length(budget, value)
        budget.characters(length + (size.items + size.characters // 8) * margin)
        budget.work(length * (size.depth + 1))
        return pprint.pformat(value)

    own = (title, replace, join, indent, center, truncate, wordcount, wordwrap, filesizeformat, attr, tojson)
    filters.update({f.__name__: f for f in own})
    filters.update({"format": format_, "round": round_, "abs": abs_, "int": int_, "float": float_, "pprint": pretty})
    return filters


def _text(name: str, value: Any) -> str:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if not isinstance(value, str):
        raise TypeError(f"{name}: a text is needed, not {type(value).__name__}")
    return value


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name}: a number is needed, not {type(value).__name__}")
    return value


def _short(value: Any) -> Any:
    """A value that may be read as a number: reading takes time with the square of its length."""
    if isinstance(value, (str, bytes)) and len(value) > MAX_NUMBER_LENGTH:
        raise BudgetExceeded(f"template reads a number of more than {MAX_NUMBER_LENGTH} characters")
    return value


def _longest_key(value: Any) -> int:
    """In characters as they are printed at most, of all dicts in value."""
    longest, stack, seen = 0, [value], set()
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple, dict)) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, dict):
                longest = max([longest, *(10 * len(k) if isinstance(k, str) else 32 for k in node)])
            stack.extend(node.values() if isinstance(node, dict) else node)
    return longest


def _plain_text(environment: Any, name: str, factor: int) -> Callable[..., Any]:
    function = FILTERS[name]

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        # The value is the first argument behind what Jinja passes by itself.
        at = 1 if hasattr(function, "jinja_pass_arg") else 0
        value, budget = args[at], environment.budget
        if name not in ("urlencode", "xmlattr"):
            value = strings.to_text(budget, value)
        elif not isinstance(value, (str, dict)):
            value = list_filters.values(environment, value)
        length = strings.printed_length(budget, value)
        budget.characters(factor * length)
        if name == "striptags":
            budget.work(length * (1 + str.count(value, "<")))  # each comment is cut from all the rest
        return strings.unmarked(function(*args[:at], value, *args[at + 1 :], **kwargs))

    return filtered
