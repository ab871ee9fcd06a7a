"""What the user typed as token ids: within the model's chat template, or as it is."""
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pantheon.text import ChatTemplate, detect_chat_style

if TYPE_CHECKING:
    import pantheon


class PromptEncoder:
    """The tokenizer of a model with its chat template, which is compiled once.

    has_template: whether the file has a template or its vocabulary shows a known chat style.
    """

    def __init__(self, model: "pantheon.Model") -> None:
        self._tokenizer = tokenizer = model.tokenizer
        self.has_template = bool(tokenizer.chat_template or detect_chat_style(tokenizer.vocab))
        self._template = ChatTemplate.for_tokenizer(tokenizer) if self.has_template else None

    def text(self, text: str) -> list[int]:
        """Ids of text to be continued; control tokens written in it are plain text."""
        return self._tokenizer.encode(text)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of a conversation, up to where the model answers. ValueError, in the template's words, if it refuses."""
        if self._template is None:
            raise ValueError("the model has no chat template")
        return self._tokenizer.encode_chat(self._template.render(messages))
