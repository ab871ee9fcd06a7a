"""What a chat template is given: plain copies of messages and arguments, in the form that templates are written for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from pantheon.text import provenance as prov
from pantheon.text.budget import Budget

MAX_DATA_DEPTH = 64
_REASONING = ("reasoning_content", "thinking", "reasoning")


class PlainData:
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
            if value.bit_length() > Budget.MAX_INT_BITS:
                raise ValueError(f"{name}: an integer of more than {Budget.MAX_INT_BITS} bits")
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
            return [self.copy(v, f"{name}[{i}]"[:200], depth + 1) for i, v in enumerate(value)]
        raise TypeError(f"{name}: {type(value).__name__} is not plain data")

    def messages(self, value: Any) -> list[dict[str, Any]]:
        """Messages as templates know them: without keys whose value is None, which many print, and with reasoning under
        the two names that are in use."""
        if isinstance(value, (str, bytes, Mapping)):
            raise TypeError(f"messages must be a sequence of messages, not {type(value).__name__}")
        messages = []
        for i, message in enumerate(self.copy(list(value), "messages")):
            if not isinstance(message, dict):
                raise TypeError(f"messages[{i}] must be a mapping, such as role and content, not {message!r:.100}")
            message = {key: v for key, v in message.items() if v is not None}
            reasoning = next((message[key] for key in _REASONING if key in message), None)
            if reasoning is not None:
                message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
            messages.append(message)
        return messages


class OpenEnd:
    """Where the last message's text ends in a rendered chat: found by a mark that nobody can know beforehand.

    messages: plain copies; the text that is to go on, in the last one's field, gets the mark. ValueError without such.
    """

    def __init__(self, messages: list[dict[str, Any]], field: str):
        self._mark = f"end{secrets.token_hex(16)}"
        self._field = field
        last = messages[-1] if messages else {}
        text = last.get(field)
        if isinstance(text, list):
            block = next((b for b in reversed(text) if isinstance(b, dict) and isinstance(b.get("text"), str)), {})
            text = block.get("text")
        else:
            block = last
        if not isinstance(text, str):
            raise ValueError(f"continue_last: the last message has no text in {field!r}")
        self._text = text
        # The blank behind the mark shows whether the template trims: then the blanks before it go as well.
        marked = f"{text}{self._mark} "
        if block is not last:
            block["text"] = marked
        else:
            names = _REASONING if field in _REASONING else (field,)
            last.update({name: marked for name in names if last.get(name) == text})

    def truncate(self, rendered: str) -> str:
        """The rendered chat up to the end of that text. ValueError if the template does not show it whole."""
        at = str.rfind(rendered, self._mark)
        if at < 0 or self._text.strip() not in rendered:
            raise ValueError(f"continue_last: the template does not show the last message's {self._field!r} as it is")
        open_text = rendered[:at]
        keeps_blanks = str.startswith(rendered, " ", at + len(self._mark))
        return open_text if keeps_blanks else prov.strip(open_text, left=False)
