"""What a template may use up: time, characters, items, nesting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class BudgetExceeded(Exception):
    """The template needs more time or space than it is given."""


class Budget:
    """Limits of one rendering.

    seconds       wall-clock time for all of it
    max_output    characters of any one string, the output among them
    max_total     characters of all strings made, which limits the memory of a template that keeps everything
    max_items     elements of any one container, counted through all nesting
    """

    MAX_DEPTH = 100  # of containers
    MAX_CALLS = 60  # nested calls of macros: far below the interpreter's own limit, so also on small thread stacks
    MAX_INT_BITS = 4096

    def __init__(self, seconds: float, max_output: int, max_total: int, max_items: int):
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._max_output = max_output
        self._max_total = max_total
        self._max_items = max_items
        self._made = 0
        self._depth = 0
        self._checked: dict[int, Any] = {}

    def tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise BudgetExceeded(f"template runs longer than {self._seconds:g} seconds")

    def characters(self, n: int, total: int | None = None) -> None:
        """Before a string of n characters is made; total: its length if n is only a part of it."""
        self.tick()
        if max(n, total or 0) > self._max_output:
            raise BudgetExceeded(f"template makes a text longer than {self._max_output} characters")
        self._made += n
        if self._made > self._max_total:
            raise BudgetExceeded(f"template makes more than {self._max_total} characters in all")

    def length(self, n: int) -> None:
        """Before something of n elements is walked."""
        self.tick()
        if n > self._max_items:
            raise BudgetExceeded(f"template makes a list of more than {self._max_items} items")

    def items(self, n: int) -> None:
        """Before a container of n elements is made. Its memory counts like that of 8 characters each."""
        self.length(n)
        self._made += 8 * n
        if self._made > self._max_total:
            raise BudgetExceeded("template makes too many lists")

    def integer_bits(self, n: int) -> None:
        if n > self.MAX_INT_BITS:
            raise BudgetExceeded(f"template makes an integer of more than {self.MAX_INT_BITS} bits")

    def container(self, value: Any) -> None:
        """Check a container before something walks it to any depth (print, compare, hash, JSON).

        Shared parts count every time they would be visited, but are measured once: a few nested lists can stand for
        2^60 elements.
        """
        if id(value) in self._checked:
            return
        sizes: dict[int, int] = {}
        stack: list[tuple[Any, bool]] = [(value, False)]
        open_ids: set[int] = set()
        depth = 0
        while stack:
            node, leaving = stack.pop()
            key = id(node)
            children = node.values() if isinstance(node, dict) else node
            if leaving:
                size = 1
                for child in children:
                    size += sizes[id(child)] if isinstance(child, (list, tuple, dict)) else 1
                    if size > self._max_items:
                        raise BudgetExceeded(f"template nests more than {self._max_items} items")
                sizes[key] = size
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
            stack.extend((c, False) for c in children if isinstance(c, (list, tuple, dict)) and id(c) not in sizes)
        self.tick()
        if sizes[id(value)] > 64:
            self._checked[id(value)] = value  # kept alive, so that no other gets its id; never changed

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
