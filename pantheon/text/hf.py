"""The tokenizer of a Hugging Face folder: tokenizer.json on the tokenizers package, or a SentencePiece tokenizer.model.

Control tokens are cut out of text before the package sees it, as for GGUF files: text from outside never becomes one.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as _Backend

from pantheon._core.bounded_json import read_json
from pantheon.regular_file import read_regular
from pantheon.text.bpe import ByteBPE
from pantheon.text.spm import ScoredBPE
from pantheon.text.spm_model import read_spm_model
from pantheon.text.tokenizer import Tokenizer
from pantheon.text.vocab import MAX_TOKENS, PREFIX, TEMPLATE_KEY, TokenType, Vocab, byte_value

log = logging.getLogger("pantheon")

_MAX_TEMPLATE_BYTES = 1 << 24
JSON_LIMITS = {"max_depth": 64, "max_items": 1 << 25, "max_bytes": 256 << 20}
_SPACE = "\u2581"
_BLANKS = " \t\n\v\f\r"


def load_tokenizer(folder: str, n_vocab: int) -> Tokenizer:
    """The tokenizer of a model folder. n_vocab: width of the logits. ValueError naming the file, or OSError."""
    settings = FolderSettings(Path(folder))
    path = settings.folder / "tokenizer.model"
    if (settings.folder / "tokenizer.json").exists():
        tokenizer: Tokenizer = HFTokenizer(settings, n_vocab)
    elif path.exists():
        tokenizer = _from_spm(path, settings, n_vocab)
    else:
        raise ValueError(f"{folder}: there is no tokenizer.json and no tokenizer.model")
    tokenizer.special_tokens = settings.special_tokens()
    return tokenizer


class FolderSettings:
    """What the small JSON files of a folder say about its tokenizer; a missing file says nothing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.tokenizer = self._read("tokenizer_config.json")
        self.generation = self._read("generation_config.json")
        self.config = self._read("config.json")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path, max_depth=64, max_items=1 << 22, max_bytes=64 << 20) if path.exists() else {}

    def token_text(self, name: str) -> str | None:
        """Text of bos_token, eos_token, ...: a string, or an object with its content."""
        value = self.tokenizer.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def flag(self, name: str) -> bool | None:
        value = self.tokenizer.get(name)
        return value if isinstance(value, bool) else None

    def eos_ids(self) -> list[int]:
        """Ids that end a generation, of the first file that has any."""
        for values in (self.generation, self.config):
            found = values.get("eos_token_id")
            ids = found if isinstance(found, list) else [found]
            ids = [i for i in ids if isinstance(i, int) and not isinstance(i, bool)]
            if ids:
                return ids
        return []

    def bos_id(self) -> int | None:
        for values in (self.config, self.generation):
            found = values.get("bos_token_id")
            if isinstance(found, int) and not isinstance(found, bool):
                return found
        return None

    def chat_templates(self) -> dict[str, str]:
        """Templates by name: those of tokenizer_config.json, then chat_template.jinja as "default" and the files of
        additional_chat_templates. One without a name is "default"."""
        found: dict[str, str] = {}
        value = self.tokenizer.get("chat_template")
        for entry in value if isinstance(value, list) else [{"name": "default", "template": value}]:
            name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
            if isinstance(name, str) and isinstance(text, str):
                found[name] = text
        more = sorted((self.folder / "additional_chat_templates").glob("*.jinja"))
        for path in [self.folder / "chat_template.jinja", *more]:
            if path.exists():
                name = "default" if path.parent == self.folder else path.stem
                found[name] = read_regular(path, _MAX_TEMPLATE_BYTES).decode("utf-8", "replace")
        return found

    def special_tokens(self) -> dict[str, str]:
        """Texts by name, as templates know them: bos_token, eos_token, ... and those of this model alone."""
        texts = {name: self.token_text(name) for name in self.tokenizer if name.endswith("_token")}
        return {name: text for name, text in texts.items() if text is not None}


class _Codec:
    """Encodes fragments without control tokens with the tokenizers package.

    Where tokenizer.json puts a space before the first word of a text only ("prepend_scheme": "first"), a second backend
    without that serves the fragments further on.
    """

    def __init__(self, data: dict[str, Any], path: Path):
        self._path = path
        self._first = _backend(data, path)
        self._later = self._first
        later = copy.deepcopy({k: v for k, v in data.items() if k == "pre_tokenizer"})
        if any([_set_never(m) for m in parts_of(later.get("pre_tokenizer"), "Metaspace")]):
            self._later = _backend({**data, **later}, path)
        kinds = {part.get("type") for part in parts_of(data.get("decoder"))}
        self.byte_level = "ByteLevel" in kinds
        if not self.byte_level and not kinds & {"ByteFallback", "Metaspace"}:
            raise ValueError(f"{path}: the decoder is neither byte-level nor that of SentencePiece")
        schemes = {m.get("prepend_scheme", "always") for m in parts_of(data.get("pre_tokenizer"), "Metaspace")}
        prepends = bool(list(parts_of(data.get("normalizer"), "Prepend"))) or bool(schemes - {"never"})
        self.add_space_prefix = prepends and not self.byte_level
        self.add_bos = False
        self.control: frozenset[int] = frozenset()

    def encode(self, text: str, first: bool = True) -> list[int]:
        backend = self._first if first else self._later
        encoding = backend.encode(text, add_special_tokens=False)
        if self.control.isdisjoint(encoding.ids):
            return encoding.ids
        # A vocabulary that has a control token's text among its ordinary entries: spell it out.
        ids: list[int] = []
        for i, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            spelt = [j for c in text[start:end] for j in self._later.encode(c, add_special_tokens=False).ids]
            ids += [j for j in spelt if j not in self.control] if i in self.control else [i]
        return ids

    def piece(self, text: bytes, kind: int) -> bytes:
        return ByteBPE.piece(text, kind) if self.byte_level else ScoredBPE.piece(text, kind)

    def surrounding(self) -> tuple[list[int], list[int]]:
        """Ids that the post-processor puts before and after a text."""
        plain = self._first.encode("a", add_special_tokens=False).ids
        whole = self._first.encode("a", add_special_tokens=True).ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return whole[:start], whole[start + len(plain) :]
        return [], []


class HFTokenizer(Tokenizer):
    """The tokenizer of tokenizer.json; see Tokenizer for its attributes and methods."""

    def __init__(self, settings: FolderSettings, n_vocab: int):
        path = settings.folder / "tokenizer.json"
        data = read_json(path, **JSON_LIMITS)
        codec = _Codec(data, path)
        texts, types, strips = _tokens(data, path)
        before, after = codec.surrounding()
        metadata = _metadata(settings, texts, types)
        metadata[PREFIX + "merges"] = _merges(data)
        if metadata.get(PREFIX + "bos_token_id") is None and before:
            metadata[PREFIX + "bos_token_id"] = before[0]
        bos = metadata.get(PREFIX + "bos_token_id")
        eos = metadata.get(PREFIX + "eos_token_id")
        wanted = settings.flag("add_bos_token")
        metadata[PREFIX + "add_bos_token"] = (bos is not None and before[:1] == [bos]) if wanted is None else wanted
        wanted = settings.flag("add_eos_token")
        metadata[PREFIX + "add_eos_token"] = (eos is not None and after[-1:] == [eos]) if wanted is None else wanted
        try:
            vocab = Vocab.from_metadata(metadata, n_vocab)
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None
        self._setup(_with_eos(vocab, settings), codec)
        codec.control = self._special_ids
        self._strips = strips

    @property
    def byte_level(self) -> bool:
        """Whether tokens spell bytes, as GPT-2's do; else they spell text as SentencePiece's do."""
        return self._codec.byte_level

    def _encode(self, text: str, control) -> list[int]:
        items = self._specials.split(text, control)
        ids: list[int] = []
        for n, (fragment, special) in enumerate(items):
            if special is not None:
                ids.append(special)
                continue
            if n > 0 and self._strips.get(items[n - 1][1], (False, False))[1]:
                fragment = fragment.lstrip(_BLANKS)
            if n + 1 < len(items) and self._strips.get(items[n + 1][1], (False, False))[0]:
                fragment = fragment.rstrip(_BLANKS)
            if fragment:
                ids += self._codec.encode(fragment, n == 0)
        return ids


def _backend(data: dict[str, Any], path: Path) -> _Backend:
    try:
        backend = _Backend.from_str(json.dumps(data))
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # the package panics on some files, which is no Exception
        raise ValueError(f"{path}: {str(e)[:300]}") from None
    return backend


def parts_of(node: Any, kind: str | None = None):
    """A normalizer, pre-tokenizer or decoder and, of a sequence, its members; only those of a kind."""
    if not isinstance(node, dict):
        return
    if kind is None or node.get("type") == kind:
        yield node
    for key in ("normalizers", "pretokenizers", "decoders"):
        for child in node.get(key) or []:
            yield from parts_of(child, kind)


def _set_never(metaspace: dict[str, Any]) -> bool:
    first = metaspace.get("prepend_scheme") == "first"
    if first:
        metaspace["prepend_scheme"] = "never"
    return first


def _tokens(data: dict[str, Any], path: Path) -> tuple[list[bytes], list[int], dict[int | None, tuple[bool, bool]]]:
    """Texts and types of all ids, and which added tokens swallow the white space before and after them."""
    model = data.get("model") or {}
    vocab = model.get("vocab")
    entries: dict[int, str] = {}
    if isinstance(vocab, dict):
        entries = {i: text for text, i in vocab.items()}
    elif isinstance(vocab, list):
        entries = {i: entry[0] for i, entry in enumerate(vocab)}
    byte_fallback = bool(model.get("byte_fallback"))
    added = [t for t in data.get("added_tokens") or [] if isinstance(t, dict)]
    ids = [*entries, *(t.get("id") for t in added)]
    if not ids or not all(isinstance(i, int) and 0 <= i < MAX_TOKENS for i in ids):
        raise ValueError(f"{path}: the vocabulary is empty or has ids outside 0..{MAX_TOKENS - 1}")
    if max(ids) > 2 * len(ids) + 65536:
        raise ValueError(f"{path}: {len(ids)} tokens have ids up to {max(ids)}")
    texts = [b""] * (max(ids) + 1)
    types = [int(TokenType.UNUSED)] * len(texts)
    for i, text in entries.items():
        texts[i] = text.encode("utf-8", "surrogatepass")
        types[i] = int(TokenType.BYTE if byte_fallback and byte_value(texts[i]) is not None else TokenType.NORMAL)
    strips: dict[int | None, tuple[bool, bool]] = {}
    for token in added:
        i = token["id"]
        texts[i] = str(token.get("content", "")).encode("utf-8", "surrogatepass")
        types[i] = int(TokenType.CONTROL if token.get("special") else TokenType.USER_DEFINED)
        if token.get("lstrip") or token.get("rstrip"):
            strips[i] = (bool(token.get("lstrip")), bool(token.get("rstrip")))
    return texts, types, strips


def _merges(data: dict[str, Any]) -> list[bytes] | None:
    merges = (data.get("model") or {}).get("merges")
    if not isinstance(merges, list):
        return None
    joined = (m if isinstance(m, str) else " ".join(map(str, m)) for m in merges)
    return [m.encode("utf-8", "surrogatepass") for m in joined]


def _metadata(settings: FolderSettings, texts: list[bytes], types: list[int]) -> dict[str, Any]:
    """The tokenizer as the keys of a GGUF file would say it; absent keys are left out."""
    by_text: dict[bytes, int] = {}
    for i, text in enumerate(texts):
        by_text.setdefault(text, i)

    def find(name: str) -> int | None:
        text = settings.token_text(name)
        return None if text is None else by_text.get(text.encode("utf-8", "surrogatepass"))

    eos = settings.eos_ids()
    keys = {
        PREFIX + "model": "hf",
        PREFIX + "tokens": texts,
        PREFIX + "token_type": types,
        PREFIX + "bos_token_id": find("bos_token"),
        PREFIX + "eos_token_id": find("eos_token"),
        PREFIX + "unknown_token_id": find("unk_token"),
        PREFIX + "padding_token_id": find("pad_token"),
        **{TEMPLATE_KEY if name == "default" else f"{TEMPLATE_KEY}.{name}": text
           for name, text in settings.chat_templates().items()},
    }
    if keys[PREFIX + "eos_token_id"] is None and eos:
        keys[PREFIX + "eos_token_id"] = eos[0]
    if keys[PREFIX + "bos_token_id"] is None and "bos_token" not in settings.tokenizer:
        keys[PREFIX + "bos_token_id"] = settings.bos_id()
    return {key: value for key, value in keys.items() if value is not None}


def _with_eos(vocab: Vocab, settings: FolderSettings) -> Vocab:
    """The vocabulary, ending a generation at every id that the model's configuration names too."""
    named = {i for i in settings.eos_ids() if 0 <= i < vocab.n_tokens}
    return replace(vocab, eog_ids=vocab.eog_ids | named)


def _from_spm(path: Path, settings: FolderSettings, n_vocab: int) -> Tokenizer:
    """A tokenizer.model, with the tokens that tokenizer_config.json adds behind its own."""
    model = read_spm_model(path)
    texts, types, scores = list(model.texts), list(model.types), list(model.scores)
    for key, token in _added_tokens(settings.tokenizer):
        if not 0 <= key < MAX_TOKENS or key > len(texts) + 65536:
            raise ValueError(f"{path}: an added token has id {key}, with {len(model.texts)} pieces")
        grow = key + 1 - len(texts)
        texts += [b""] * grow
        types += [int(TokenType.UNUSED)] * grow
        scores += [-1000.0] * grow
        if types[key] != TokenType.UNKNOWN:
            texts[key] = str(token.get("content", "")).encode("utf-8", "surrogatepass")
            types[key] = int(TokenType.CONTROL if token.get("special") else TokenType.USER_DEFINED)
    metadata = _metadata(settings, texts, types)
    metadata |= {PREFIX + "model": "llama", PREFIX + "scores": scores}
    metadata[PREFIX + "add_space_prefix"] = model.add_dummy_prefix
    for name in ("add_bos_token", "add_eos_token"):
        value = settings.flag(name)
        if value is not None:
            metadata[PREFIX + name] = value
    for name, value in (("bos", model.bos_id), ("eos", model.eos_id), ("unknown", model.unk_id)):
        metadata.setdefault(f"{PREFIX}{name}_token_id", value)
    try:
        tokenizer = Tokenizer(metadata, n_vocab)
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from None
    tokenizer.eog_ids = _with_eos(tokenizer.vocab, settings).eog_ids
    return tokenizer


def _added_tokens(settings: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    found = settings.get("added_tokens_decoder")
    items = found.items() if isinstance(found, dict) else []
    return sorted(((int(k), t) for k, t in items if k.isdecimal() and isinstance(t, dict)), key=lambda item: item[0])
