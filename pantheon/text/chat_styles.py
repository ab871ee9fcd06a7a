"""Chat templates for files without one, by the markers their vocabulary has."""

from __future__ import annotations

from pantheon._core.chat_styles import shown_style
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

# The role is part of a control token, which only the template's own text can be.
PHI3 = """\
{%- set begin = {'system': '<|system|>\\n', 'user': '<|user|>\\n', 'assistant': '<|assistant|>\\n'} -%}
{%- for message in messages -%}
{%- if message.role not in begin -%}
{{ raise_exception('the phi3 chat style knows the roles system, user and assistant, not ' + message.role) }}
{%- endif -%}
{{ begin[message.role] + message.content + '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}
"""

# Turns are words: one ends with an empty line, and the next begins with a role and a colon. So there is no empty line
# within a message, whatever ends its lines, no line in it begins like a turn, and a role is a word.
RWKV = """\
{%- for message in messages -%}
{%- if not message.role.isalpha() -%}
{{ raise_exception('the rwkv chat style takes one word as a role') }}
{%- endif -%}
{%- set text -%}
{%- for line in message.content.splitlines() if line | trim -%}
{{ ' ' if line.lower().startswith(('system:', 'user:', 'assistant:', message.role.lower() + ':')) else '' }}
{{- line + '\\n' }}
{%- endfor -%}
{%- endset -%}
{{ message.role | capitalize + ': ' + text | trim + '\\n\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}
"""

STYLES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "phi3": PHI3, "rwkv": RWKV}


def detect_chat_style(vocab: Vocab) -> str | None:
    """Name of the built-in style whose markers are all tokens of vocab, or None; RWKV has words for markers."""
    if vocab.model == "rwkv":
        return "rwkv"
    return shown_style(set(vocab.texts))
