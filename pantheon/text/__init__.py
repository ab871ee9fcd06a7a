"""Text in and out of a model: tokenizers, chat templates, incremental decoding, stop strings.

Names are imported on first use: a program that feeds token ids never loads the tokenizer libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pantheon._imports import whole_imports

if TYPE_CHECKING:
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
_HOMES = {"ChatTemplate": "chat", "TemplateError": "chat", "detect_chat_style": "chat", "Segment": "provenance",
          "StopMatcher": "stop", "DetokenizeStream": "stream", "Tokenizer": "tokenizer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with whole_imports:
        module = import_module(f"{__name__}.{_HOMES[name]}")
    return getattr(module, name)
