"""Mutations of JSON: of the values of a document, then of its text."""
from __future__ import annotations

import json
import random
from typing import Any

import raw

HUGE_NUMBER = 10**400
_NESTED = "@nested@"       # stands for text that the encoder would not write
_DIGITS = "@digits@"
_NAN = "@nan@"
_WRITTEN = {_NESTED: "[" * 2000 + "]" * 2000, _DIGITS: "9" * 5000, _NAN: "NaN"}


def value(rng: random.Random, old: Any = None) -> Any:
    """A value of any kind, often of the old one's."""
    kind = rng.randrange(12)
    if isinstance(old, bool) and kind < 4:
        return not old
    if isinstance(old, int) and kind < 7:
        return raw.integer(rng, 64, True, old)
    if isinstance(old, float) and kind < 5:
        number = raw.real(rng, old)
        return number if number - number == 0 else _NAN
    if isinstance(old, str) and kind < 3:
        return raw.text(rng, [*raw.WORDS, old, old[:-1], old + "x"])
    if isinstance(old, list) and kind < 4:
        return old * rng.choice((0, 2, 3)) + [value(rng)] * rng.choice((0, 1))
    return rng.choice((
        None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, 2**31, 2**32, 2**63, 2**64, -(2**63), HUGE_NUMBER, "", "x",
        "1", "\ud800", "none", "default", [], {}, [[]], [None], [0], [-1], [2**64], [1.5, "a"], [[[]]], [{}], {"": {}},
        {"a": []}, {"type": None}, {"type": "x"}, {"id": 0}, [True] * 40, [0.0] * 5, [1.0] * 16, "\0", _NESTED, _DIGITS,
        _NAN))


def mutate(rng: random.Random, document: Any, more: list[tuple[str, Any]] = ()) -> None:
    """Changes one value, key or list of the document in place. more: entries of other documents, to put in."""
    container = document
    while True:
        children = list(container.values()) if isinstance(container, dict) else container
        inner = [child for child in children if isinstance(child, (dict, list)) and child]
        if not inner or rng.random() < 0.45:
            break
        container = rng.choice(inner)
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    kind = rng.randrange(10)
    if isinstance(container, dict):
        if more and kind == 0 or not keys:
            name, entry = rng.choice(more) if more else ("x", None)
            container[name] = entry if rng.random() < 0.7 else value(rng, entry)
            return
        key = rng.choice(keys)
        if kind == 1:
            del container[key]
        elif kind == 2:
            container[rng.choice(keys) if rng.random() < 0.5 else raw.text(rng)] = container.pop(key)
        else:
            container[key] = container[rng.choice(keys)] if kind == 3 else value(rng, container[key])
    elif keys:
        i = rng.choice(keys)
        if kind == 0:
            del container[i]
        elif kind == 1:
            container.append(container[i])
        elif kind == 2:
            other = rng.choice(keys)
            container[i], container[other] = container[other], container[i]
        elif kind == 3:
            del container[i:]
        else:
            container[i] = value(rng, container[i])
    else:
        container.append(value(rng))


def dumps(document: Any) -> bytes:
    text = json.dumps(document)
    for mark, written in _WRITTEN.items():
        if mark in text:
            text = text.replace(f'"{mark}"', written)
    return text.encode()


def mutated(rng: random.Random, source: bytes, more: list[tuple[str, Any]] = ()) -> bytes:
    """A mutation of the JSON text."""
    kind = rng.randrange(12)
    if kind == 0:
        return raw.mutated(rng, source)
    document = json.loads(source)
    if kind == 1 and isinstance(document, dict) and document:
        key = rng.choice(list(document))     # a key that is there twice
        return source.rstrip()[:-1] + b", " + json.dumps(key).encode() + b": " + dumps(value(rng)) + b"}"
    if kind == 2:
        return rng.choice((b"", b"[]", b"null", b"1", b"\xef\xbb\xbf" + source, source.decode().encode("utf-16"), b'""',
                           source + source, b"[" * 100_000, b'{"a":' * 50_000, source + b"\0", b"{}"))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutate(rng, document, more)
    return dumps(document)


def entries(sources: list[bytes]) -> list[tuple[str, Any]]:
    """Top-level entries of all documents."""
    return [item for source in sources for item in json.loads(source).items()]
