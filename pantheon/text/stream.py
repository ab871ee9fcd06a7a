"""Token ids to text, one token at a time: only whole characters come out."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pantheon.text.tokenizer import Tokenizer


class Utf8Stream:
    """Bytes in, complete UTF-8 out. At most 3 bytes wait for the rest of their character; what cannot become a
    character any more comes out as U+FFFD. All pieces joined equal bytes.decode("utf-8", "replace") of the whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The rest: U+FFFD once for an unfinished character. The stream is then as new."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    @property
    def pending(self) -> int:
        """Bytes held back, 0..3."""
        return len(self._decoder.getstate()[0])


class DetokenizeStream:
    """Incremental Tokenizer.decode.

    continues: the tokens go on after a prompt, so the first piece keeps its leading space. With continues=False the
    stream is a text of its own and step() and flush() joined equal decode().
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, continues: bool = True):
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = Utf8Stream()
        self._opens = not continues

    def step(self, token: int) -> str:
        """Text that token completes, often empty for a part of a character. ValueError for an id out of range."""
        data = self._tokenizer.output_bytes(token, self._skip_special)
        if self._opens and data:
            data, self._opens = self._tokenizer.opening(token, data)
        return self._utf8.feed(data)

    def flush(self) -> str:
        """What an unfinished character leaves behind (U+FFFD once), else ""."""
        return self._utf8.flush()
