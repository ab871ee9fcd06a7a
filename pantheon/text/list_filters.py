"""Filters that sort, group, collect and cut lists: what they compare and copy is paid for before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2.exceptions import FilterArgumentError
from jinja2.filters import _GroupTuple, make_attrgetter, make_multi_attrgetter

from pantheon.text import strings
from pantheon.text.budget import BudgetExceeded

MAX_PARTS = 1 << 16  # columns or rows that batch and slice may be asked for


def table(environment: Any) -> dict[str, Callable[..., Any]]:
    """These filters by name, bound to environment."""

    def ignore_case(value: Any) -> Any:
        return strings.METHODS["lower"](environment, value) if isinstance(value, str) else value

    def keys(items: list[Any], attribute: Any, case_sensitive: bool, several: bool = False) -> list[Any]:
        """What items are compared by, with the comparisons of a sort paid for."""
        budget = environment.budget
        fold = None if case_sensitive else ignore_case
        if several and isinstance(attribute, str):
            budget.items(len(items) * (attribute.count(",") + 2))
            get = make_multi_attrgetter(environment, attribute, postprocess=fold)
        else:
            get = make_attrgetter(environment, attribute, postprocess=fold)
        found = [get(item) for item in environment.loop(items)]
        budget.work(budget.walk(found) * len(found).bit_length())
        return found

    def order(found: list[Any], reverse: bool) -> list[int]:
        return sorted(range(len(found)), key=found.__getitem__, reverse=reverse)

    def sort(value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
        items = values(environment, value)
        return [items[i] for i in order(keys(items, attribute, case_sensitive, several=True), reverse)]

    def dictsort(value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False) -> list[Any]:
        if by not in ("key", "value"):
            raise FilterArgumentError('You can only sort by either "key" or "value"')
        items = values(environment, value.items())
        environment.budget.reserve(len(items) * environment.budget.OBJECT)
        return [items[i] for i in order(keys(items, 0 if by == "key" else 1, case_sensitive), reverse)]

    def groupby(value: Any, attribute: Any, default: Any = None, case_sensitive: bool = False) -> list[Any]:
        items = values(environment, value)
        get = make_attrgetter(environment, attribute, default=default)
        raw = [get(item) for item in environment.loop(items)]
        found = keys(raw, None, case_sensitive)
        groups: list[tuple[int, list[Any]]] = []
        for i in order(found, reverse=False):
            if not groups or found[groups[-1][0]] != found[i]:
                groups.append((i, []))
            groups[-1][1].append(items[i])
        environment.budget.items(len(items) + 8 * len(groups))
        return [_GroupTuple(raw[first], members) for first, members in groups]

    def unique(value: Any, case_sensitive: bool = False, attribute: Any = None) -> Iterator[Any]:
        get = make_attrgetter(environment, attribute, postprocess=None if case_sensitive else ignore_case)
        seen = set()
        for item in environment.loop(value):
            key = get(item)
            if isinstance(key, int):
                environment.key(key)  # numbers of one hash would make each look-up as long as the list
            environment.budget.work(environment.budget.walk(key))
            if key not in seen:
                environment.budget.reserve(environment.budget.OBJECT)
                seen.add(key)
                yield item

    def extreme(choose: Callable[..., int]) -> Callable[..., Any]:
        def filtered(value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
            items = values(environment, value)
            if not items:
                return environment.undefined("No aggregated item, sequence was empty.")
            found = keys(items, attribute, case_sensitive)
            return items[choose(range(len(items)), key=found.__getitem__)]

        return filtered

    def reverse(value: Any) -> Any:
        if isinstance(value, str):
            environment.budget.characters(len(value))
            return value[::-1]
        return values(environment, value)[::-1]

    def batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> list[list[Any]]:
        items = values(environment, value)
        environment.budget.items(small(linecount, MAX_PARTS) + len(items))
        environment.budget.reserve(len(items) // linecount * environment.budget.OBJECT)
        rows = [items[i : i + linecount] for i in range(0, len(items), linecount)]
        if rows and fill_with is not None:
            rows[-1] = rows[-1] + [fill_with] * (linecount - len(rows[-1]))
        return rows

    def slice_(value: Iterable[Any], slices: int, fill_with: Any = None) -> list[list[Any]]:
        items = values(environment, value)
        environment.budget.items(small(slices, MAX_PARTS) + len(items))
        environment.budget.reserve(slices * environment.budget.OBJECT)
        size, extra = divmod(len(items), slices)
        rows, at = [], 0
        for n in range(slices):
            end = at + size + (n < extra)
            rows.append(items[at:end] + ([fill_with] if fill_with is not None and n >= extra and extra else []))
            at = end
        return rows

    def sum_(iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        get = make_attrgetter(environment, attribute) if attribute is not None else None
        total = start
        for item in environment.loop(iterable):
            total = strings.binary_operator(environment.budget, "+", total, get(item) if get else item)
        return total

    def list_(value: Any) -> list[Any]:
        return values(environment, value)

    own = (sort, dictsort, groupby, unique, reverse, batch)
    return {f.__name__: f for f in own} | {
        "list": list_, "slice": slice_, "sum": sum_, "min": extreme(min), "max": extreme(max),
    }  # fmt: skip


def values(environment: Any, value: Any) -> list[Any]:
    """list(value): a container or a range is copied at once, anything else is walked item by item."""
    budget = environment.budget
    if isinstance(value, (list, tuple, dict, range)):
        budget.items((5 if isinstance(value, range) else 1) * len(value))
        return list(value)
    out: list[Any] = []
    for item in environment.loop(value):
        out.append(item)
        if not len(out) & 63:
            budget.length(len(out))
            budget.reserve((8 + budget.OBJECT) * 64)
    return out


def small(n: int, limit: int, least: int = 1) -> int:
    if not least <= n <= limit:
        raise BudgetExceeded(f"template asks for {n} where {least}..{limit} is possible"[:200])
    return n
