"""Pre-tokenizer regexes of byte-level BPE by their tokenizer.ggml.pre name.

The regexes are in Oniguruma syntax, applied in order: each splits every piece of the previous one into its matches and
the gaps between them. None may need more than linear time on any input.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

log = logging.getLogger("pantheon")

_CONTR = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _llama3(digits: str, tail: str = _TAIL) -> str:
    return rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{tail}"


def _cased(suffix: str, digits: str, but: str = "", line_ends: str = r"[\r\n/]*") -> str:
    """Words split at lower-to-upper changes; suffix is what may follow a word within the match, but what no letter of
    one may be, line_ends what marks take with them."""
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{line_ends}|{_TAIL}"


def _threes_from_the_right(digit: str) -> str:
    """Groups of three digits, counted from the end of a piece that is a run of digits already: one or two at its
    beginning leave a multiple of three. (The usual (?=(\\d{3})+(?!\\d)) takes quadratic time.)"""
    return rf"\A{digit}{{1,2}}(?=(?:{digit}{{3}})*+\z)|{digit}{{3}}"


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
_WORDS_AND_MARKS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+"
)
_HAN_KANA = r"[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK_V3 = (r"\p{N}{1,3}", _HAN_KANA, rf"{_WORDS_AND_MARKS}[\r\n]*|{_TAIL}")
_SPARK = (r"\p{N}{1,3}", _HAN_KANA, rf"{_WORDS_AND_MARKS}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")
_ASIAN = (  # without word spaces: Han, kana, Thai, Lao, Khmer, Burmese, Hangul
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}"
    r"\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}"
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)
_AFMOE = (r"\p{N}+", _threes_from_the_right(r"\p{N}"), _ASIAN, _DEEPSEEK_V3[2])
_QWEN35 = rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_YOUTU = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[！…\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}：；，\x{3001}-\x{303F}"
    r"\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    _cased(f"{_CONTR}?", r"\p{N}"),
)
_KIMI_K2 = r"[\p{Han}]+|" + _cased(f"{_CONTR}?", r"\p{N}{1,3}", r"&&[^\p{Han}]", r"[\r\n]*")
_JAIS2_BLANKS = "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
_JAIS2 = _llama3(r"\p{N}{1,3}", rf"\s*[\r\n]+{_JAIS2_BLANKS}|\s{{1}}")
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED_CODER = rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}"
_UFAKZEKA = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
_EXAONE_MOE = (  # words with single blanks between them stay together
    rf"{_CONTR}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_LINES = r"[^\n]+|[\n]+"


@dataclass(frozen=True)
class PreTokenizer:
    """regexes: applied in order; nfc: text is brought into that form first.

    ignore_merges: a whole piece that is a token is taken without merging. characters: the vocabulary spells characters,
    with U+2581 for a blank, not bytes. whole_line_ends: a run of line ends that is a token is taken without merging.
    """

    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False
    characters: bool = False
    whole_line_ends: bool = False


_LLAMA_BPE = PreTokenizer((_llama3(r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True)
_SMAUG = PreTokenizer((_llama3(r"\p{N}{1,3}"),))
_GLM4 = PreTokenizer((_llama3(r"\p{N}{1,3}"),), ignore_merges=True)
_QWEN = PreTokenizer((_llama3(r"\p{N}"),))
_GPT2_ONLY = PreTokenizer((_GPT2,))
_STARCODER = PreTokenizer((r"\p{N}", _GPT2))
_BLOOM_ONLY = PreTokenizer((_BLOOM,))
_GPT4O = PreTokenizer((_cased(f"{_CONTR}?", r"\p{N}{1,3}"),))
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_GEMMA4 = PreTokenizer((_LINES,), characters=True, whole_line_ends=True)

_FAMILIES: tuple[tuple[str, PreTokenizer], ...] = (
    ("default", _DEFAULT),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", _LLAMA_BPE),
    ("dbrx smaug-bpe chatglm-bpe", _SMAUG),
    ("glm4 glm5", _GLM4),
    ("minicpm5", PreTokenizer((r"\p{N}{1,3}", _llama3(r"\p{N}+")), ignore_merges=True)),
    ("jais-2", PreTokenizer((_JAIS2,))),
    # Qwen2.5's, Qwen3.5's and Command R's own tokenizer.json have the normaliser NFC.
    ("qwen2", replace(_QWEN, nfc=True)),
    ("qwen35", PreTokenizer((_QWEN35,), nfc=True)),
    ("command-r", replace(_STARCODER, nfc=True)),
    ("deepseek-r1-qwen kormo f2llmv2 megrez hunyuan stablelm2 solar-open grok-2", _QWEN),
    ("ufakzeka", PreTokenizer((_UFAKZEKA,))),
    ("laguna", PreTokenizer((_LINES, _llama3(r"\p{N}")))),
    ("seed-coder", PreTokenizer((_SEED_CODER,))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_BAILING,))),
    ("exaone-moe", PreTokenizer((_EXAONE_MOE,))),
    ("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    ("deepseek-coder", PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", PreTokenizer(_DEEPSEEK_V3)),
    ("spark2_5", PreTokenizer(_SPARK)),
    ("afmoe", PreTokenizer(_AFMOE)),
    ("gpt-2 phi-2 mpt olmo jais gigachat roberta-bpe modern-bert exaone4 jina-v1-en jina-v2-code jina-es jina-de "
     "jina-v2-es jina-v2-de a.x-4.0 mellum trillion granite-docling", _GPT2_ONLY),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", _STARCODER),
    ("falcon", PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    ("chameleon", PreTokenizer(_CHAMELEON, add_bos=True)),
    ("superbpe", PreTokenizer((r"\p{N}+", _threes_from_the_right(r"\d")))),
    ("tekken", PreTokenizer((_cased("", r"\p{N}"),), ignore_merges=True, add_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _GPT4O),
    ("granite-embed-multi-97m", replace(_GPT4O, ignore_merges=True)),
    ("tiny_aya cohere2moe", PreTokenizer((r"\p{N}+", _threes_from_the_right(r"\p{N}"), *_GPT4O.regexes))),
    ("youtu", PreTokenizer(_YOUTU, ignore_merges=True)),
    ("kimi-k2", PreTokenizer((_KIMI_K2,))),
    ("bloom gpt3-finnish poro-chat", _BLOOM_ONLY),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    ("gemma4 granite-embed-multi-311m", _GEMMA4),
    ("sarvam-moe", replace(_GEMMA4, whole_line_ends=False)),
)  # fmt: skip
TABLE: dict[str, PreTokenizer] = {name: rules for names, rules in _FAMILIES for name in names.split()}


def find_pretokenizer(pre: str | None) -> PreTokenizer:
    """The rules for a tokenizer.ggml.pre value. A missing or "default" one is a warning; ValueError for one that there
    are no rules for: another model's would give wrong token ids."""
    if pre is None or pre == "default":
        log.warning("tokenizer.ggml.pre is missing: the default pre-tokenizer may not split text as in training")
        return _DEFAULT
    found = TABLE.get(pre)
    if found is None:
        raise ValueError(f"tokenizer.ggml.pre {pre[:64]!r}: there are no rules for this pre-tokenizer")
    return found
