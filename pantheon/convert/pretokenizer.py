"""The tokenizer.ggml.pre name of a tokenizer.json, by the facts of its pre-tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pantheon.text.hf_codec import parts_of
from pantheon.text.pretokenizers import TABLE

# Of the names with the same rules the one that says no more than these.
_PREFERRED = ("smollm",)


def pretokenizer_name(data: Mapping[str, Any], path: str) -> str:
    """data: the parsed tokenizer.json of a byte-level vocabulary. ValueError for unknown rules, listing the known."""
    rules = _regexes(data, path)
    found = [name for name, known in TABLE.items() if name != "default" and known.regexes == rules]
    if not found:
        raise ValueError(f"{path}: key pre_tokenizer: splits by {_text(rules)}, which is none of the known "
                         f"{', '.join(name for name in TABLE if name != 'default')}")
    ignore_merges = bool((data.get("model") or {}).get("ignore_merges"))
    same = [name for name in found if TABLE[name].ignore_merges == ignore_merges] or found
    nfc = any(True for _ in parts_of(data.get("normalizer"), "NFC"))
    same = [name for name in same if TABLE[name].nfc == nfc] or same
    return next((name for name in same if name in _PREFERRED), same[0])


def _regexes(data: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """The rules as regexes that are applied one after the other."""
    gpt2 = TABLE["gpt-2"].regexes[0]
    rules: list[str] = []
    for part in parts_of(data.get("pre_tokenizer")):
        kind = part.get("type")
        if kind == "Split":
            pattern = part.get("pattern")
            regex = pattern.get("Regex") if isinstance(pattern, dict) else None
            # keeping the matches only is the same, as the known regexes match everything
            keeps = (part.get("behavior"), bool(part.get("invert"))) in (("Isolated", False), ("Removed", True))
            if not isinstance(regex, str) or not keeps:
                raise ValueError(f"{path}: key pre_tokenizer: a Split must have a Regex and the behavior Isolated, not "
                                 f"{str(part)[:120]}")
            rules.append(regex)
        elif kind == "Digits":
            rules.append(r"\p{N}" if part.get("individual_digits") else r"\p{N}+")
        elif kind == "ByteLevel":
            if part.get("add_prefix_space"):
                raise ValueError(f"{path}: key pre_tokenizer: ByteLevel with add_prefix_space has no GGUF form")
            if part.get("use_regex", True):
                rules.append(gpt2)
        elif kind != "Sequence":
            raise ValueError(f"{path}: key pre_tokenizer: {str(kind)[:40]!r} has no GGUF form; known are Split, "
                             "Digits, ByteLevel and sequences of them")
    return tuple(rules)


def _text(rules: tuple[str, ...]) -> str:
    return " then ".join(repr(rule) for rule in rules)[:300] or "nothing"
