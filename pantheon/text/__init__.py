"""Text in and out of a model: tokenizers, chat templates, incremental decoding, stop strings."""

from pantheon.text.chat import ChatTemplate, TemplateError, detect_chat_style
from pantheon.text.provenance import Segment
from pantheon.text.stop import StopMatcher
from pantheon.text.stream import DetokenizeStream
from pantheon.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "DetokenizeStream",
    "Segment",
    "StopMatcher",
    "TemplateError",
    "Tokenizer",
    "detect_chat_style",
]
