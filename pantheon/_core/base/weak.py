"""A set of objects that it does not keep alive, which may be listed while other threads add to it."""

from __future__ import annotations

import functools
import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class WeakRegistry(Generic[T]):
    """Objects by identity, in the order in which they came. (Iterating a weakref.WeakSet fails when another thread adds
    to it.)"""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, item: T) -> None:
        # No Python function: signal handlers would run in it, and what they raise is lost in a callback.
        forget = functools.partial(self._references.pop, id(item))       # called with the reference, pop's default
        self._references[id(item)] = weakref.ref(item, forget)

    def discard(self, item: T) -> None:
        self._references.pop(id(item), None)

    def __contains__(self, item: T) -> bool:
        return id(item) in self._references

    def alive(self) -> list[T]:
        """The objects that are there now."""
        return [item for reference in list(self._references.values()) if (item := reference()) is not None]
