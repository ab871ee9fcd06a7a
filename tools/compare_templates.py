"""Chat templates against transformers' own renderer: random conversations through templates of many kinds.

    python tools/compare_templates.py [--templates 500] [--chats 20] [--seed 0] [FOLDER_OR_FILE ...]

Needs transformers 5 beside Pantheon. Templates are those of tests/fixtures, the files named, and ones put together at
random from what real templates consist of. Prints how many renderings are equal, how many both refuse for the same kind of
reason, and every kind of difference once: an exception of ours that is no refusal is one. Exit status 1 with any
difference; docs/templates.md says which are known.
"""

# ruff: noqa: E501  (templates are lines)

from __future__ import annotations

import argparse
import collections
import functools
import random
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from pantheon.text import ChatTemplate, TemplateError

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "text" / "templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
WORDS = ("hi", "Hello there", " a b ", "x\n\ny", "<think>\nso\n</think>\n\nyes", "é 日本 😀", "'q' \"d\" <&>", "", "\t1\n",
         "it's (a) test-case", "1.50", "a\r\nb", "the quick brown fox " * 6)

HEADS = (
    "", "{{ bos_token }}", "{{- bos_token -}}\n", "{% if bos_token is defined %}{{ bos_token }}{% endif %}",
    "{%- if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif -%}",
    "{% if unk_token is defined %}U{% endif %}{{ pad_token }}",
    "{%- set ns = namespace(n=0, text='', found=false) -%}",
    "{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content -%}{%- set messages = messages[1:] -%}"
    "{%- else -%}{%- set system = 'Default.' -%}{%- endif -%}[{{ system | trim }}]",
    "{% macro show(m, first=true) %}{{ m.role | upper }}{% if first %}!{% endif %}: {{ m.content }}{% endmacro %}",
)
TOOLS = (
    "", "{% if tools %}{{ tools | tojson }}{% endif %}", "{%- if tools is not none -%}{{ tools | tojson(indent=4) }}{%- endif %}",
    "{% for tool in tools or [] %}{{ tool | tojson(indent='\\t') }}{% endfor %}",
    "{% for tool in tools or [] %}{% set f = tool.function or tool %}{{ f.name }}({% for k, v in f.parameters.properties.items()"
    " %}{{ k }}: {{ v.type }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}",
    "{% if documents %}{% for d in documents %}{{ loop.index0 }}: {{ d['title'] | title }}\n{% endfor %}{% endif %}",
    "{% for tool in (tools or []) | sort(attribute='function.name') %}{{ tool.function.name }} {% endfor %}",
    "{{ dict([('a', 1), ('b', tools)]) | tojson(ensure_ascii=true, sort_keys=true) }}", "{{ (tools or [{}])[0].copy() | pprint }}",
)
BODIES = (
    "{{ m.content }}", "{{ m['content'] | trim }}", "{{- m.content.strip() -}}", "{{ m.content | tojson }}", "{{ m.content | indent(2, true) }}",
    "{{ m.content.split('</think>')[-1].lstrip('\\n') }}", "{{ m.content | replace('\\n', ' ') | truncate(20) }}",
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}",
    "{{ m.content | capitalize }}|{{ m.content | title }}|{{ m.content.title() }}|{{ m.content | wordcount }}",
    "{{ m.content | wordwrap(11) }}{{ m.content.expandtabs(4) }}", "{{ m.content.encode('utf-8') | length }}{{ m.content | length }}",
    "{{ m.content.splitlines() | join('/') }}", "{% if 'x' in m.content and not loop.first %}X{% endif %}{{ m.content[:5] ~ loop.index }}",
    "{{ '%s|%5.1f|%-4d' % (m.content, loop.index, loop.revindex) }}", "{{ '{0!r}|{n:>3}'.format(m.content, n=loop.index) }}",
    "{{ m.content | e }}{{ m.content | urlencode }}", "{{ m.content | int }}{{ m.content | float }}{{ m.content | list | first }}",
    "{% filter upper %}{{ m.content }}{% endfilter %}", "{% set t %}{{ m.content }}{% endset %}{{ t | length }}{{ t }}",
    "{% generation %}{{ m.content }}{% endgeneration %}", "{{ m.content.partition('\\n') | list }}{{ m.items() | list | length }}",
    "{{ m.reasoning_content }}{{ m.thinking }}{{ m.content | default('none', true) }}",
    "{% for c in m.tool_calls or [] %}{% set c = c.function %}<{{ c.name }}>{{ c.arguments | tojson }}{% endfor %}{{ m.content or '' }}",
    "{{ m }}", "{{ m | dictsort }}", "{{ m.keys() | sort | join(',') }}", "{{ m | items | list }}",
)
# What fails for content that is no text would only show that both refuse it.
TAKE_LISTS = tuple(body for body in BODIES if "m.content" not in body or body in (
    "{{ m.content }}", "{{ m.content | tojson }}",
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}"))
LOOPS = (
    "{% for m in messages %}<{{ m.role }}>@</>{% endfor %}",
    "{%- for m in messages -%}\n    {{- '<|' + m.role + '|>\\n' -}}@\n{%- endfor -%}",
    "{% for m in messages if m.role != 'system' %}{% if loop.index0 % 2 == 1 and m.role == 'user' %}{{ raise_exception('Alternate!') }}"
    "{% endif %}@{{ eos_token }}{% endfor %}",
    "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}{% if m.role == 'tool' %}{% continue %}{% endif %}@;{% endfor %}",
    "{% for m in messages[::-1] %}{{ loop.cycle('a', 'b') }}{{ loop.previtem.role if not loop.first }}@{% endfor %}",
    "{% for role, ms in messages | groupby('role') %}{{ role }}={% for m in ms %}@{% endfor %}{% endfor %}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') | list %}@{% else %}nobody{% endfor %}",
    "{% for row in messages | batch(2) %}{% for m in row %}@{% endfor %}/{% endfor %}",
    "{{ messages | map(attribute='role') | unique | join(',') }}{% for m in messages %}@{% endfor %}",
)
TAILS = (
    "", "{% if add_generation_prompt %}<assistant>{% endif %}", "{%- if add_generation_prompt and messages[-1].role != 'assistant' -%}\n->{%- endif %}",
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}", "{{ custom }}{{ enable_thinking }}",
    "{{ '' if enable_thinking else 'off' }}{{ messages | length }}",
)
REFUSING = "{{ missing.deeper }}"


def random_template(rng: random.Random) -> tuple[str, bool]:
    """A template, and whether it takes content that is a list of parts."""
    takes_lists = rng.random() < 0.3
    body = "".join(rng.sample(TAKE_LISTS if takes_lists else BODIES, rng.randint(1, 2)))
    tail = REFUSING if rng.random() < 0.02 else rng.choice(TAILS)
    return "".join((rng.choice(HEADS), rng.choice(TOOLS), rng.choice(LOOPS).replace("@", body), tail)), takes_lists


def random_chat(rng: random.Random, takes_lists: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": rng.choice(WORDS)})
    for i in range(rng.randint(1, 5)):
        role = rng.choice(("user", "assistant", "tool")) if rng.random() < 0.2 else ("user", "assistant")[i % 2]
        content: Any = rng.choice(WORDS)
        if takes_lists and rng.random() < 0.3:
            content = [{"type": "text", "text": content}, {"type": "text", "text": "more"}]
        message: dict[str, Any] = {"role": role, "content": content if rng.random() < 0.98 else None}
        if rng.random() < 0.15:
            message[rng.choice(("thinking", "reasoning", "reasoning_content"))] = rng.choice(WORDS)
        if role == "assistant" and rng.random() < 0.2:
            message["tool_calls"] = [{"id": "1", "function": {"name": "f", "arguments": {"é": rng.choice(WORDS), "n": 1.5}}}]
        messages.append(message)
    names = rng.sample(("search", "add", "Weather"), rng.randint(1, 3))
    tools = [{"type": "function", "function": {"name": name, "description": rng.choice(WORDS), "parameters": {
        "type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}}}} for name in names]
    chat: dict[str, Any] = {"messages": messages, "tools": tools if rng.random() < 0.4 else None, "documents": None}
    if rng.random() < 0.2:
        chat["documents"] = [{"title": rng.choice(WORDS), "text": "t"}]
    for name, values in (("enable_thinking", (True, False)), ("custom", (1, None, [1, "é"], {"a": 1.5}))):
        if rng.random() < 0.3:
            chat[name] = rng.choice(values)
    chat["go_on"] = isinstance(messages[-1]["content"], (str, list)) and rng.random() < 0.2
    return chat


def reference(source: str, chat: dict[str, Any]) -> str:
    """As transformers' apply_chat_template does: keys without a value go, special tokens are variables."""
    given = {key: value for key, value in chat.items() if key not in ("messages", "go_on")}
    messages = [{key: value for key, value in m.items() if value is not None} for m in chat["messages"]]
    rendered, _ = render_jinja_template([messages], chat_template=source, continue_final_message=chat["go_on"],
                                        add_generation_prompt=not chat["go_on"], **TOKENS, **given)
    return rendered[0]


@functools.lru_cache
def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, seconds=60, **TOKENS)


def ours(source: str, chat: dict[str, Any]) -> str:
    given = {key: value for key, value in chat.items() if key != "go_on"}
    segments = compiled(source).render(continue_last=chat["go_on"], **given)
    return "".join(segment.text for segment in segments)


def outcome(render, source: str, chat: dict[str, Any]) -> tuple[str, str]:
    """The text; or why there is none: the class of what went wrong, and its message."""
    try:
        return "text", render(source, chat)
    except Exception as e:
        if render is ours and not isinstance(e, ValueError):
            return "failed", f"{type(e).__name__}: {e}"
        cause = e.__cause__ if isinstance(e, TemplateError) and e.__cause__ is not None else e
        return f"refused, {type(cause).__name__}", str(e)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="templates, or folders that have *.jinja files")
    parser.add_argument("--templates", type=int, default=500)
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    files = [p for path in [FIXTURES, *args.paths] for p in (sorted(path.rglob("*.jinja")) if path.is_dir() else [path])]
    sources = {p.name: (p.read_text("utf-8"), True) for p in files}
    while len(sources) < args.templates:
        sources[f"random {len(sources)}"] = random_template(rng)
    counts: collections.Counter[str] = collections.Counter()
    shown: set[str] = set()
    for name, (source, takes_lists) in sources.items():
        for _ in range(args.chats):
            chat = random_chat(rng, takes_lists)
            # Each marks the end of the last message in its own way, which a template shows that uses the text twice.
            chat["go_on"] &= name.endswith(".jinja") or (
                source.count("content") == 1 and "{% set t" not in source and "{% filter" not in source
                and "{{ m" not in source.replace("{{ m.content }}", "").replace("{{ m.role", ""))
            expected, got = outcome(reference, source, chat), outcome(ours, source, chat)
            if expected[0] == got[0]:
                kind = ("equal" if expected == got else "different") if got[0] == "text" else "both refuse"
            elif "text" in (expected[0], got[0]):
                kind = f"only {'transformers refuses' if got[0] == 'text' else 'ours refuses'}"
            else:
                kind = f"transformers: {expected[0]}; ours: {got[0]}"
            counts[kind] += 1
            if kind not in ("equal", "both refuse") and len(shown) < 40 and f"{kind}{got[1][:60]}" not in shown:
                shown.add(f"{kind}{got[1][:60]}")
                print(f"{name}: {kind}\n  source       {source[:400]!r}\n  transformers {expected[1][-400:]!r}\n  ours         "
                      f"{got[1][-400:]!r}")
    print(f"transformers {transformers.__version__}, {len(sources)} templates x {args.chats} chats, seed {args.seed}: "
          + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return int(bool(counts.keys() - {"equal", "both refuse"}))


if __name__ == "__main__":
    sys.exit(main())
