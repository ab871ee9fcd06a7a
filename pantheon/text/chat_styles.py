"""Chat templates for files without one, by the markers their vocabulary has."""

from __future__ import annotations

from pantheon.text.vocab import Vocab

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}
"""

# The system message goes in front of the first user message: the format has no place of its own for it.
MISTRAL = """\
{{- bos_token -}}
{%- set system = namespace(text='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set system.text = system.text + message.content + '\\n\\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + system.text + message.content + ' [/INST]' }}
{%- set system.text = '' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + message.content | trim + eos_token }}
{%- else -%}
{{ raise_exception('the mistral chat style knows the roles system, user and assistant, not ' + message.role) }}
{%- endif -%}
{%- endfor -%}
"""

PHI3 = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}
"""

# Turns end with an empty line, so there is none within a message.
RWKV = """\
{%- for message in messages -%}
{%- set text = message.content | trim | replace('\\r\\n', '\\n') -%}
{%- set text = text | replace('\\n\\n\\n\\n', '\\n\\n') | replace('\\n\\n\\n', '\\n\\n') | replace('\\n\\n', '\\n') -%}
{{ message.role | capitalize + ': ' + text + '\\n\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}
"""

STYLES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "phi3": PHI3, "rwkv": RWKV}
_MARKERS = (
    ("chatml", (b"<|im_start|>", b"<|im_end|>")),
    ("llama3", (b"<|start_header_id|>", b"<|end_header_id|>", b"<|eot_id|>")),
    ("phi3", (b"<|user|>", b"<|assistant|>", b"<|end|>")),
    ("mistral", (b"[INST]", b"[/INST]")),
)


def detect_chat_style(vocab: Vocab) -> str | None:
    """Name of the built-in style whose markers are all tokens of vocab, or None; RWKV has words for markers."""
    if vocab.model == "rwkv":
        return "rwkv"
    texts = set(vocab.texts)
    return next((style for style, markers in _MARKERS if texts.issuperset(markers)), None)
