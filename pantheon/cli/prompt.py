"""What the user typed as token ids: within the model's chat template, or as it is."""
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pantheon.text import ChatTemplate, detect_chat_style

if TYPE_CHECKING:
    import pantheon


class PromptEncoder:
    """The tokenizer of a model with its chat template, which is compiled once and given arguments each time.

    has_template: whether the file has a template or its vocabulary shows a known chat style.
    chat_stops: texts that end an answer to a conversation, where no token does.
    """

    def __init__(self, model: "pantheon.Model", arguments: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer = model.tokenizer
        self._arguments = arguments
        self.chat_stops = tokenizer.chat_stops
        self.has_template = bool(tokenizer.chat_templates or detect_chat_style(tokenizer.vocab))
        self._template = ChatTemplate.for_tokenizer(tokenizer) if self.has_template else None

    def text(self, text: str) -> list[int]:
        """Ids of text to be continued; control tokens written in it are plain text."""
        return self._tokenizer.encode(text)

    def chat(self, messages: Sequence[Mapping[str, str]], answer_start: str | None = None) -> list[int]:
        """Ids of a conversation, up to where the model answers, or goes on with its answer's given start.

        ValueError, in the template's words, if it refuses.
        """
        if self._template is None:
            raise ValueError("the model has no chat template")
        if answer_start is None:
            return self._tokenizer.encode_chat(self._template.render(messages, **self._arguments))
        messages = [*messages, {"role": "assistant", "content": answer_start}]
        return self._tokenizer.encode_chat(self._template.render(messages, continue_last=True, **self._arguments))
