"""DRY sequence breakers: from strings to the token sequences that the sampler looks for.

A breaker may be spread over tokens in many ways. It is found by its head, a token whose text contains the breaker, or
ends with a beginning of it; in the second case the tokens of the rest, the tail, must follow. See docs/sampling.md.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pantheon.text.tokenizer import Tokenizer

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
MAX_BREAKER_CHARS = 40
MAX_TAIL_TOKENS = 20


class _LongestMatch:
    """Splits text into tokens by taking the longest one that fits, again and again; the lowest id among equal texts."""

    def __init__(self, token_texts: Sequence[str]):
        self._ids: dict[str, int] = {}
        for token, text in enumerate(token_texts):
            if 0 < len(text) <= MAX_BREAKER_CHARS:
                self._ids.setdefault(text, token)

    def __call__(self, text: str) -> list[int]:
        """The ids; what no token covers ends the list."""
        ids: list[int] = []
        while text:
            for length in range(len(text), 0, -1):
                token = self._ids.get(text[:length])
                if token is not None:
                    ids.append(token)
                    text = text[length:]
                    break
            else:
                break
        return ids


def dry_breaker_ids(breakers: Sequence[str], token_texts: Sequence[str],
                    tokenize: Callable[[str], Sequence[int]] | None = None) -> np.ndarray:
    """All token sequences that begin a breaker, in the flattened form of SamplingParams(dry_breakers=...).

    breakers: non-empty strings; only their first 40 characters count. token_texts: the text of every token, by id.
    tokenize: text to ids, without special tokens or an added space; it splits the rest of a breaker that begins in one
    token and ends in later ones. Without it the rest is split into the longest tokens that fit.

    Returns int32: for each sequence its head token, the number of tail tokens (at most 20), the tail tokens. The time
    is that of one look at every token per breaker. ValueError for an empty breaker, TypeError for one that is no str.
    """
    if isinstance(breakers, str):
        raise TypeError("dry_breakers must be a sequence of strings, not one string")
    split = tokenize or _LongestMatch(token_texts)
    sequences: dict[tuple[int, ...], None] = {}          # an ordered set: breakers may share sequences
    for index, breaker in enumerate(breakers):
        if not isinstance(breaker, str):
            raise TypeError(f"dry_breakers[{index}] must be a string, not {type(breaker).__name__}")
        if not breaker:
            raise ValueError(f"dry_breakers[{index}] must not be empty")
        breaker = breaker[:MAX_BREAKER_CHARS]
        beginnings = tuple(breaker[:n] for n in range(1, len(breaker)))
        tails: dict[str, tuple[int, ...]] = {}           # by the beginning that the head covers
        for token, text in enumerate(token_texts):
            if breaker in text:
                sequences[(token,)] = None
            elif beginnings and text.endswith(beginnings):
                for beginning in beginnings:
                    if text.endswith(beginning):
                        if beginning not in tails:
                            tails[beginning] = tuple(split(breaker[len(beginning):])[:MAX_TAIL_TOKENS])
                        if tails[beginning]:
                            sequences[(token, *tails[beginning])] = None
    flat = [n for head, *tail in sequences for n in (head, len(tail), *tail)]
    return np.array(flat, np.int32)


_defaults: weakref.WeakKeyDictionary[Tokenizer, np.ndarray] = weakref.WeakKeyDictionary()


def default_breaker_ids(tokenizer: Tokenizer) -> np.ndarray:
    """dry_breaker_ids of the usual breakers in a model's vocabulary; found once, for all that use the tokenizer."""
    found = _defaults.get(tokenizer)
    if found is None:
        texts = [tokenizer.piece(token).decode("utf-8", "replace") for token in range(tokenizer.n_tokens)]
        found = _defaults[tokenizer] = dry_breaker_ids(DEFAULT_BREAKERS, texts)
    return found
