"""The RWKV World tokenizer: greedy longest match over bytes, from a vocabulary in text form.

Each line of the vocabulary is "<id> <literal> <length>": the literal is a Python string (its UTF-8 is meant) or bytes
literal, the length that of the token in bytes. Ids are 1, 2, 3, ... in order; id 0 ends a text and is in no file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pantheon.regular_file import read_regular
from pantheon.text.provenance import Segment
from pantheon.text.tokenizer import Tokenizer, _valid
from pantheon.text.vocab import TokenType, Vocab

END_OF_TEXT = 0
MAX_TOKENS = 1 << 17
MAX_TOKEN_BYTES = 1 << 10
MAX_FILE_BYTES = 1 << 24
MAX_LINE = 8 << 10
_LITERAL = re.compile(r"""(b?)(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class WorldTokenizer(Tokenizer):
    """The tokenizer of RWKV models. Immutable once built; any number of threads may use it.

    Any bytes can be encoded, since every byte is a token. Nothing in a text is ever a special token, and no BOS exists.
    """

    chat_stops = ("\n\nUser:",)  # what a model that goes on with the next turn writes

    def __init__(self, tokens: Sequence[bytes], n_vocab: int, name: str = "the vocabulary"):
        """tokens: of ids 1, 2, ...; n_vocab: width of the logits; name: for messages. ValueError: not a vocabulary."""
        if len(tokens) >= n_vocab:
            raise ValueError(f"{name}: {len(tokens)} tokens and an end of text for a model with only {n_vocab} logits")
        self._pieces = [b"", *tokens]
        self._walk, self._ids = _trie(tokens, name)
        for byte in range(256):
            if (0, byte) not in self._walk or self._ids.get(self._walk[0, byte]) is None:
                raise ValueError(f"{name}: byte {byte:#04x} is no token, so not every text could be encoded")
        self.vocab = Vocab(
            model="rwkv", pre=None, texts=self._pieces,
            types=[int(TokenType.CONTROL)] + [int(TokenType.NORMAL)] * len(tokens), scores=None, merges=None,
            ids={"eos": END_OF_TEXT}, eog_ids=frozenset((END_OF_TEXT,)), suppressed=frozenset(), add_bos=False,
            add_eos=False, add_space_prefix=False, chat_templates={}, name="RWKV World", n_vocab=n_vocab,
        )  # fmt: skip
        self._special_ids = self.eog_ids = self.vocab.eog_ids
        self.bos_id, self.eos_id = None, END_OF_TEXT
        self.add_bos = self.add_eos = self.add_space_prefix = False
        self.chat_templates: dict[str, str] = {}
        self.special_tokens: dict[str, str | list[str]] = {}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], n_vocab: int) -> WorldTokenizer:
        """Reads a vocabulary file. OSError, or ValueError naming the file and the line that is wrong."""
        return cls(parse(read_regular(path, MAX_FILE_BYTES), str(path)), n_vocab, str(path))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], n_vocab: int, name: str) -> WorldTokenizer:
        """Reads a GGUF file's vocabulary of model "rwkv". ValueError naming the file when it has none, or a wrong one.

        Tokens are written with escapes. Unused ones at the end stand for logits that no token has.
        """
        if metadata.get("tokenizer.ggml.model") != "rwkv":
            raise ValueError(f"{name}: there is no vocabulary of model 'rwkv' in it")
        tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
        if not tokens or not types:
            raise ValueError(f"{name}: the vocabulary of model 'rwkv' needs tokenizer.ggml.tokens and .token_type")
        used = len(tokens)
        while used > 1 and types[used - 1] == TokenType.UNUSED:
            used -= 1
        return cls([unescaped(token, f"{name}: token {i}") for i, token in enumerate(tokens[1:used], 1)], n_vocab, name)

    def encode(self, text: str, add_bos: bool | None = None, parse_special: bool = False) -> list[int]:
        """Token ids of text. add_bos=True is an error: there is no BOS. parse_special changes nothing: there are no
        special tokens that a text could name."""
        if add_bos:
            raise ValueError("add_bos: the vocabulary has no BOS token")
        return self.encode_bytes(_valid(text).encode())

    def encode_bytes(self, data: bytes) -> list[int]:
        """Token ids of any bytes: again and again the longest token that the rest starts with."""
        walk, ids = self._walk, self._ids
        out: list[int] = []
        at, end = 0, len(data)
        while at < end:
            node: int | None = 0
            i = best_end = at
            best = END_OF_TEXT
            while i < end:
                node = walk.get((node, data[i]))
                if node is None:
                    break
                i += 1
                token = ids.get(node)
                if token is not None:
                    best, best_end = token, i
            out.append(best)
            at = best_end
        return out

    def encode_chat(self, segments: Sequence[Segment | tuple[str, bool]]) -> list[int]:
        """Token ids of a rendered chat (ChatTemplate.render): those of the joined text."""
        return self.encode("".join(text for text, _ in segments))


def _trie(tokens: Sequence[bytes], name: str) -> tuple[dict[tuple[int | None, int], int], dict[int, int]]:
    """(node, byte) -> node, with root 0, and node -> token id."""
    walk: dict[tuple[int | None, int], int] = {}
    ids: dict[int, int] = {}
    n_nodes = 1
    for token_id, token in enumerate(tokens, 1):
        node = 0
        for byte in token:
            following = walk.get((node, byte))
            if following is None:
                following = walk[node, byte] = n_nodes
                n_nodes += 1
            node = following
        if node == 0 or node in ids:
            other = f"is token {ids[node]} again" if node else "is empty"
            raise ValueError(f"{name}: token {token_id} {other}")
        ids[node] = token_id
    return walk, ids


# ---- GGUF ------------------------------------------------------------------------------------------------------------

_GGUF_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|\Z)", re.DOTALL)
_GGUF_SIMPLE = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_GGUF_CODES = {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}


def escaped(token: bytes) -> bytes:
    """A token as GGUF files hold it: printable ASCII, with backslash escapes."""
    return "".join(_GGUF_CODES.get(c) or (chr(c) if 32 <= c < 127 else f"\\x{c:02x}") for c in token).encode()


def unescaped(text: bytes, where: str) -> bytes:
    def plain(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        if not code:
            raise ValueError(f"{where} ends with a backslash")
        return bytes([int(code[1:], 16)]) if len(code) > 1 else _GGUF_SIMPLE.get(code, code)

    return _GGUF_ESCAPE.sub(plain, text)


# ---- the file --------------------------------------------------------------------------------------------------------


def parse(data: bytes, name: str) -> list[bytes]:
    """Tokens of ids 1, 2, ... of a vocabulary file. ValueError naming the line that is wrong."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ValueError(f"{name}: no UTF-8 at byte {e.start}") from None
    lines = text.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise ValueError(f"{name}: holds no tokens")
    if len(lines) > MAX_TOKENS:
        raise ValueError(f"{name}: {len(lines)} lines, more than {MAX_TOKENS}")
    return [_token(line.removesuffix("\r"), number, f"{name}, line {number}") for number, line in enumerate(lines, 1)]


def _token(line: str, number: int, where: str) -> bytes:
    if len(line) > MAX_LINE:
        raise ValueError(f"{where}: more than {MAX_LINE} characters")
    first, last = line.find(" "), line.rfind(" ")
    if first < 1 or last <= first:
        raise ValueError(f"{where}: not '<id> <literal> <length>'")
    if line[:first] != str(number):
        raise ValueError(f"{where}: id {line[:first][:20]!r}, expected {number}: ids are 1, 2, 3, ... without gaps")
    token = _literal(line[first + 1 : last], where)
    if line[last + 1 :] != str(len(token)):
        raise ValueError(f"{where}: length {line[last + 1 :][:20]!r}, but the token has {len(token)} bytes")
    if not 1 <= len(token) <= MAX_TOKEN_BYTES:
        raise ValueError(f"{where}: a token of {len(token)} bytes, not of 1..{MAX_TOKEN_BYTES}")
    return token


def _literal(text: str, where: str) -> bytes:
    """Bytes of a Python string or bytes literal, without evaluating anything."""
    match = _LITERAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{where}: {text[:40]!r} is no string or bytes literal")
    is_bytes = bool(match[1])

    def unescape(escape: re.Match[str]) -> str:
        code = escape[1]
        if code in _SIMPLE:
            return _SIMPLE[code]
        if len(code) > 1 and (code[0] == "x" or not is_bytes) and int(code[1:], 16) <= 0x10FFFF:
            return chr(int(code[1:], 16))
        raise ValueError(f"{where}: unknown escape {escape[0][:12]!r}")

    value = _ESCAPE.sub(unescape, match[2] if match[2] is not None else match[3])
    try:
        return value.encode("latin-1" if is_bytes else "utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{where}: {text[:40]!r} holds a character that it cannot") from None
