"""What a template may use up: time, characters, items, nesting.

Everything is asked for before it is done, by what it will cost: a call into C code cannot be stopped, and shared parts
(a list that holds one long text a thousand times) take memory and time each time they are copied or compared. Sizes are
looked at before the clock, so that what is too large is refused as that on a slow machine too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class BudgetExceeded(Exception):
    """The template needs more time or space than it is given."""


class Size(NamedTuple):
    """A value to any depth, shared parts counted every time they are met."""

    items: int
    characters: int
    depth: int = 0


class Budget:
    """Limits of one rendering.

    seconds       wall-clock time for all of it
    max_output    characters of any one string, the output among them; one operation may read or compare 16 times that
    max_total     characters of all strings made, which limits the memory of a template that keeps everything
    max_items     elements of any one container, counted through all nesting
    """

    MAX_DEPTH = 100  # of containers
    MAX_CALLS = 60  # nested calls of macros: far below the interpreter's own limit, so also on small thread stacks
    MAX_INT_BITS = 4096
    OBJECT = 64  # characters that take about the memory of an object's header

    def __init__(self, seconds: float, max_output: int, max_total: int, max_items: int):
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._max_output = max_output
        self._max_work = 16 * max_output
        self._max_total = max_total
        self._max_items = max_items
        self._made = 0
        self._depth = 0
        self._measured: dict[int, tuple[Any, Size]] = {}

    def tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise BudgetExceeded(f"template runs longer than {self._seconds:g} seconds")

    def work(self, n: int) -> None:
        """Before one operation that looks at n characters or items."""
        if n > self._max_work:
            raise BudgetExceeded(f"template does more than {self._max_work} steps in one operation")
        self.tick()

    def reserve(self, n: int) -> None:
        """Before memory is taken that n characters would need."""
        self._made += n
        if self._made > self._max_total:
            raise BudgetExceeded(f"template makes more than {self._max_total} characters in all")

    def characters(self, n: int, total: int | None = None) -> None:
        """Before a string of n characters is made; total: its length if n is only a part of it."""
        if max(n, total or 0) > self._max_output:
            raise BudgetExceeded(f"template makes a text longer than {self._max_output} characters")
        self.reserve(n + self.OBJECT)
        self.tick()

    def length(self, n: int) -> None:
        """Before something of n elements is walked."""
        if n > self._max_items:
            raise BudgetExceeded(f"template makes a list of more than {self._max_items} items")
        self.tick()

    def items(self, n: int) -> None:
        """Before a container of n elements is made."""
        self.length(n)
        self.reserve(8 * n + self.OBJECT)

    def integer_bits(self, n: int) -> None:
        if n > self.MAX_INT_BITS:
            raise BudgetExceeded(f"template makes an integer of more than {self.MAX_INT_BITS} bits")

    def walk(self, *values: Any) -> int:
        """What it takes to look at all of values, as printing, comparing and hashing may."""
        total = 0
        for value in values:
            size = self.size(value)
            total += size.items + size.characters
        return total

    def size(self, value: Any) -> Size:
        """Measures a value; a container is refused that is too large or too deep to be walked.

        Each part is visited once: a few nested lists can stand for 2^60 elements.
        """
        if isinstance(value, (str, bytes)):
            return Size(1, len(value))
        if not isinstance(value, (list, tuple, dict)):
            return _NUMBER
        if id(value) in self._measured:
            return self._measured[id(value)][1]
        sizes: dict[int, Size] = {}
        stack: list[tuple[Any, bool]] = [(value, False)]
        open_ids: set[int] = set()
        depth = 0
        while stack:
            node, leaving = stack.pop()
            key = id(node)
            if leaving:
                sizes[key] = self._sum(node, sizes)
                open_ids.discard(key)
                depth -= 1
                continue
            if key in sizes:
                continue
            if key in open_ids:
                raise BudgetExceeded("template nests a container in itself")
            if depth >= self.MAX_DEPTH:
                raise BudgetExceeded(f"template nests containers more than {self.MAX_DEPTH} deep")
            if len(sizes) > self._max_items or len(node) > self._max_items:
                raise BudgetExceeded(f"template nests more than {self._max_items} items")
            open_ids.add(key)
            depth += 1
            stack.append((node, True))
            children = node.values() if isinstance(node, dict) else node
            stack.extend((c, False) for c in children if isinstance(c, (list, tuple, dict)) and id(c) not in sizes)
        size = sizes[id(value)]
        if size.items > 64:
            self._measured[id(value)] = value, size  # kept alive, so that no other gets its id; never changed
        return size

    def _sum(self, node: Any, sizes: dict[int, Size]) -> Size:
        items, characters, depth = 1, 0, 0
        if isinstance(node, dict):
            for key in node:  # never a container, see SandboxEnvironment.key
                characters += len(key) if isinstance(key, str) else 8
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, (list, tuple, dict)):
                size = sizes[id(child)]
                items, characters, depth = items + size.items, characters + size.characters, max(depth, size.depth)
            else:
                items += 1
                if isinstance(child, (str, bytes)):
                    characters += len(child)
            if items > self._max_items:
                raise BudgetExceeded(f"template nests more than {self._max_items} items")
        return Size(items, characters, depth + 1)

    @contextmanager
    def call(self) -> Iterator[None]:
        self.tick()
        if self._depth >= self.MAX_CALLS:
            raise BudgetExceeded(f"template calls itself more than {self.MAX_CALLS} deep")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


_NUMBER = Size(1, 0)
