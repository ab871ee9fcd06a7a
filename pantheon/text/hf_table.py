"""The tokens of a tokenizer.json: those of its model, and those that were added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pantheon._core.files.gguf_vocab import MERGES_PER_TOKEN, most_tokens
from pantheon.text.folder import added_token
from pantheon.text.specials import Special
from pantheon.text.vocab import TokenType, byte_value


class JsonTable:
    """Texts and types by id.

    model     the file's, without tokens that have no logit: an added one among them may be no more than a wish
    specials  the added tokens, by id
    merges    "left right" entries, or None
    unknown   id of the token for what no token spells, or None
    """

    def __init__(self, data: Mapping[str, Any], where: str, n_vocab: int):
        """data: the parsed file; n_vocab: width of the logits; where: begins messages. ValueError: no such tokens."""
        self._where, self._n_vocab = where, n_vocab
        model = data.get("model")
        if not isinstance(model, Mapping):
            raise ValueError(f"{where}: key model must be an object, not {model!r:.80}")
        for key in ("unk_token", "continuing_subword_prefix"):
            if not isinstance(model.get(key), (str, type(None))):
                raise ValueError(f"{where}: key model.{key} must be a string, not {model[key]!r:.80}")
        entries = self._entries(model.get("vocab"))
        pairs = self._pairs(model.get("merges"), len(entries))
        self.merges = None if pairs is None else [f"{a} {b}".encode("utf-8", "surrogatepass") for a, b in pairs]
        self.specials: list[Special] = self._added(data.get("added_tokens"))
        n = max([*entries, *(special.id for special in self.specials)], default=-1) + 1
        if not entries or n > 2 * (len(entries) + len(self.specials)) + (1 << 16):
            raise ValueError(f"{where}: {len(entries)} tokens have ids up to {n - 1}")
        self.texts = [b""] * n
        self.types = [int(TokenType.UNUSED)] * n
        byte_fallback = bool(model.get("byte_fallback"))
        for i, text in entries.items():
            self.texts[i] = text.encode("utf-8", "surrogatepass")
            is_byte = byte_fallback and byte_value(self.texts[i]) is not None
            self.types[i] = int(TokenType.BYTE if is_byte else TokenType.NORMAL)
        for special in self.specials:
            self._put(special)
        unknown = model.get("unk_token", model.get("unk_id"))
        if isinstance(unknown, str):
            unknown = self.by_text().get(unknown.encode("utf-8", "surrogatepass"))
        self.unknown = unknown if _is_id(unknown, n) else None
        self.model = dict(model) if n <= n_vocab else self._within_logits(model, pairs)

    def by_text(self) -> dict[bytes, int]:
        """The lowest id of each text."""
        return {text: i for i, text in reversed(list(enumerate(self.texts)))}

    def add(self, tokens: Iterable[Special], controls: frozenset[str]) -> None:
        """Tokens that other files add, where their ids are free or stand for that text already, and texts that they say
        are control tokens'."""
        ids = self.by_text()
        specials = {special.id: special for special in self.specials}
        for token in tokens:
            i = ids.get(token.text.encode("utf-8", "surrogatepass"))
            if i is None and (token.id >= len(self.texts) or self.types[token.id] == TokenType.UNUSED):
                i = token.id
                if i >= most_tokens(self._n_vocab):
                    raise ValueError(f"{self._where}: an added token has id {i}, for {self._n_vocab} logits")
                self.texts += [b""] * (i + 1 - len(self.texts))
                self.types += [int(TokenType.UNUSED)] * (i + 1 - len(self.types))
            if i != token.id:
                continue
            known = specials.get(i)
            specials[i] = token if known is None else replace(known, control=known.control or token.control)
            self._put(specials[i])
        for text in controls:
            i = ids.get(text.encode("utf-8", "surrogatepass"))
            if i is not None:
                specials[i] = replace(specials.get(i, Special(i, text, True)), control=True)
                self._put(specials[i])
        self.specials = [specials[i] for i in sorted(specials)]

    def _put(self, special: Special) -> None:
        self.texts[special.id] = special.text.encode("utf-8", "surrogatepass")
        self.types[special.id] = int(TokenType.CONTROL if special.control else TokenType.USER_DEFINED)

    def _entries(self, vocab: Any) -> dict[int, str]:
        """Text by id: an object of text and id, or a list of text and score."""
        most = most_tokens(self._n_vocab)
        if isinstance(vocab, Mapping):
            found = {i: text for text, i in vocab.items() if _is_id(i, most)}
            wrong = len(found) != len(vocab)
        elif isinstance(vocab, list):
            found = {i: e[0] for i, e in enumerate(vocab) if isinstance(e, list) and e and isinstance(e[0], str)}
            wrong = len(found) != len(vocab) or len(vocab) > most
        else:
            found, wrong = {}, True
        if wrong:
            raise ValueError(f"{self._where}: key model.vocab must name tokens with ids of their own below {most}")
        return found

    def _pairs(self, merges: Any, n_entries: int) -> list[tuple[str, str]] | None:
        """As pairs, which newer files write, or as texts with a blank between."""
        if merges is None:
            return None
        if not isinstance(merges, list):
            raise ValueError(f"{self._where}: key model.merges must be a list, not {merges!r:.80}")
        if len(merges) > MERGES_PER_TOKEN * n_entries:
            raise ValueError(f"{self._where}: key model.merges has {len(merges)} entries, more than the "
                             f"{MERGES_PER_TOKEN * n_entries} that the vocabulary can use")
        pairs = []
        for n, merge in enumerate(merges):
            pair = merge.split(" ") if isinstance(merge, str) else merge
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                raise ValueError(f"{self._where}: key model.merges[{n}]: {merge!r:.80} is no pair of texts")
            pairs.append((pair[0], pair[1]))
        return pairs

    def _added(self, tokens: Any) -> list[Special]:
        if tokens is not None and not isinstance(tokens, list):
            raise ValueError(f"{self._where}: key added_tokens must be a list, not {tokens!r:.80}")
        found: dict[int, Special] = {}
        for n, entry in enumerate(tokens or []):
            i = entry.get("id") if isinstance(entry, Mapping) else None
            if not _is_id(i, most_tokens(self._n_vocab)):
                raise ValueError(f"{self._where}: key added_tokens[{n}].id: {i!r:.80} is no token id for "
                                 f"{self._n_vocab} logits")
            assert isinstance(i, int)
            found[i] = added_token(i, entry, f"{self._where}: key added_tokens[{n}]")
        return [found[i] for i in sorted(found)]

    def _within_logits(self, model: Mapping[str, Any], pairs: list[tuple[str, str]] | None) -> dict[str, Any]:
        cut = dict(model)
        vocab = model["vocab"]
        if isinstance(vocab, list):
            cut["vocab"] = vocab[: self._n_vocab]
            return cut
        kept = {text: i for text, i in vocab.items() if i < self._n_vocab}
        cut["vocab"] = kept
        if pairs is not None:
            prefix = model.get("continuing_subword_prefix") or ""
            cut["merges"] = [(a, b) for a, b in pairs
                             if a in kept and b in kept and a + b.removeprefix(prefix) in kept]
        if model.get("unk_token") not in kept:
            cut["unk_token"] = None
        return cut


def _is_id(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most
