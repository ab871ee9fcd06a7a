"""The tokenizer of a model folder as GGUF keys: tokens, types, scores or merges, special ids, chat templates."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pantheon._core.files.bounded_json import read_json
from pantheon._core.files.gguf_vocab import most_tokens
from pantheon.convert.hyper import Hyper
from pantheon.convert.pretokenizer import pretokenizer_name
from pantheon.text.folder import FolderSettings
from pantheon.text.hf import HFTokenizer, SpmTokenizer, json_limits, load_tokenizer
from pantheon.text.hf_codec import parts_of
from pantheon.text.spm_model import read_spm_model
from pantheon.text.tokenizer import Tokenizer
from pantheon.text.vocab import ID_KEYS, PREFIX, TokenType, Vocab

if TYPE_CHECKING:
    import gguf

log = logging.getLogger("pantheon")

_UNUSED_SCORE = -10000.0
_ADDED_SCORE = -1000.0
_SPACE = "\u2581".encode()
_KEPT_IDS = ("bos", "eos", "unknown", "separator", "padding", "mask")  # readers find the others by their texts
# Added tokens that look like this steer the model, whatever their file calls them: text may not become one.
_LOOKS_SPECIAL = re.compile(rb"<\|.*\|>|<\xef\xbd\x9c.*\xef\xbd\x9c>", re.DOTALL)


@dataclass(frozen=True)
class Vocabulary:
    """Index of the per-token fields is the id; there are as many as logits. ids: by the names of Vocab.ids."""

    model: str
    pre: str
    tokens: list[bytes]
    types: list[int]
    scores: list[float] | None
    merges: list[bytes] | None
    ids: dict[str, int]
    flags: dict[str, bool]
    templates: dict[str, str]


def read_vocabulary(folder: Path, h: Hyper) -> Vocabulary:
    """ValueError naming the file when there is no tokenizer, or one that has no GGUF form."""
    settings = FolderSettings(folder)
    path = folder / "tokenizer.json"
    if not path.exists() and not (folder / "tokenizer.model").exists():
        raise ValueError(f"{folder}: there is no tokenizer.json and no tokenizer.model (--no-tokenizer does without)")
    tokenizer = load_tokenizer(str(folder), h.n_vocab)
    vocab = tokenizer.vocab
    byte_level = isinstance(tokenizer, HFTokenizer) and tokenizer.byte_level
    data = read_json(path, **json_limits(h.n_vocab)) if path.exists() else {}
    pre = pretokenizer_name(data, str(path)) if byte_level else "default"
    if byte_level and not vocab.merges:
        raise ValueError(f"{path}: key model.merges: a byte-level vocabulary without merges has no GGUF form")
    _warn_of_losses(tokenizer, data, path if path.exists() else folder / "tokenizer.model", h)
    types = _types(vocab)
    unknown = vocab.ids.get("unknown")
    if not byte_level and unknown is not None:
        types[unknown] = int(TokenType.UNKNOWN)
    tokens = [_text(text, kind, byte_level) for text, kind in zip(vocab.texts, types, strict=True)]
    scores = None if byte_level else _scores(folder, vocab, types)
    for _ in range(len(tokens), h.n_vocab):  # logits that no token stands for
        tokens.append(b"")
        types.append(int(TokenType.UNUSED))
        if scores is not None:
            scores.append(_UNUSED_SCORE)
    for i, text in enumerate(tokens):
        if not text:
            tokens[i] = b"[PAD%d]" % i
    flags = {"add_bos_token": tokenizer.add_bos, "add_eos_token": tokenizer.add_eos}
    if not byte_level:
        flags["add_space_prefix"] = tokenizer.add_space_prefix
    return Vocabulary("gpt2" if byte_level else "llama", pre, tokens, types, scores,
                      vocab.merges if byte_level else None, _ids(tokenizer, settings), flags, settings.chat_templates())


def _warn_of_losses(tokenizer: Tokenizer, data: dict[str, Any], path: Path, h: Hyper) -> None:
    """Readers take text as it is, and added tokens wherever they stand in it: no key of a GGUF file says otherwise."""
    byte_level = isinstance(tokenizer, HFTokenizer) and tokenizer.byte_level
    kept = {"Sequence", "NFC"} if byte_level else {"Sequence", "Prepend", "Replace"}
    lost = {str(part.get("type")) for part in parts_of(data.get("normalizer"))} - kept
    if isinstance(tokenizer, SpmTokenizer):
        lost = set(tokenizer.changes)
    if lost:
        log.warning("%s: its normaliser (%s) has no place in a GGUF file: ids differ where it changes the text",
                    path, ", ".join(sorted(lost)))
    flags = ["lstrip", "rstrip", "single_word"] + ["normalized"] * (data.get("normalizer") is not None)
    if h.facts.gguf_name and not byte_level:
        flags.remove("rstrip")  # which readers know by the model's name
    used = [flag for flag in flags if any(getattr(token, flag) for token in tokenizer.added_tokens)]
    if used:
        log.warning("%s: %s of added tokens has no place in a GGUF file: ids beside such tokens differ", path,
                    ", ".join(used))


def _types(vocab: Vocab) -> list[int]:
    return [int(TokenType.CONTROL) if kind == TokenType.USER_DEFINED and _LOOKS_SPECIAL.fullmatch(text) else int(kind)
            for text, kind in zip(vocab.texts, vocab.types, strict=True)]


def _text(text: bytes, kind: int, byte_level: bool) -> bytes:
    """Readers take the text of an added token as it is written: no mark may stand for a space in it."""
    return text.replace(_SPACE, b" ") if kind == TokenType.USER_DEFINED and not byte_level else text


def _scores(folder: Path, vocab: Vocab, types: list[int]) -> list[float]:
    """By which readers merge: SentencePiece's own, or else the ranks of the merges that make the tokens."""
    if vocab.scores is not None:
        return list(vocab.scores)
    path = folder / "tokenizer.model"
    if path.exists():
        model = read_spm_model(path, most_tokens(vocab.n_vocab))
        known = dict(zip(model.texts, model.scores, strict=True))
        if all(text in known for text, kind in zip(vocab.texts, types, strict=True) if kind == TokenType.NORMAL):
            return [known.get(text, _ADDED_SCORE) for text in vocab.texts]
        log.warning("%s: tokenizer.json has tokens that tokenizer.model lacks; its merges give the scores", folder)
    rank: dict[bytes, int] = {}
    for i, merge in enumerate(vocab.merges or []):
        split = merge.find(b" ", 1)
        rank.setdefault(merge[:split] + merge[split + 1 :], i)
    last = len(rank)
    return [float(-rank.get(text, last)) if kind in (TokenType.NORMAL, TokenType.BYTE) else _ADDED_SCORE
            for text, kind in zip(vocab.texts, types, strict=True)]


def _ids(tokenizer: Tokenizer, settings: FolderSettings) -> dict[str, int]:
    vocab = tokenizer.vocab
    ids: dict[str, int] = {name: i for name, i in vocab.ids.items() if name in _KEPT_IDS}
    bos = settings.bos_id()
    if "bos" not in ids and bos is not None and 0 <= bos < vocab.n_tokens:
        ids["bos"] = bos  # never put in front of a text, but readers without the key take an arbitrary token for it
    # Ends that only the configuration names: readers find the others by their texts.
    found = Vocab.from_metadata(
        {PREFIX + "model": "gpt2", PREFIX + "tokens": vocab.texts, PREFIX + "token_type": vocab.types,
         PREFIX + "eos_token_id": ids.get("eos")}, vocab.n_vocab).eog_ids
    more = sorted(tokenizer.eog_ids - found)
    ids |= dict(zip(("eot", "eom"), more, strict=False))
    if len(more) > 2:
        log.warning("%s: of %d ids that end an answer GGUF has keys for four: %s are left out", settings.folder,
                    len(tokenizer.eog_ids), more[2:])
    return ids


def add_vocabulary(writer: gguf.GGUFWriter, v: Vocabulary) -> None:
    writer.add_tokenizer_model(v.model)
    writer.add_tokenizer_pre(v.pre)
    writer.add_token_list(v.tokens)
    writer.add_token_types(v.types)
    if v.scores is not None:
        writer.add_token_scores(v.scores)
    if v.merges is not None:
        writer.add_array(PREFIX + "merges", v.merges)
    for name, i in v.ids.items():
        writer.add_uint32(PREFIX + ID_KEYS[name], i)
    for name, value in v.flags.items():
        writer.add_bool(PREFIX + name, value)
    _add_templates(writer, v.templates)


def _add_templates(writer: gguf.GGUFWriter, templates: dict[str, str]) -> None:
    named: dict[str, Any] = {re.sub("[^A-Za-z0-9]", "_", name): text for name, text in templates.items()}
    default = named.pop("default", None)
    if default is None and named:
        default = next(iter(named.values()))
    if default is not None:
        writer.add_chat_template(default)
    for name, text in named.items():
        writer.add_string(f"tokenizer.chat_template.{name}", text)
    if named:
        writer.add_array("tokenizer.chat_templates", list(named))


def no_vocabulary(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("none")
