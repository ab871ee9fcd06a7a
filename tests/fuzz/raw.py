"""Mutations of numbers, bytes and text that know nothing of a format."""
from __future__ import annotations

import math
import random
import struct

WORDS = ["", " ", "\n", "\0", "a", "é", "日本語", "😀", "\u2028", "\ufeff", "%s%n", "{}", "<s>", "</s>", "<|im_end|>",
         "<|im_start|>", "<0x0A>", "▁", "Ġ", "../x", "/", "x" * 63, "x" * 64, "y" * 5000, "\x1b[31m", "nan", "-1",
         "1e999"]


def integer(rng: random.Random, bits: int = 64, signed: bool = False, old: int = 0) -> int:
    """A number of so many bits: an edge of its range, a neighbour or multiple of the old one, or any."""
    top = 1 << bits
    kind = rng.randrange(8)
    if kind == 0:
        value = rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256))
    elif kind == 1:
        value = (1 << rng.randrange(bits)) + rng.choice((-1, 0, 1))
    elif kind == 2:
        value = top - rng.choice((1, 2, 8, 32))
    elif kind == 3:
        value = old + rng.choice((-2, -1, 1, 2, 32))
    elif kind == 4:
        value = old * rng.choice((2, 3, 4, 16))
    elif kind == 5:
        value = old // rng.choice((2, 3, 4, 16))
    elif kind == 6:
        value = rng.choice((2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**61, 2**63 - 1, 2**63, 2**64 - 1))
    else:
        value = rng.getrandbits(rng.randrange(1, bits + 1))
    value %= top
    return value - top if signed and value >= top >> 1 else value


def real(rng: random.Random, old: float = 1.0) -> float:
    """A number; infinite and NaN among them."""
    return rng.choice((0.0, -0.0, 1.0, -1.0, 0.5, 1e-5, 1e-30, 1e-45, 5e-324, 1e30, 3.4e38, 1e308, math.inf, -math.inf,
                       math.nan, old * 2, -old, old / 1024, old + 1, rng.uniform(-1000, 1000)))


def f32(value: float) -> bytes:
    """Its four bytes; infinite where it is too large for them."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def text(rng: random.Random, words: list[str] = WORDS) -> str:
    """Some words, joined."""
    return rng.choice(("", "", " ", "/")).join(rng.choices(words, k=rng.choice((0, 1, 1, 2, 3, 8))))


def mutated(rng: random.Random, data: bytes, end: int | None = None) -> bytes:
    """data with one change in [0, end): bits, bytes or a range of them; or cut, or longer."""
    n = len(data) if end is None else min(end, len(data))
    if n == 0:
        return rng.randbytes(rng.randrange(64))
    at = rng.randrange(n)
    size = min(rng.choice((1, 1, 2, 4, 8, 16, 100, 1000)), n - at)
    kind = rng.randrange(10)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
    if kind == 2:
        return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
    if kind == 3:
        return data[:at] + data[at + size :]
    if kind == 4:
        return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]
    if kind == 5:
        return data[:at] + rng.choice((b"\0", b"\xff", b"\x7f", b"{")) * size + data[at + size :]
    if kind == 6:
        value = struct.pack("<Q", integer(rng))[: rng.choice((1, 2, 4, 8))]
        return data[:at] + value + data[at + len(value) :]
    if kind == 7:
        other = rng.randrange(n)
        return data[:at] + data[other : other + size] + data[at + size :]
    if kind == 8:
        return data[:at] + rng.randbytes(size) + data[at:]
    return data + rng.choice((b"\0", b"\xff", rng.randbytes(100)))
