"""The vocabulary of a GGUF file: validated texts, types, scores and special ids."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pantheon._core.files.gguf_vocab import MERGES_PER_TOKEN, most_tokens

log = logging.getLogger("pantheon")

PREFIX = "tokenizer.ggml."
TEMPLATE_KEY = "tokenizer.chat_template"


class TokenType(IntEnum):
    """Values of tokenizer.ggml.token_type; the numbers are SentencePiece's."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Types of tokens that are cut out of text and stand for their text as it is written.
SPECIAL_TYPES = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED)

# Texts that end a generation in some model family, whatever the file's eos key says.
EOG_TEXTS = frozenset(
    text.encode()
    for text in (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
    )
)  # fmt: skip
EOT_TEXTS = (b"<|eot_id|>", b"<|im_end|>", b"<|end|>", b"<end_of_turn>", b"<|endoftext|>")
# name in Vocab.ids -> metadata key; the misspelt one is the format's own
ID_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unknown": "unknown_token_id",
    "separator": "seperator_token_id",
    "padding": "padding_token_id",
    "mask": "mask_token_id",
    "fim_pre": "fim_pre_token_id",
    "fim_suf": "fim_suf_token_id",
    "fim_mid": "fim_mid_token_id",
    "fim_pad": "fim_pad_token_id",
    "fim_rep": "fim_rep_token_id",
    "fim_sep": "fim_sep_token_id",
}
_FIM_STOP_TEXTS = {
    "fim_pad": (b"<|fim_pad|>", b"<fim-pad>", b"<fim_pad>", b"<PAD>"),
    "fim_rep": (b"<|fim_repo|>", b"<|repo_name|>", b"<fim-repo>", b"<REPO>", b"<reponame>"),
    "fim_sep": (b"<|file_sep|>",),
}
# bos/eos/unknown where the file has no key, per tokenizer model
_DEFAULT_IDS = {"llama": {"bos": 1, "eos": 2, "unknown": 0}}


@dataclass(frozen=True)
class Vocab:
    """What the file says about its tokens. Index of every per-token field is the token id.

    model        "llama", "gpt2", "gemma4" or "hf" (tokenizer.ggml.model; "hf": of a folder's tokenizer.json)
    texts        (n_tokens,) raw bytes as in the file; may be empty, repeated or no UTF-8
    types        (n_tokens,) TokenType values; a token that ends a generation counts as CONTROL
    scores       (n_tokens,) finite floats, or None where the file has none
    merges       raw "left right" entries, or None
    ids          special ids by name (bos, eos, eot, ...); a missing or out-of-range id is absent
    eog_ids      ids that end a generation
    suppressed   ids whose logit is always -inf
    chat_templates  Jinja sources by name; the one without a name is "default"
    """

    model: str
    pre: str | None
    texts: list[bytes]
    types: list[int]
    scores: list[float] | None
    merges: list[bytes] | None
    ids: dict[str, int]
    eog_ids: frozenset[int]
    suppressed: frozenset[int]
    add_bos: bool | None
    add_eos: bool
    add_space_prefix: bool | None
    chat_templates: dict[str, str]
    name: str
    n_vocab: int

    @property
    def n_tokens(self) -> int:
        return len(self.texts)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], n_vocab: int) -> Vocab:
        """Read and validate the tokenizer keys of a GGUF file.

        metadata: key -> Python value (only .get is used); n_vocab: width of the logits.
        Raises ValueError naming the key. Logits wider than the token list are allowed. Tokens beyond narrower ones are
        left out: such an id can neither be sampled nor looked up.
        """
        model = _string(metadata, PREFIX + "model")
        if model is None:
            raise ValueError(f"{PREFIX}model is missing: the file carries no tokenizer")
        texts = _texts(metadata, n_vocab)
        n = len(texts)
        types = _types(metadata, n)
        scores = _scores(metadata, n)
        suppressed = _suppressed(metadata, n)
        merges = _byte_strings(metadata, PREFIX + "merges", MERGES_PER_TOKEN * n)
        if n > n_vocab:
            log.warning("%stokens has %d entries for %d logits: the others are left out", PREFIX, n, n_vocab)
            n = n_vocab
            texts, types, scores = texts[:n], types[:n], scores and scores[:n]
        ids = _special_ids(metadata, model, n)
        by_text: dict[bytes, int] = {}
        for i, text in enumerate(texts):
            by_text.setdefault(text, i)
        if "eot" not in ids:
            eot = next((by_text[t] for t in EOT_TEXTS if t in by_text), None)
            if eot is not None:
                ids["eot"] = eot
        for name, candidates in _FIM_STOP_TEXTS.items():
            found = next((by_text[t] for t in candidates if t in by_text), None)
            if name not in ids and found is not None:
                ids[name] = found
        eog = _end_of_generation(texts, ids, by_text)
        _mark_end_tokens(texts, types, eog, merges)
        return cls(
            model=model,
            pre=_string(metadata, PREFIX + "pre"),
            texts=texts,
            types=types,
            scores=scores,
            merges=merges,
            ids=ids,
            eog_ids=eog,
            suppressed=frozenset(i for i in suppressed if i < n),
            add_bos=_flag(metadata, PREFIX + "add_bos_token"),
            add_eos=bool(_flag(metadata, PREFIX + "add_eos_token")),
            add_space_prefix=_flag(metadata, PREFIX + "add_space_prefix"),
            chat_templates=_chat_templates(metadata),
            name=_string(metadata, "general.name") or "",
            n_vocab=n_vocab,
        )


def byte_value(text: bytes) -> int | None:
    """0..255 for a byte token's text "<0xHH>" with exactly two hex digits, else None."""
    if len(text) != 6 or not text.startswith(b"<0x") or text[5:] != b">":
        return None
    digits = text[3:5]
    if not all(c in b"0123456789abcdefABCDEF" for c in digits):
        return None
    return int(digits, 16)


def _end_of_generation(texts: list[bytes], ids: dict[str, int], by_text: dict[bytes, int]) -> frozenset[int]:
    named = {ids[k] for k in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep") if k in ids}
    excluded = set()
    if b"<|return|>" in by_text and b"<|call|>" in by_text:
        excluded.add(b"<|end|>")  # ends a message, not the turn, in this family
    if b"<|tool_response>" in by_text:
        excluded.add(b"</s>")
    eog = {i for i, text in enumerate(texts) if text in EOG_TEXTS} | named
    return frozenset(i for i in eog if texts[i] not in excluded or i == ids.get("eos"))


def _mark_end_tokens(texts: list[bytes], types: list[int], eog: frozenset[int], merges: list[bytes] | None) -> None:
    """Make end tokens CONTROL that a converter forgot to mark: plain text could end the turn by them.

    A normal token that merges lead to is one that training text was made of ("</s>" in Qwen2.5): it stays as it is.
    """
    unmarked = {i for i in eog if types[i] in (TokenType.NORMAL, TokenType.USER_DEFINED) and _is_marker(texts[i])}
    by_text = {texts[i] for i in unmarked}
    if not by_text:
        return
    merged = {text for m in merges or () if (text := m.replace(b" ", b"", 1)) in by_text}
    for i in sorted(unmarked):
        if types[i] == TokenType.NORMAL and texts[i] in merged:
            continue
        log.warning("token %d %r ends a generation but is not marked as control: treated as control", i, texts[i])
        types[i] = int(TokenType.CONTROL)


def _is_marker(text: bytes) -> bool:
    return text in EOG_TEXTS or (len(text) > 2 and text[:1] + text[-1:] in (b"<>", b"[]"))


def _string(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string, not {type(value).__name__}")
    return value


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """tokenizer.chat_template, and every tokenizer.chat_template.<name>: tokenizer.chat_templates only repeats them."""
    keys = {"default": TEMPLATE_KEY}
    keys |= {key.removeprefix(TEMPLATE_KEY + "."): key for key in metadata if key.startswith(TEMPLATE_KEY + ".")}
    found = {name: _string(metadata, key) for name, key in keys.items()}
    return {name: text for name, text in found.items() if text is not None}


def _flag(metadata: Mapping[str, Any], key: str) -> bool | None:
    value = metadata.get(key)
    if value is None or isinstance(value, bool):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # numpy
        return bool(value)
    raise ValueError(f"{key} must be a bool, not {type(value).__name__}")


def _array(metadata: Mapping[str, Any], key: str, most: int) -> list[Any] | None:
    """A new list of at most that many elements; nothing is made of an array that has more."""
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) != 1:
        raise ValueError(f"{key} must be an array, not {type(value).__name__}")
    if len(value) > most:
        raise ValueError(f"{key} has {len(value)} entries, more than the {most} that the vocabulary can use")
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _byte_strings(metadata: Mapping[str, Any], key: str, most: int) -> list[bytes] | None:
    values = _array(metadata, key, most)
    if values is None:
        return None
    for i, v in enumerate(values):
        if isinstance(v, str):
            values[i] = v.encode("utf-8", "surrogateescape")
        elif not isinstance(v, bytes):
            raise ValueError(f"{key}[{i}] must be a string, not {type(v).__name__}")
    return values


def _texts(metadata: Mapping[str, Any], n_vocab: int) -> list[bytes]:
    texts = _byte_strings(metadata, PREFIX + "tokens", most_tokens(n_vocab))
    if not texts:
        raise ValueError(f"{PREFIX}tokens is missing or empty")
    return texts


def _types(metadata: Mapping[str, Any], n: int) -> list[int]:
    key = PREFIX + "token_type"
    types = _array(metadata, key, most_tokens(n))
    if types is None:
        return [int(TokenType.NORMAL)] * n
    if len(types) != n:
        raise ValueError(f"{key} has {len(types)} entries for {n} tokens")
    for i, t in enumerate(types):
        if isinstance(t, bool) or not isinstance(t, int) or not 0 <= t <= 6:
            raise ValueError(f"{key}[{i}] is {t!r:.64}, not a token type")
        types[i] = t or int(TokenType.NORMAL)  # 0 is "undefined"
    return types


def _scores(metadata: Mapping[str, Any], n: int) -> list[float] | None:
    key = PREFIX + "scores"
    scores = _array(metadata, key, most_tokens(n))
    if scores is None:
        return None
    if len(scores) != n:
        raise ValueError(f"{key} has {len(scores)} entries for {n} tokens")
    for i, s in enumerate(scores):
        if isinstance(s, bool) or not isinstance(s, (int, float)) or not math.isfinite(s) or abs(s) > 3.4e38:
            raise ValueError(f"{key}[{i}] is {s!r:.64}, not a finite number")
        scores[i] = float(s)
    return scores


def _suppressed(metadata: Mapping[str, Any], n: int) -> frozenset[int]:
    key = PREFIX + "suppress_tokens"
    values = _array(metadata, key, most_tokens(n)) or []
    for i, v in enumerate(values):
        if isinstance(v, bool) or not isinstance(v, int):
            raise ValueError(f"{key}[{i}] is {v!r:.64}, not a token id")
    return frozenset(v for v in values if 0 <= v < n)


def _special_ids(metadata: Mapping[str, Any], model: str, n: int) -> dict[str, int]:
    ids = {}
    for name, key in ID_KEYS.items():
        value = metadata.get(PREFIX + key)
        if value is None:
            value = _DEFAULT_IDS.get(model, {}).get(name)
            if value is None:
                continue
        elif hasattr(value, "item"):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{PREFIX}{key} must be a token id, not {value!r:.64}")
        if 0 <= value < n:
            ids[name] = value
        else:
            log.warning("%s%s = %d is outside the %d tokens: ignored", PREFIX, key, value, n)
    return ids
