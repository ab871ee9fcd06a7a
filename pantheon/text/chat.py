"""Chat messages to prompt text by the model's own template.

Rendered text comes as segments, each either written by the template or from outside; Tokenizer.encode_chat makes
control tokens only of the former. A template that fails is an error with its own message, never a different prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2.exceptions import TemplateSyntaxError

from pantheon.text.budget import Budget, BudgetExceeded
from pantheon.text.chat_styles import STYLES, detect_chat_style
from pantheon.text.provenance import Segment, segments, template_text
from pantheon.text.sandbox import SandboxEnvironment

__all__ = ["ChatTemplate", "TemplateError", "detect_chat_style"]

MAX_DATA_DEPTH = 64
# Flags and widths of the C library's strftime stay out: a width is a way to ask for gigabytes.
_DATE_DIRECTIVES = re.compile(r"%(?![-]?[A-Za-z%])")


class TemplateError(ValueError):
    """A chat template that does not compile, fails, refuses the messages (its own message) or exceeds its budget."""


class ChatTemplate:
    """A compiled chat template; threads may share it.

    source: Jinja2 text as in tokenizer.chat_template, or the name of a built-in style (chatml, llama3, mistral, phi3).
    bos_token, eos_token: texts the template may write; they count as its own text.
    seconds, max_output: budget of one rendering; max_output characters come on top of 8 for every character given.
    Raises TemplateError for a template that does not compile.
    """

    def __init__(
        self,
        source: str,
        bos_token: str = "",
        eos_token: str = "",
        seconds: float = 5.0,
        max_output: int = 1 << 20,
        now: Callable[[], datetime] = datetime.now,
    ):
        self.source = STYLES.get(source, source)
        self._tokens = {"bos_token": template_text(bos_token), "eos_token": template_text(eos_token)}
        self._seconds = seconds
        self._max_output = max_output
        self._now = now
        self._environment = SandboxEnvironment()
        for name, function in (("raise_exception", _raise_exception), ("strftime_now", self._strftime_now)):
            self._environment.functions[name] = function
            self._environment.globals[name] = function
        try:
            self._template = self._environment.from_string(self.source)
        except TemplateSyntaxError as e:
            raise TemplateError(f"chat template, line {e.lineno}: {e.message}") from None
        except (Exception, RecursionError) as e:
            raise TemplateError(f"chat template does not compile: {type(e).__name__}: {e}") from None

    @classmethod
    def for_tokenizer(cls, tokenizer: Any, **options: Any) -> ChatTemplate:
        """The file's template, or the built-in style its vocabulary shows. TemplateError if there is neither."""
        source = tokenizer.chat_template or detect_chat_style(tokenizer.vocab)
        if source is None:
            raise TemplateError("the model has no chat template and its vocabulary shows no known chat style")

        def text(token: int | None) -> str:
            return "" if token is None else tokenizer.token_texts[token].decode("utf-8", "replace")

        return cls(source, bos_token=text(tokenizer.bos_id), eos_token=text(tokenizer.eos_id), **options)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[Segment]:
        """Prompt text for messages, as segments to give to Tokenizer.encode_chat.

        Messages, tools, documents and variables are plain data (as from JSON) and count as text from outside; the
        template gets copies. Raises TemplateError, TypeError or ValueError for data that is not plain.
        """
        data = _PlainData()
        given = {
            "messages": data.copy(list(messages), "messages"),
            "tools": data.copy(tools, "tools"),
            "documents": data.copy(documents, "documents"),
            "add_generation_prompt": bool(add_generation_prompt),
            **self._tokens,
        }
        for name, value in variables.items():
            given[name] = data.copy(value, name)
        budget = Budget(
            self._seconds,
            max_output=self._max_output + 8 * data.characters,
            max_total=16 * self._max_output + 256 * data.characters,  # templates that append make much and keep little
            max_items=max(1 << 17, 2 * data.items),
        )
        try:
            text = self._environment.run(self._template, given, budget)
        except (TemplateError, BudgetExceeded) as e:
            raise TemplateError(str(e)) from None
        except RecursionError:
            raise TemplateError("chat template nests too deep") from None
        except MemoryError:
            raise TemplateError("chat template needs too much memory") from None
        except Exception as e:
            raise TemplateError(f"chat template failed: {type(e).__name__}: {e}"[:2000]) from e
        return segments(text)

    def _strftime_now(self, format: str) -> str:
        if len(format) > 200 or _DATE_DIRECTIVES.search(format):
            raise ValueError("strftime_now: unusable format")
        return self._now().strftime(str(format))


def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message)[:2000] if isinstance(message, str) else "chat template refused the messages")


class _PlainData:
    """Copies data from outside into str, int, float, bool, None, list and dict, and counts it."""

    def __init__(self) -> None:
        self.characters = 0
        self.items = 0

    def copy(self, value: Any, name: str, depth: int = 0) -> Any:
        if depth > MAX_DATA_DEPTH:
            raise ValueError(f"{name}: nested more than {MAX_DATA_DEPTH} deep")
        self.items += 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self.characters += len(value)
            return str.__str__(value) if type(value) is not str else value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, Mapping):
            if not all(isinstance(k, str) for k in value):
                raise TypeError(f"{name}: keys must be str")
            return {
                self.copy(k, name, depth + 1): self.copy(v, f"{name}.{k}"[:200], depth + 1) for k, v in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.copy(v, f"{name}[{i}]", depth + 1) for i, v in enumerate(value)]
        raise TypeError(f"{name}: {type(value).__name__} is not plain data")
