"""Pre-tokenizer regexes of byte-level BPE by their tokenizer.ggml.pre name.

The regexes are in Oniguruma syntax, applied in order: each splits every piece of the previous one into its matches and
the gaps between them. None may need more than linear time on any input.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass

log = logging.getLogger("pantheon")

_CONTR = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _llama3(digits: str) -> str:
    return rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"


def _cased(suffix: str, digits: str) -> str:
    """Words split at lower-to-upper changes; suffix is what may follow a word within the match."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"


_CJK = r"[一-龥ࠀ-一가-퟿]+"
# Cased letters as of an old Unicode version: later additions fall through to the next rules.
_OLD_CASED = (
    r"[[\p{Lu}\p{Ll}\p{Lt}\x{0295}]&&[^\x{0560}-\x{0588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8A}\x{2D00}-\x{2D2D}"
    r"\x{A790}-\x{AB6D}\x{10570}-\x{105BC}\x{10D50}-\x{10D85}\x{16E40}-\x{1DF96}]]"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?{_OLD_CASED}+",
    "\\s?[!-/:-~！-／：-～\u2018-\u201f\u3000-\u3002]+",
    r"(?<!\s)\s+$",  # plain \s+$ would rescan a long run from each of its positions
    _CJK,
    r"\p{N}+",
)
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}",
)
_QWEN35 = rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True)
class PreTokenizer:
    """regexes: applied in order; ignore_merges: a whole piece that is a token is taken without merging."""

    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_LLAMA_BPE = PreTokenizer((_llama3(r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True)
_SMAUG = PreTokenizer((_llama3(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_llama3(r"\p{N}"),))
_GPT2_ONLY = PreTokenizer((_GPT2,))
_STARCODER = PreTokenizer((r"\p{N}", _GPT2))
_BLOOM_ONLY = PreTokenizer((_BLOOM,))
_GPT4O = PreTokenizer((_cased(f"{_CONTR}?", r"\p{N}{1,3}"),))
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

TABLE: dict[str, PreTokenizer] = {
    "default": _DEFAULT,
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA_BPE),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _SMAUG),
    "glm4": PreTokenizer((_llama3(r"\p{N}{1,3}"),), ignore_merges=True),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "stablelm2"), _QWEN2),
    "qwen35": PreTokenizer((_QWEN35,)),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": PreTokenizer(_DEEPSEEK_V3),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "roberta-bpe", "modern-bert", "exaone4"), _GPT2_ONLY
    ),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"), _STARCODER),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "tekken": PreTokenizer((_cased("", r"\p{N}"),), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _GPT4O),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), _BLOOM_ONLY),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
}


def find_pretokenizer(pre: str | None) -> PreTokenizer:
    """The rules for a tokenizer.ggml.pre value; a missing or unknown one is a warning, never a silent guess."""
    if pre is None or pre == "default":
        _warn("tokenizer.ggml.pre is missing: the default pre-tokenizer may split text differently than in training")
        return _DEFAULT
    found = TABLE.get(pre)
    if found is None:
        _warn(f"tokenizer.ggml.pre {pre[:64]!r} is unknown: llama-bpe rules are used and token ids may be wrong")
        return _LLAMA_BPE
    return found


def _warn(message: str) -> None:
    log.warning("%s", message)
    warnings.warn(message, stacklevel=3)
