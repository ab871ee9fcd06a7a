"""What the small JSON files of a model folder say about its tokenizer, and its chat templates."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from pantheon._core.files.bounded_json import read_json
from pantheon.regular_file import read_regular
from pantheon.text.specials import Special
from pantheon.text.vocab import PREFIX, TEMPLATE_KEY

_MAX_TEMPLATE_BYTES = 1 << 24  # of all files together
_MAX_TEMPLATES = 64
_CONFIG = "tokenizer_config.json"
_GENERATION = "generation_config.json"
_MODEL = "config.json"
_MAX_ID_DIGITS = 9
_ID_KEYS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "sep_token": "seperator",
            "pad_token": "padding", "mask_token": "mask"}  # fmt: skip
_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


class FolderSettings:
    """What the small JSON files of a folder say about its tokenizer; a missing file says nothing.

    Without added_tokens_decoder a tokenizer_config.json is of the older kind: special_tokens_map.json then replaces
    what it says of the same names, and added_tokens.json has the tokens that were added.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.tokenizer = self._read(_CONFIG)
        self.generation = self._read(_GENERATION)
        self.config = self._read(_MODEL)
        self._map: dict[str, Any] = {}
        self._added: dict[str, Any] = {}
        if "added_tokens_decoder" not in self.tokenizer:
            self._map = self._read("special_tokens_map.json")
            self._added = self._read("added_tokens.json")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path, max_depth=64, max_items=1 << 22, max_bytes=64 << 20) if path.exists() else {}

    def _refuse(self, key: str, value: Any, expected: str, file: str = _CONFIG) -> NoReturn:
        raise ValueError(f"{self.folder / file}: key {key[:80]} is {str(value)[:80]!r}, not {expected}")

    def named(self, name: str) -> bool:
        """Whether a file says anything of bos_token, eos_token, ..., be it that there is none."""
        return name in self._map or name in self.tokenizer

    def token_text(self, name: str) -> str | None:
        """Text of bos_token, eos_token, ...: a string, or an object with its content."""
        value = self._map[name] if name in self._map else self.tokenizer.get(name)
        text = _content(value)
        if text is None and value is not None and name in _ID_KEYS:
            self._refuse(name, value, "a string, or an object with a string 'content'",
                         "special_tokens_map.json" if name in self._map else _CONFIG)
        return text

    def special_tokens(self) -> dict[str, str | list[str]]:
        """Texts by the names that templates use: bos_token, eos_token, ..., additional_special_tokens (a list), and
        names of this model alone. What has no text is left out."""
        names = [*self.tokenizer, *self._map]
        found: dict[str, str | list[str]] = {}
        extra = self.tokenizer.get("extra_special_tokens")
        for name, value in extra.items() if isinstance(extra, dict) else []:
            text = _content(value)
            if text is not None and name.endswith("_token"):
                found[name] = text
        for name in names:
            text = self.token_text(name) if name.endswith("_token") else None
            if text is not None:
                found[name] = text
        more = [_content(value) for source in (self.tokenizer, self._map) for value in _list(source)]
        texts = list(dict.fromkeys(text for text in more if text is not None))
        return found | {"additional_special_tokens": texts} if texts else found

    def special_texts(self) -> frozenset[str]:
        """All of special_tokens()."""
        found = self.special_tokens().values()
        return frozenset(text for value in found for text in ([value] if isinstance(value, str) else value))

    def added_tokens(self) -> list[Special]:
        """The tokens of added_tokens_decoder or, in a folder of the older kind, of added_tokens.json, by id.

        ValueError naming file and key for an entry that is none.
        """
        decoder = self.tokenizer.get("added_tokens_decoder")
        if decoder is None:
            special = self.special_texts()
            path = self.folder / "added_tokens.json"
            found = [Special(_token_id(i, path, text), text, text in special, normalized=text not in special)
                     for text, i in self._added.items()]
        elif isinstance(decoder, dict):
            path = self.folder / _CONFIG
            found = [added_token(_token_id(key, path, "added_tokens_decoder"), entry, f"{path}: added_tokens_decoder")
                     for key, entry in decoder.items()]
        else:
            raise ValueError(f"{self.folder / _CONFIG}: key added_tokens_decoder must be an object, not "
                             f"{decoder!r:.80}")
        return sorted(found, key=lambda token: token.id)

    def keys(self, by_text: Mapping[bytes, int]) -> dict[str, Any]:
        """What the files say of the tokenizer as keys of a GGUF file; absent keys are left out."""

        def find(name: str) -> int | None:
            text = self.token_text(name)
            return None if text is None else by_text.get(text.encode("utf-8", "surrogatepass"))

        keys: dict[str, Any] = {f"{PREFIX}{key}_token_id": find(name) for name, key in _ID_KEYS.items()}
        eos = self.eos_ids()
        if keys[PREFIX + "eos_token_id"] is None and eos:
            keys[PREFIX + "eos_token_id"] = eos[0]
        if keys[PREFIX + "bos_token_id"] is None and not self.named("bos_token"):
            keys[PREFIX + "bos_token_id"] = self.bos_id()
        keys |= {PREFIX + name: self.flag(name) for name in ("add_bos_token", "add_eos_token")}
        for name, text in self.chat_templates().items():
            keys[TEMPLATE_KEY if name == "default" else f"{TEMPLATE_KEY}.{name}"] = text
        return {key: value for key, value in keys.items() if value is not None}

    def flag(self, name: str) -> bool | None:
        value = self.tokenizer.get(name)
        if not isinstance(value, bool | None):
            self._refuse(name, value, "true or false")
        return value

    def eos_ids(self) -> list[int]:
        """Ids that end a generation, of the first file that has any."""
        for values, file in ((self.generation, _GENERATION), (self.config, _MODEL)):
            found = values.get("eos_token_id")
            several = found if isinstance(found, list) else [found]
            ids = [i for i in several if type(i) is int]
            if not ids and found not in (None, []):
                self._refuse("eos_token_id", found, "an id or a list of ids", file)
            if ids:
                return ids
        return []

    def bos_id(self) -> int | None:
        for values, file in ((self.config, _MODEL), (self.generation, _GENERATION)):
            found = values.get("bos_token_id")
            if type(found) not in (int, NoneType):
                self._refuse("bos_token_id", found, "an id", file)
            if found is not None:
                return found
        return None

    def chat_templates(self) -> dict[str, str]:
        """Templates by name: those of tokenizer_config.json, then chat_template.jinja as "default" and the files of
        additional_chat_templates. One without a name is "default"."""
        found: dict[str, str] = {}
        value = self.tokenizer.get("chat_template")
        named = value if isinstance(value, list) else [] if value is None else [{"name": "default", "template": value}]
        for entry in named:
            name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
            if not isinstance(name, str) or not isinstance(text, str):
                self._refuse("chat_template", value, "a string or a list of objects with name and template")
            found[name] = text
        folder = self.folder / "additional_chat_templates"
        more = sorted(islice(folder.glob("*.jinja"), _MAX_TEMPLATES + 1))
        if len(more) > _MAX_TEMPLATES:
            raise ValueError(f"{folder}: more than {_MAX_TEMPLATES} templates")
        left = _MAX_TEMPLATE_BYTES
        for path in [self.folder / "chat_template.jinja", *more]:
            if path.exists():
                data = read_regular(path, left)
                left -= len(data)
                found["default" if path.parent == self.folder else path.stem] = data.decode("utf-8", "replace")
        return found


def added_token(token_id: int, entry: Any, where: str) -> Special:
    """An object with content and flags, as added_tokens_decoder and tokenizer.json have them. ValueError beginning with
    `where` for anything else."""
    text = entry.get("content") if isinstance(entry, Mapping) else None
    if not isinstance(text, str):
        raise ValueError(f"{where}: token {token_id} needs an object with a string 'content', not {entry!r:.80}")
    flags = {name: entry[name] for name in _FLAGS if name in entry}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{where}: token {token_id}: {name} must be true or false, not {value!r:.80}")
    control = flags.pop("special", False)
    flags.setdefault("normalized", not control)
    return Special(token_id, text, control, **flags)


def _token_id(value: Any, path: Path, key: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MAX_ID_DIGITS:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MAX_ID_DIGITS:
        return value
    raise ValueError(f"{path}: key {key[:80]!r}: {value!r:.80} is no token id")


def _content(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _list(source: Mapping[str, Any]) -> list[Any]:
    value = source.get("additional_special_tokens")
    return value if isinstance(value, list) else []
