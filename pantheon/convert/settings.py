"""Typed access to one JSON object of a model folder; null counts as absent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn


class Settings:
    """values: the object; defaults: what the model class has for absent keys; path, prefix: for messages.

    The readers take a default of their own for keys without one, and raise ValueError naming file and key for a key
    that is missing or of another type.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], path: str, prefix: str = ""):
        self.values = values
        self.defaults = defaults
        self.path = path
        self.prefix = prefix

    def refuse(self, key: str, expected: str) -> NoReturn:
        raise ValueError(f"{self.path}: key {self.prefix}{key} is {self.values.get(key)!r:.80}, not {expected}")

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return self.defaults.get(key, default) if value is None else value

    def is_null(self, key: str) -> bool:
        return key in self.values and self.values[key] is None

    def _needed(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ValueError(f"{self.path}: key {self.prefix}{key} is missing")
        return value

    def integer(self, key: str, default: int | None = None, low: int = 0, high: int = 2**31 - 1) -> int:
        value = self._needed(key, default)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            self.refuse(key, f"an integer in {low}..{high}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._needed(key, default)
        if type(value) not in (int, float) or not abs(value) < 1e300 or not math.isfinite(value):
            self.refuse(key, "a finite number")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.number(key, default)
        if value <= 0:
            self.refuse(key, "above 0")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if type(value) is not bool:
            self.refuse(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, "a string")
        return value

    def part(self, key: str) -> Settings:
        """The object under a key; an empty one when it is absent."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            self.refuse(key, "an object")
        return Settings(value, {}, self.path, f"{self.prefix}{key}.")
