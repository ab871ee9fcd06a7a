"""How deep a template's source nests, and a stack that is large enough for it.

Jinja parses and compiles by recursion, and so does Python with what Jinja writes. How much stack the calling thread has
left is unknown, and the interpreter's recursion limit counts no bytes. So the depth is bounded before anything
recurses, and the recursion runs in a thread whose stack holds that depth many times.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jinja2.exceptions import TemplateSyntaxError

MAX_NESTING = 128  # statements, brackets, and operators that follow each other; real templates stay below 60
STACK_BYTES = 8 << 20
_OPENING = ("(", "[", "{")
_CLOSING = (")", "]", "}")
_FLAT = (",", ":", ";", "=", "~")  # what stands beside them is not nested
_WORDS = ("and", "or", "not", "is", "in", "if", "else")
_BLOCKS = ("if", "for", "macro", "call", "filter", "block", "with", "generation", "autoescape")

T = TypeVar("T")
_stack_lock = threading.Lock()


def _after_fork() -> None:
    global _stack_lock
    _stack_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_nesting(tokens: Iterable[tuple[int, str, str]]) -> None:
    """TemplateSyntaxError if the tree of these tokens (line, type, text) may be deeper than MAX_NESTING.

    An upper bound: operators that follow each other count as nested, although some binds closer.
    """
    blocks: list[int] = []  # open statements, each with the branches of an if behind each other
    operators = [0]  # per open bracket: operators since the last comma
    tag: list[str] = []  # the words of the statement under way
    for line, kind, text in tokens:
        if kind in ("block_begin", "variable_begin"):
            operators, tag = [0], []
        elif kind == "block_end":
            _statement(tag, blocks)
        elif kind == "name":
            tag.append(text)
            operators[-1] += text in _WORDS
        elif kind == "operator":
            tag.append(text)
            if text in _OPENING:
                operators.append(0)
            elif text in _CLOSING and len(operators) > 1:
                operators.pop()
                operators[-1] += 1
            elif text == ",":
                operators[-1] = 0
            elif text not in _FLAT:
                operators[-1] += 1
        else:
            continue
        if sum(blocks) + sum(operators) + len(operators) > MAX_NESTING:
            raise TemplateSyntaxError(f"nested more than {MAX_NESTING} deep", line)


def _statement(tag: list[str], blocks: list[int]) -> None:
    name = tag[0] if tag else ""
    if name in _BLOCKS or (name == "set" and next((w for w in tag if w in ("=", "|")), None) != "="):
        blocks.append(1)  # an = behind the bar is an argument of a filter: {% set x | f(a=1) %} is a block
    elif name == "elif" and blocks:
        blocks[-1] += 1
    elif name.startswith("end") and blocks:
        blocks.pop()


def on_large_stack(function: Callable[[], T]) -> T:
    """function(), in a thread with a stack of STACK_BYTES. Its exception comes out here."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome[:] = [True, function()]
        except BaseException as e:
            outcome[:] = [False, e]

    thread = threading.Thread(target=run, name="pantheon-template", daemon=True)
    with _stack_lock:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:
            raise MemoryError("there is no room for a thread that compiles a template") from None
        finally:
            threading.stack_size(before)
    thread.join()
    done, result = outcome
    if not done:
        raise result
    return result
