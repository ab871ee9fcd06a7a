"""Text to token ids and back, by the vocabulary of the model's file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pantheon.text.bpe import TextBPE, bpe_codec
from pantheon.text.provenance import Segment
from pantheon.text.specials import Special, SpecialPartition, Trust
from pantheon.text.spm import ScoredBPE
from pantheon.text.vocab import PREFIX, SPECIAL_TYPES, TokenType, Vocab

_CODECS = {"gpt2": bpe_codec, "gemma4": TextBPE, "llama": ScoredBPE}
_TEMPLATE_NAMES = {
    "bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "separator": "sep_token", "padding": "pad_token",
    "mask": "mask_token",
}  # fmt: skip
_SURROGATES = re.compile("[\ud800-\udfff]")
# Phi-3's other specials take the white space after them.
_PHI3_KEEPS_SPACE = (b"<unk>", b"<s>", b"<|endoftext|>")


class Tokenizer:
    """The tokenizer of a model, here by the vocabulary of its GGUF file. Immutable once built; threads may share it.

    vocab          texts, types and special ids
    token_texts    (n_tokens,) raw texts as in the file
    bos_id, eos_id id or None
    eog_ids        ids that end a generation
    add_bos        whether encode() starts with BOS by default
    chat_templates the file's chat templates by name, "default" for the one without
    special_tokens texts of the special tokens that are there, by the names that templates use: bos_token, ...;
                   of a folder also additional_special_tokens, a list of texts
    chat_stops     texts that end an answer to a chat, where no token does
    added_tokens   of a folder: the tokens that were added, with their flags
    """

    chat_stops: tuple[str, ...] = ()
    added_tokens: Sequence[Special] = ()

    def __init__(self, metadata: Mapping[str, Any], n_vocab: int):
        """metadata: GGUF keys (.get); n_vocab: width of the logits. ValueError names the key that is wrong."""
        vocab = Vocab.from_metadata(metadata, n_vocab)
        codec = _CODECS.get(vocab.model)
        if codec is None:
            known = ", ".join(_CODECS)
            raise ValueError(f"tokenizer.ggml.model {vocab.model[:64]!r} is not supported ({known} are)")
        self._setup(vocab, codec(vocab), vocab_specials(vocab), PREFIX + "tokens")

    def _setup(self, vocab: Vocab, codec: Any, specials: Iterable[Special], where: str) -> None:
        """specials: the tokens that are cut out of text before the codec sees it; where: of messages about them."""
        self.vocab = vocab
        self._codec = codec
        self._specials = SpecialPartition(specials, where)
        self._pieces = [self._make_piece(t, k) for t, k in zip(vocab.texts, vocab.types, strict=True)]
        self._special_ids = frozenset(
            i for i, k in enumerate(vocab.types) if k in (TokenType.CONTROL, TokenType.UNKNOWN)
        )
        self.bos_id = vocab.ids.get("bos")
        self.eos_id = vocab.ids.get("eos")
        self.eog_ids = vocab.eog_ids
        wanted = self._codec.add_bos if vocab.add_bos is None else vocab.add_bos
        self.add_bos = wanted and self.bos_id is not None
        self.add_eos = vocab.add_eos and self.eos_id is not None
        self.add_space_prefix = self._codec.add_space_prefix
        self.chat_templates = vocab.chat_templates
        self.special_tokens: dict[str, str | list[str]] = {
            name: vocab.texts[vocab.ids[kind]].decode("utf-8", "replace")
            for kind, name in _TEMPLATE_NAMES.items()
            if kind in vocab.ids
        }

    @property
    def token_texts(self) -> list[bytes]:
        return self.vocab.texts

    @property
    def n_tokens(self) -> int:
        return self.vocab.n_tokens

    @property
    def chat_template(self) -> str | None:
        """The chat template that is used where none is asked for; None without one."""
        return self.chat_templates.get("default")

    @property
    def n_vocab(self) -> int:
        """Width of the logits; ids from n_tokens on stand for nothing and must not be sampled."""
        return self.vocab.n_vocab

    def encode(self, text: str, add_bos: bool | None = None, parse_special: bool = False) -> list[int]:
        """Token ids of text.

        add_bos: None = as the file says (the file's add_eos_token is followed too), True or False = BOS or not, no EOS.
        parse_special: control tokens written in the text become control tokens; False for any text of a user.
        ValueError: there is no BOS; or, naming the file, a tokenizer.json that the tokenizers package takes has no way
        to split this text (its unknown token is none, say).
        """
        ids = self._encode(_valid(text), bool(parse_special))
        if add_bos if add_bos is not None else self.add_bos:
            if self.bos_id is None:
                raise ValueError("add_bos: the vocabulary has no BOS token")
            ids.insert(0, self.bos_id)
        if add_bos is None and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def encode_chat(self, segments: Sequence[Segment | tuple[str, bool]]) -> list[int]:
        """Token ids of a rendered chat (ChatTemplate.render).

        Control tokens are seen only in trusted segments, whole. All other text is tokenised across segment borders as
        one, so without control tokens in the messages the ids are those of the joined text. BOS is put in front if the
        file asks for it and the template did not write it.
        """
        cleaned = [(_valid(text), bool(trusted)) for text, trusted in segments]
        text = "".join(t for t, _ in cleaned)
        mask = b"".join(bytes((trusted,)) * len(t) for t, trusted in cleaned)
        ids = self._encode(text, mask)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of a complete sequence; bytes that are no UTF-8 become U+FFFD. ValueError for an id out of range.

        A vocabulary that puts a space before its first fragment has that one space removed again.
        """
        data, opens = [], True
        for i in ids:
            piece = self.output_bytes(i, skip_special)
            if opens and piece:
                piece, opens = self.opening(i, piece)
            data.append(piece)
        return b"".join(data).decode("utf-8", "replace")

    def opening(self, token: int, data: bytes) -> tuple[bytes, bool]:
        """What a text shows of its first token that has any bytes, and whether the next one opens the text too."""
        strip = self.add_space_prefix and token not in self._special_ids
        return data.removeprefix(b" ") if strip else data, False

    def piece(self, token: int) -> bytes:
        """Bytes that a token stands for; of a special token its text. Empty from n_tokens to n_vocab - 1."""
        if not 0 <= token < self.vocab.n_vocab:
            raise ValueError(f"token id {token} is outside 0..{self.vocab.n_vocab - 1}")
        return self._pieces[token] if token < len(self._pieces) else b""

    def output_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """piece(token), empty for a special token that is to be skipped."""
        data = self.piece(token)
        return b"" if skip_special and token in self._special_ids else data

    def is_special(self, token: int) -> bool:
        """Whether token is a control or unknown token, which ordinary text never becomes."""
        return token in self._special_ids

    def _encode(self, text: str, trusted: Trust) -> list[int]:
        ids: list[int] = []
        for start, end, special in self._specials.split(text, trusted):
            if special is not None:
                ids.append(special)
            else:
                trust = trusted if isinstance(trusted, bool) else trusted[start:end]
                ids += self._codec.encode(text[start:end], trust, start == 0)
        return ids

    def _make_piece(self, text: bytes, kind: int) -> bytes:
        if kind == TokenType.UNUSED:
            return b""
        if kind in SPECIAL_TYPES:
            return text
        return self._codec.piece(text, kind)


def vocab_specials(vocab: Vocab) -> list[Special]:
    """The tokens of a GGUF vocabulary that are cut out of text. Their flags are not in the file: Phi-3's tokens take
    the white space after them, but for a few."""
    name = vocab.name.lower()
    phi3 = "phi-3" in name or "phi3" in name
    found = []
    for i, (raw, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
        if kind in SPECIAL_TYPES:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                continue  # no text is it; it can still be decoded
            rstrip = phi3 and raw not in _PHI3_KEEPS_SPACE
            found.append(Special(i, text, kind != TokenType.USER_DEFINED, rstrip=rstrip))
    return found


def _valid(text: str) -> str:
    """text with lone surrogates, which no encoding can carry, as U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    return _SURROGATES.sub("\ufffd", text)
