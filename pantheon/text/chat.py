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
from pantheon.text.chat_data import OpenEnd, PlainData
from pantheon.text.chat_styles import STYLES, detect_chat_style
from pantheon.text.provenance import Segment, segments, template_text
from pantheon.text.sandbox import SandboxEnvironment
from pantheon.text.strings import named

__all__ = ["ChatTemplate", "TemplateError", "detect_chat_style"]

# Flags and widths of the C library's strftime stay out: a width is a way to ask for gigabytes.
_DATE_DIRECTIVES = re.compile(r"%(?![-]?[A-Za-z%])")


class TemplateError(ValueError):
    """A chat template that does not compile, fails, refuses the messages (its own message) or exceeds its budget.

    The message is one line of at most 2000 characters: much of it may be the template's.
    """

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(str(message)[:4000].splitlines()))
        super().__init__(line[:2000])


class ChatTemplate:
    """A model's chat template, or its several ones, compiled when first used; threads may share it.

    source: Jinja2 text as in tokenizer.chat_template, or the name of a built-in style (chatml, llama3, mistral, phi3,
    rwkv), or several of them by name: with tools the one called "tool_use" is used, else "default".
    bos_token, eos_token, and any other name that ends in _token: texts the template may write; they count as its own
    text. None: there is no such token, the name is undefined.
    seconds, max_output: budget of one rendering; max_output characters come on top of 12 for every character given.
    Raises TemplateError for a default template that does not compile.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        bos_token: str | None = None,
        eos_token: str | None = None,
        seconds: float = 5.0,
        max_output: int = 1 << 20,
        now: Callable[[], datetime] = datetime.now,
        **special_tokens: str | Sequence[str] | None,
    ):
        self.sources = {"default": source} if isinstance(source, str) else dict(source)
        self.sources = {name: STYLES.get(text, text) for name, text in self.sources.items()}
        tokens = {"bos_token": bos_token, "eos_token": eos_token, **special_tokens}
        for name in tokens:
            if not name.endswith("_token") and name != "additional_special_tokens":
                raise TypeError(f"ChatTemplate: {name!r} is neither an argument nor the name of a token")
        self._tokens = {name: template_text(text) if isinstance(text, str) else [template_text(t) for t in text]
                        for name, text in tokens.items() if text is not None}  # fmt: skip
        self._seconds = seconds
        self._max_output = max_output
        self._now = now
        self._environment = SandboxEnvironment()
        functions = named({"raise_exception": _raise_exception, "strftime_now": self._strftime_now})
        self._environment.functions |= functions
        self._environment.globals |= functions
        self._compiled: dict[str, Any] = {}
        if "default" in self.sources:
            self._compile("default")

    @property
    def source(self) -> str | None:
        """Text of the default template."""
        return self.sources.get("default")

    @classmethod
    def for_tokenizer(cls, tokenizer: Any, **options: Any) -> ChatTemplate:
        """The file's templates, or the built-in style its vocabulary shows. TemplateError if there is neither."""
        source = tokenizer.chat_templates or detect_chat_style(tokenizer.vocab)
        if source is None:
            raise TemplateError("the model has no chat template and its vocabulary shows no known chat style")
        return cls(source, **{**tokenizer.special_tokens, **options})

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_last: bool | str = False,
        template: str | None = None,
        **variables: Any,
    ) -> list[Segment]:
        """Prompt text for messages, as segments to give to Tokenizer.encode_chat.

        tools, documents       JSON objects, in the form that the model's template expects
        add_generation_prompt  whether the beginning of an answer follows; None: yes, unless continue_last
        continue_last          True: the text ends with the last message's content, whose turn stays open; or the name
                               of the field that is to go on, such as "reasoning_content"
        template               name of one of several templates, in place of the rule above
        variables              what else the template takes, such as enable_thinking; they replace special tokens

        All this is plain data (as from JSON) and counts as text from outside; the template gets copies, of messages
        without the keys whose value is None.
        Raises TemplateError, TypeError or ValueError for data that is not plain or cannot be continued.
        """
        if continue_last and add_generation_prompt:
            raise ValueError("continue_last and add_generation_prompt exclude each other")
        if add_generation_prompt is None:
            add_generation_prompt = not continue_last
        compiled = self._compile(self._choose(template, tools is not None))
        data = PlainData()
        plain = data.messages(messages)
        given = {
            "messages": plain,
            "tools": data.copy(tools, "tools"),
            "documents": data.copy(documents, "documents"),
            "add_generation_prompt": bool(add_generation_prompt),
            **self._tokens,
        }
        for name, value in variables.items():
            given[name] = data.copy(value, name)
        end = OpenEnd(plain, continue_last if isinstance(continue_last, str) else "content") if continue_last else None
        budget = Budget(
            self._seconds,
            max_output=self._max_output + 12 * data.characters,
            max_total=16 * self._max_output + 256 * data.characters,  # templates that append make much and keep little
            max_items=max(1 << 17, 2 * data.items + data.characters),
        )
        try:
            text = self._environment.run(compiled, given, budget)
        except (TemplateError, BudgetExceeded) as e:
            raise TemplateError(str(e)) from None
        except RecursionError:
            raise TemplateError("chat template nests too deep") from None
        except MemoryError:
            raise TemplateError("chat template needs too much memory") from None
        except Exception as e:
            raise TemplateError(f"chat template failed: {type(e).__name__}: {e}") from e
        return segments(text if end is None else end.truncate(text))

    def _choose(self, name: str | None, with_tools: bool) -> str:
        """The name of the template to use."""
        if not isinstance(name, str | None):
            raise TypeError(f"template must be the name of a template, not {type(name).__name__}")
        if name is None:
            name = "tool_use" if with_tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            known = ", ".join(sorted(self.sources))
            raise TemplateError(f"the model has no chat template {name!r:.100}, but {known[:500]}: name one of them")
        return name

    def _compile(self, name: str) -> Any:
        if name not in self._compiled:
            try:
                self._compiled[name] = self._environment.from_string(self.sources[name])
            except TemplateSyntaxError as e:
                raise TemplateError(f"chat template, line {e.lineno}: {e.message}") from None
            except (Exception, RecursionError) as e:
                raise TemplateError(f"chat template does not compile: {type(e).__name__}: {e}") from None
        return self._compiled[name]

    def _strftime_now(self, format: str) -> str:
        if len(format) > 200 or _DATE_DIRECTIVES.search(format):
            raise ValueError("strftime_now: unusable format")
        return self._now().strftime(str(format))


def _raise_exception(message: Any) -> None:
    raise TemplateError(message if isinstance(message, str) else "chat template refused the messages")
