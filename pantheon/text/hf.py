"""The tokenizer of a Hugging Face folder: tokenizer.json on the tokenizers package, or a SentencePiece tokenizer.model.

Control tokens are cut out of text before a package sees it, as for GGUF files: text from outside never becomes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pantheon._core.files.bounded_json import parse_json, read_json
from pantheon._core.files.gguf_vocab import MERGES_PER_TOKEN, most_tokens
from pantheon.text.folder import FolderSettings
from pantheon.text.hf_codec import JsonCodec, surrounding
from pantheon.text.hf_table import JsonTable
from pantheon.text.specials import Special
from pantheon.text.spm import SpmFile
from pantheon.text.spm_model import read_spm_model
from pantheon.text.tokenizer import Tokenizer
from pantheon.text.vocab import PREFIX, SPECIAL_TYPES, TokenType, Vocab

HF_JSON_KEY = "tokenizer.huggingface.json"
_CONTROL = (TokenType.CONTROL, TokenType.UNKNOWN)


def load_tokenizer(folder: str, n_vocab: int) -> Tokenizer:
    """The tokenizer of a model folder. n_vocab: width of the logits. ValueError naming the file, or OSError."""
    settings = FolderSettings(Path(folder))
    path = settings.folder / "tokenizer.json"
    if path.exists():
        data = read_json(path, **json_limits(n_vocab))
        return HFTokenizer(data, str(path), n_vocab, settings)
    path = settings.folder / "tokenizer.model"
    if path.exists():
        return SpmTokenizer(path, n_vocab, settings)
    raise ValueError(f"{folder}: there is no tokenizer.json and no tokenizer.model")


def load_gguf_tokenizer(metadata: Mapping[str, Any], n_vocab: int) -> Tokenizer:
    """The tokenizer of a GGUF file: the whole tokenizer.json that a few hold, else that of the tokenizer.ggml keys.

    metadata: GGUF keys (a mapping); n_vocab: width of the logits. ValueError names the key that is wrong.
    """
    text = metadata.get(HF_JSON_KEY)
    if text is None:
        return Tokenizer(metadata, n_vocab)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not isinstance(text, str):
        raise ValueError(f"{HF_JSON_KEY} must be a string, not {type(text).__name__}")
    data = parse_json(text, HF_JSON_KEY, **json_limits(n_vocab))
    return HFTokenizer(data, HF_JSON_KEY, n_vocab, _GGUFSettings(metadata))


def json_limits(n_vocab: int) -> dict[str, int]:
    """Of a tokenizer.json: three values a token in its vocabulary, and three for each of its merges."""
    return {"max_depth": 64, "max_items": (3 + 3 * MERGES_PER_TOKEN) * most_tokens(n_vocab), "max_bytes": 256 << 20}


class _GGUFSettings:
    """What the other keys of a GGUF file say beside its tokenizer.json: as FolderSettings."""

    _VOCABULARY = frozenset(PREFIX + name for name in ("model", "pre", "tokens", "token_type", "scores", "merges"))

    def __init__(self, metadata: Mapping[str, Any]):
        self._metadata = metadata

    def keys(self, by_text: Mapping[bytes, int]) -> dict[str, Any]:
        others = {key for key in self._metadata if key.startswith("tokenizer.")} - self._VOCABULARY - {HF_JSON_KEY}
        return {key: self._metadata[key] for key in others}

    def added_tokens(self) -> list[Special]:
        return []

    def special_tokens(self) -> dict[str, str | list[str]]:
        return {}

    def special_texts(self) -> frozenset[str]:
        return frozenset()

    def eos_ids(self) -> list[int]:
        return []


class HFTokenizer(Tokenizer):
    """The tokenizer of a tokenizer.json; see Tokenizer for its attributes and methods."""

    def __init__(self, data: dict[str, Any], where: str, n_vocab: int, settings: FolderSettings | _GGUFSettings):
        """data: the parsed file; where: begins messages."""
        table = JsonTable(data, where, n_vocab)
        table.add(settings.added_tokens(), settings.special_texts())
        metadata = {PREFIX + "model": "hf", PREFIX + "tokens": table.texts, PREFIX + "token_type": table.types,
                    PREFIX + "merges": table.merges, **settings.keys(table.by_text())}  # fmt: skip
        before, after = surrounding(data.get("post_processor"), where)
        if metadata.get(PREFIX + "bos_token_id") is None and before:
            metadata[PREFIX + "bos_token_id"] = before[0]
        for name, found in (("bos", before[:1]), ("eos", after[-1:])):
            i = metadata.get(f"{PREFIX}{name}_token_id")
            metadata.setdefault(f"{PREFIX}add_{name}_token", i is not None and found == [i])
        vocab = _vocab(metadata, n_vocab, settings, where)
        control = frozenset(i for i, kind in enumerate(vocab.types) if kind in _CONTROL)
        specials = [replace(special, control=special.id in control)
                    for special in table.specials if special.id < vocab.n_tokens]  # fmt: skip
        ends = {*vocab.eog_ids, vocab.ids.get("bos")}  # which some files name as the unknown token too
        looked_for = [special for special in specials if special.normalized]
        codec = JsonCodec({**data, "model": table.model}, where, looked_for, control, {table.unknown} - ends)
        self._setup(vocab, codec, [s for s in specials if not s.normalized], where)
        self.special_tokens |= settings.special_tokens()
        self.added_tokens = specials

    @property
    def byte_level(self) -> bool:
        """Whether tokens spell bytes, as GPT-2's do; else they spell text as SentencePiece's do."""
        return self._codec.byte_level

    def _make_piece(self, text: bytes, kind: int) -> bytes:
        if kind in SPECIAL_TYPES and not self.byte_level:
            return self._codec.written(text)
        return super()._make_piece(text, kind)


class SpmTokenizer(Tokenizer):
    """The tokenizer of a tokenizer.model, with the tokens that other files of the folder add behind its own."""

    def __init__(self, path: Path, n_vocab: int, settings: FolderSettings):
        model = read_spm_model(path, most_tokens(n_vocab))
        texts, types = list(model.texts), list(model.types)
        own: dict[int, Special] = {}
        for special in settings.added_tokens():
            text = special.text.encode("utf-8", "surrogatepass")
            if special.id >= len(model.texts):
                if special.id >= most_tokens(n_vocab):
                    raise ValueError(f"{path}: an added token has id {special.id}, with {len(model.texts)} pieces")
                grow = special.id + 1 - len(texts)
                texts += [b""] * grow
                types += [int(TokenType.UNUSED)] * grow
                texts[special.id] = text
                types[special.id] = int(TokenType.CONTROL if special.control else TokenType.USER_DEFINED)
                own[special.id] = special
            elif special.control and texts[special.id] == text and types[special.id] != TokenType.UNKNOWN:
                types[special.id] = int(TokenType.CONTROL)
        controls = {text.encode("utf-8", "surrogatepass") for text in settings.special_texts()}
        for i, text in enumerate(texts):
            if text in controls and types[i] != TokenType.UNKNOWN:
                types[i] = int(TokenType.CONTROL)
        ids = {"bos": model.bos_id, "eos": model.eos_id, "unknown": model.unk_id}
        metadata = {
            **{f"{PREFIX}{name}_token_id": i for name, i in ids.items()},
            **settings.keys({text: i for i, text in reversed(list(enumerate(texts)))}),
            PREFIX + "model": "llama", PREFIX + "tokens": texts, PREFIX + "token_type": types,
            PREFIX + "scores": model.scores + [-1000.0] * (len(texts) - len(model.texts)),
            PREFIX + "add_space_prefix": model.add_dummy_prefix,
        }  # fmt: skip
        vocab = _vocab(metadata, n_vocab, settings, str(path))
        specials = []
        for i, kind in enumerate(vocab.types):
            # User-defined pieces of the model itself are the package's to find: in the text that it has normalised.
            if kind in _CONTROL or i in own:
                special = own.get(i) or Special(i, vocab.texts[i].decode("utf-8", "replace"), True)
                specials.append(replace(special, control=kind in _CONTROL, normalized=False))
        self._setup(vocab, SpmFile(model, vocab, str(path)), specials, str(path))
        self.special_tokens |= settings.special_tokens()
        self.added_tokens = tuple(own.values())
        self.changes = model.changes
        self._removes_blanks = "remove_extra_whitespaces" in model.changes
        self._strips = model.add_dummy_prefix or self._removes_blanks

    def opening(self, token: int, data: bytes) -> tuple[bytes, bool]:
        """The package takes one blank from each first piece, until there is any text."""
        if self._strips and not self.is_special(token):
            data = data.removeprefix(b" ")
        return data, self._removes_blanks and not data

    def _make_piece(self, text: bytes, kind: int) -> bytes:
        """The package shows blanks in user-defined pieces too, and transformers' decoder in those added since."""
        return self._codec.piece(text, kind) if kind == TokenType.USER_DEFINED else super()._make_piece(text, kind)


def _vocab(metadata: Mapping[str, Any], n_vocab: int, settings: FolderSettings | _GGUFSettings, where: str) -> Vocab:
    """The vocabulary, ending a generation at every id that the model's configuration names too."""
    try:
        vocab = Vocab.from_metadata(metadata, n_vocab)
    except ValueError as e:
        raise ValueError(f"{where}: {e}") from None
    named = {i for i in settings.eos_ids() if 0 <= i < vocab.n_tokens}
    return replace(vocab, eog_ids=vocab.eog_ids | named)
