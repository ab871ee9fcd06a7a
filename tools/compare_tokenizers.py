"""Compares token ids, and of SentencePiece the texts they decode to, with those of the tokenizers and sentencepiece
packages, text by text, and counts differences.

    python tools/compare_tokenizers.py [--cases 100000] [--seed 1] [--part pretokenizers|added|spm] [--from 0]
    python tools/compare_tokenizers.py --blanks      # how long 100,000 blanks take, against the tokenizers package

Three parts, a third of the cases each: every pre-tokenizer of GGUF files; random sets of added tokens, with all five
flags, on random normalisers, in text that is trusted and in text that is not; SentencePiece models of random training
options.
A case depends on its number and the seed alone: --from goes on where a run was stopped. Ends with 1 for any difference
but the documented one: that text never becomes a control token by merges (docs/tokenizers.md), which is counted apart.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers as package
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from pantheon.text import Tokenizer
from pantheon.text.hf import load_tokenizer
from pantheon.text.pretokenizers import TABLE
from pantheon.text.vocab import EOG_TEXTS

CORPUS = (
    "The quick brown fox jumps over the lazy dog. It's a naïve café in 日本語, привет мир! 😀 hello hello world",
    "def f(x):\n    return x + 1234567\n\n\tprint('aaaa aaaaaaaa', f(11))  # user system assistant tools 12 123",
    "한국어 텍스트 ไทย العربية हिन्दी and again the text that is the text of the dog and the cat; don't, we'll, I'M",
)
WORDS = (
    "the", "The", "cat", "cats", "don't", "IT'S", "camelCase", "ABCdef", "naïve", "Cafe\u0301", "e\u0301", "ﬁ",
    "１２", "ｆｏｘ", "日本語", "かな", "한국", "ไทย", "العربية", "हिन्दी", "привет", "Ⴧა", "ǅ", "😀",
    "👩\u200d👩\u200d👧", "x", "a", "b", "1", "12", "12345", "1234567", "²", "½", "Ⅷ", "!", "?!", "...", "(",
    ")", "/", "//", "_", "$", "+=", "`", "|", "~", "¡", "«", "…", "。", "，", "\u0301", "\u200d", "\u00ad",
)  # fmt: skip
BLANKS = (" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u3000", "\u00a0", "\u2028", "\x85", "\x1f", "▁")
TOKENS_PER_SET = 8
TEXTS_PER_SET = 40
GROUP = 50  # cases that share a tokenizer


def text_of(rng: random.Random, more: tuple[str, ...] = ()) -> str:
    """A text of words, blanks and, where there are some, tokens and their beginnings and ends."""
    parts = []
    for _ in range(rng.choice((1, 2, 4, 8, 16, 30))):
        kind = rng.random()
        if more and kind < 0.4:
            token = rng.choice(more)
            cut = rng.randrange(len(token) + 1) if rng.random() < 0.2 else len(token)
            parts.append(token[:cut] if rng.random() < 0.5 else token[len(token) - cut :])
        elif kind < 0.65:
            parts.append(rng.choice(BLANKS) * rng.choice((1, 1, 1, 2, 5)))
        else:
            parts.append(rng.choice(WORDS))
    return "".join(parts)


def trained_bytes() -> dict[str, Any]:
    """Vocabulary and merges of a byte-level BPE that the package trained."""
    trained = package.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=sorted(alphabet), show_progress=False)
    trained.train_from_iterator(CORPUS * 20, trainer)
    return json.loads(trained.to_str())["model"]


# ---- pre-tokenizers --------------------------------------------------------------------------------------------------

def pretokenizer_pairs(model: dict[str, Any], name: str) -> tuple[Tokenizer, package.Tokenizer]:
    """Ours by GGUF keys, and the package's with the rules as they are written."""
    texts = sorted(model["vocab"], key=model["vocab"].get)
    metadata = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": [t.encode() for t in texts], "tokenizer.ggml.token_type": [1] * len(texts),
        "tokenizer.ggml.merges": [" ".join(m).encode() for m in model["merges"]],
    }  # fmt: skip
    rules = TABLE[name]
    theirs = package.Tokenizer(models.BPE(model["vocab"], [tuple(m) for m in model["merges"]],
                                          ignore_merges=rules.ignore_merges))  # fmt: skip
    if rules.nfc:
        theirs.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(r), "isolated") for r in rules.regexes]
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return Tokenizer(metadata, len(texts)), theirs


def pretokenizer_cases(seed: int, numbers: range) -> Iterator[tuple[int, str, Callable[[], tuple[Any, Any, bool]]]]:
    model = trained_bytes()
    names = sorted(name for name, rules in TABLE.items() if not rules.characters)
    pairs = {name: pretokenizer_pairs(model, name) for name in names}
    for number in numbers:
        name = names[number % len(names)]
        text = text_of(random.Random(f"{seed} pre {number}"))
        ours, theirs = pairs[name]
        yield number, f"{name}: {text!r}", lambda o=ours, t=theirs, x=text: (
            o.encode(x, add_bos=False), t.encode(x).ids, False)


# ---- added tokens ----------------------------------------------------------------------------------------------------

def added_set(rng: random.Random, base: int) -> list[dict[str, Any]]:
    pool = ["<s>", "</s>", "<|im_end|>", "<tool>", "ab", "bcd", "cat", "the", "<", "<x>", "▁▁", "▁", " ", "  ", "\n",
            "\n\n", "é", "e\u0301", "日本", "12", "1", "'s", " the", "the ", "_", "Cafe\u0301", "A", "<s><x>", "s>",
            "\u3000"]
    flags = ("special", "normalized", "lstrip", "rstrip", "single_word")
    chosen = rng.sample(pool, rng.randrange(1, TOKENS_PER_SET + 1))
    found = [{"id": base + i, "content": text, **{flag: rng.random() < 0.4 for flag in flags}}
             for i, text in enumerate(chosen)]
    for token in found:  # what ends a generation is a control token in any file
        token["special"] |= token["content"].encode() in EOG_TEXTS
    return found


def added_json(rng: random.Random, model: dict[str, Any]) -> dict[str, Any]:
    """A byte-level tokenizer.json, or one of characters with byte fallback."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    data: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    if rng.random() < 0.5:
        rules = TABLE[rng.choice(("gpt-2", "llama-bpe", "qwen2"))]
        data |= {
            "model": model,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "normalizer": rng.choice((None, {"type": "NFC"}, {"type": "Lowercase"}, {"type": "NFKC"})),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": rules.regexes[0]}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        }  # fmt: skip
    else:
        tokens = [f"<0x{b:02X}>" for b in range(256)] + sorted(set("▁<>/|" + "".join(WORDS)) - set(" "))
        vocab = {token: i for i, token in enumerate(tokens)}
        metaspace = {"type": "Metaspace", "replacement": "▁", "split": rng.random() < 0.5,
                     "prepend_scheme": rng.choice(("first", "always", "never"))}  # fmt: skip
        data |= {
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True, "unk_token": None},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}]},
            **rng.choice((
                {"normalizer": {"type": "Sequence", "normalizers": [prepend, replace]}, "pre_tokenizer": None},
                {"normalizer": replace, "pre_tokenizer": None}, {"normalizer": None, "pre_tokenizer": metaspace},
            )),
        }  # fmt: skip
    data["added_tokens"] = added_set(rng, len(data["model"]["vocab"]))
    return data


def added_cases(seed: int, numbers: range) -> Iterator[tuple[int, str, Callable[[], tuple[Any, Any, bool]]]]:
    model = trained_bytes()
    group, ours, theirs, data = -1, None, {}, {}
    for number in numbers:
        if number // GROUP != group:
            group = number // GROUP
            data = added_json(random.Random(f"{seed} set {group}"), model)
            plain = package.Tokenizer.from_str(json.dumps(data))
            # Of tokens with the same normalised text the package takes now one, now another.
            normalize = plain.normalizer.normalize_str if plain.normalizer else str
            distinct = {(t["normalized"], normalize(t["content"])): t for t in data["added_tokens"]}
            data["added_tokens"] = list(distinct.values())
            # It numbers added tokens anew, and where their text is an entry already.
            plain = package.Tokenizer.from_str(json.dumps(data))
            for token in data["added_tokens"]:
                token["id"] = plain.token_to_id(token["content"])
            theirs = {parse: package.Tokenizer.from_str(json.dumps(data)) for parse in (True, False)}
            theirs[False].encode_special_tokens = True
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "tokenizer.json").write_text(json.dumps(data))
                ours = load_tokenizer(folder, 1 << 16)
        rng = random.Random(f"{seed} added {number}")
        text = text_of(rng, tuple(token["content"] for token in data["added_tokens"]))
        parse = rng.random() < 0.5

        def run(o=ours, t=theirs[parse], x=text, p=parse):
            expected = t.encode(x, add_special_tokens=False).ids
            never = not p and any(map(o.is_special, expected))
            return o.encode(x, add_bos=False, parse_special=p), expected, never

        shown = json.dumps({k: data[k] for k in ("normalizer", "pre_tokenizer", "added_tokens")}, ensure_ascii=False)
        yield number, f"{'parsed' if parse else 'plain'} {text!r} {shown}", run


# ---- SentencePiece ---------------------------------------------------------------------------------------------------

def spm_model(rng: random.Random) -> tuple[bytes, tuple[str, ...]]:
    out = io.BytesIO()
    symbols = rng.sample(["<sep>", "▁▁", "12", "<x>", "the", "日", "\n"], rng.randrange(4))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS * 20 for line in text.splitlines() if line]), model_writer=out,
        model_type="bpe", vocab_size=520, hard_vocab_limit=False, minloglevel=2, user_defined_symbols=symbols,
        normalization_rule_name=rng.choice(("nmt_nfkc", "nmt_nfkc", "nfkc", "identity", "nmt_nfkc_cf")),
        remove_extra_whitespaces=rng.random() < 0.5, add_dummy_prefix=rng.random() < 0.7,
        treat_whitespace_as_suffix=rng.random() < 0.2, byte_fallback=rng.random() < 0.5,
        allow_whitespace_only_pieces=rng.random() < 0.5, split_digits=rng.random() < 0.5)  # fmt: skip
    return out.getvalue(), tuple(symbols)


def spm_cases(seed: int, numbers: range) -> Iterator[tuple[int, str, Callable[[], tuple[Any, Any, bool]]]]:
    group, ours, theirs, symbols = -1, None, None, ()
    for number in numbers:
        if number // (20 * GROUP) != group:
            group = number // (20 * GROUP)
            data, symbols = spm_model(random.Random(f"{seed} model {group}"))
            theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "tokenizer.model").write_bytes(data)
                ours = load_tokenizer(folder, 1 << 16)
        text = text_of(random.Random(f"{seed} spm {number}"), symbols)
        yield number, f"model {group}: {text!r}", lambda o=ours, t=theirs, x=text: (
            (o.encode(x, add_bos=False), spm_text(o, t, x)), (t.encode(x), t.decode(t.encode(x))), False)


def spm_text(ours: Tokenizer, theirs: sentencepiece.SentencePieceProcessor, text: str) -> str:
    """What ours makes of the package's ids; the package itself shows the unknown token as two question marks."""
    ids = theirs.encode(text)
    return theirs.decode(ids) if theirs.unk_id() in ids else ours.decode(ids)


# ---- long runs of blanks ---------------------------------------------------------------------------------------------

def blanks() -> None:
    """Prints how long a run of 100,000 blanks takes with the added tokens of Phi-2, runs of 2 to 31 blanks each."""
    model, n, text = trained_bytes(), 100_000, " " * 100_000
    base = len(model["vocab"])
    theirs = package.Tokenizer(models.BPE(model["vocab"], [tuple(m) for m in model["merges"]]))
    theirs.pre_tokenizer, theirs.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    theirs.add_tokens([package.AddedToken(" " * i, normalized=True) for i in range(31, 1, -1)])
    texts = [*sorted(model["vocab"], key=model["vocab"].get), *(" " * i for i in range(31, 1, -1))]
    gguf = Tokenizer({
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [t.encode() for t in texts],
        "tokenizer.ggml.token_type": [1] * base + [4] * 30,
        "tokenizer.ggml.merges": [" ".join(m).encode() for m in model["merges"]],
    }, len(texts))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(theirs.to_str(), "utf-8")
        ours = load_tokenizer(folder, len(texts))
    runs = {"tokenizers": lambda: theirs.encode(text).ids, "a folder": lambda: ours.encode(text, add_bos=False),
            "a GGUF file": lambda: gguf.encode(text, add_bos=False)}  # fmt: skip
    assert len({tuple(run()) for run in runs.values()}) == 1
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(9):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    reference = statistics.median(seconds["tokenizers"])
    for name, found in seconds.items():
        value = statistics.median(found)
        print(f"{n} blanks, {name}: {1e3 * value:.1f} ms, {value / reference:.2f} x tokenizers")


PARTS = {"pretokenizers": pretokenizer_cases, "added": added_cases, "spm": spm_cases}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000, help="of all parts together (default 100000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=sorted(PARTS), action="append")
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first case of each part")
    parser.add_argument("--blanks", action="store_true", help="only measure a long run of blanks")
    args = parser.parse_args()
    if args.blanks:
        blanks()
        return 0
    warnings.simplefilter("ignore")
    print(f"tokenizers {package.__version__}, sentencepiece {sentencepiece.__version__}, seed {args.seed}")
    failed = 0
    for part in args.part or sorted(PARTS):
        counts: Counter[str] = Counter()
        numbers = range(args.first, args.cases // len(PARTS))
        for number, shown, run in PARTS[part](args.seed, numbers):
            try:
                ours, theirs, never = run()
            except BaseException as e:
                if type(e).__name__ != "PanicException":
                    raise
                counts["the package panics"] += 1
                continue
            kind = "equal" if ours == theirs else "control tokens from plain text" if never else "different"
            counts[kind] += 1
            if kind == "different" and counts[kind] <= 10:
                print(f"{part} {number}: {shown}\n  ours   {ours}\n  theirs {theirs}", flush=True)
            if number % 2000 == 0:
                print(f"{part} {number}", file=sys.stderr, flush=True)
        print(f"{part}: {dict(counts)}", flush=True)
        failed += counts["different"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
