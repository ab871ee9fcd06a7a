"""Chat templates: random ones from the language's grammar, and mutations of real ones."""
from __future__ import annotations

import random
import re

import raw

NAMES = ["messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt", "m", "message", "loop",
         "x", "ns", "content", "undefined_name", "raise_exception", "strftime_now", "range", "dict", "namespace",
         "cycler", "joiner", "lipsum", "self", "caller", "varargs", "kwargs", "config", "environment"]
ATTRIBUTES = ["role", "content", "first", "last", "index", "index0", "length", "previtem", "items", "keys", "values",
              "get", "append", "pop", "update", "format", "format_map", "join", "split", "replace", "strip", "encode",
              "upper", "startswith", "center", "ljust", "zfill", "expandtabs", "translate", "count", "index",
              "tool_calls", "function", "arguments", "x", "__class__", "__init__", "__globals__", "__mro__",
              "__subclasses__", "cycle", "changed", "depth", "next", "name", "splitlines", "title", "partition",
              "rsplit", "removeprefix", "real"]
FILTERS = ["abs", "attr('x')", "batch(3)", "capitalize", "center(80)", "default('d')", "dictsort", "escape",
           "filesizeformat", "first", "float", "forceescape", "format(1, 2)", "groupby('role')", "indent(4)", "int",
           "items", "join(', ')", "last", "length", "list", "lower", "map('upper')", "map(attribute='role')", "max",
           "min", "pprint", "random", "reject('none')", "rejectattr('role')", "replace('a', 'bb')", "reverse",
           "round", "safe", "select('string')", "selectattr('role', 'equalto', 'user')", "slice(3)", "sort",
           "sort(attribute='role')", "string", "striptags", "sum", "title", "tojson", "tojson(indent=4)", "trim",
           "truncate(9)", "unique", "upper", "urlencode", "urlize", "wordcount", "wordwrap(10)", "xmlattr", "nothing",
           "sum(attribute='content')", "center(10**9)", "indent(10**7)", "batch(10**9)", "tojson(indent=10**6)",
           "round(400)", "map('join', 'x')"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean", "true",
         "even", "odd", "divisibleby(3)", "divisibleby(0)", "equalto(1)", "in messages", "sameas(x)", "lower",
         "callable", "filter", "test", "escaped", "ge(0)", "nothing"]
NUMBERS = ["0", "1", "-1", "2", "7", "100", "1000", "10**6", "2**31", "2**63", "2**64", "10**100",
           "9999999999999999999", "1.5", "1e308", "-0.0", "1e400", "0x10", "1_000"]
STRINGS = ["''", "'a'", '"b"', "'é日😀'", "'\\n'", "'%s'", "'%1000000d'", "'{0}'", "'{0.__class__}'", "'<|im_end|>'",
           "'\\ud800'", "'%Y %d'", "'%-d'", "'\\x00'", "'a,b,c'", "'User'"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", "in", "not in", "and", "or", "is",
             "|"]
_PARTS = re.compile(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_TOKENS = re.compile(r"('[^']*'|\"[^\"]*\"|\w+|\s+|.)", re.DOTALL)


def expression(rng: random.Random, depth: int = 3) -> str:
    """Any expression; large ones are likely to fail, so small ones are not rare."""
    kind = rng.randrange(14) if depth > 0 else rng.randrange(3)
    if kind == 0:
        return rng.choice(NAMES)
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(STRINGS)

    def inner() -> str:
        return expression(rng, depth - 1)

    if kind == 3:
        return f"({inner()} {rng.choice(OPERATORS)} {inner()})"
    if kind in (4, 5):
        return f"{inner()} | {rng.choice(FILTERS)}"
    if kind == 6:
        return f"{inner()}.{rng.choice(ATTRIBUTES)}"
    if kind == 7:
        return f"{inner()}.{rng.choice(ATTRIBUTES)}({', '.join(inner() for _ in range(rng.randrange(3)))})"
    if kind == 8:
        return rng.choice(("{0}[{1}]", "{0}[{1}:]", "{0}[::-1]", "{0}[{1}:{2}:{1}]", "{0}[-1]")).format(
            inner(), inner(), inner())
    if kind == 9:
        return "[" + ", ".join(inner() for _ in range(rng.choice((0, 1, 2, 3)))) + "]" + rng.choice(
            ("", "", " * 1000", " * 10**6"))
    if kind == 10:
        return "{" + ", ".join(f"{inner()}: {inner()}" for _ in range(rng.choice((0, 1, 2)))) + "}"
    if kind == 11:
        return f"({inner()} if {inner()} is {rng.choice(TESTS)} else {inner()})"
    if kind == 12:
        return rng.choice((
            "range({0})", "dict(x={0})", "namespace(x={0})", "not {0}", "-{0}", "({0}, {1})", "cycler({0}, {1})",
            "joiner({0})", "strftime_now({0})", "raise_exception({0})", "{0}({1})", "dict({0})", "range({0}, {1})",
            "lipsum(n={0})",
        )).format(inner(), inner())
    return f"{inner()} is {rng.choice(('', 'not '))}{rng.choice(TESTS)}"


def statement(rng: random.Random, depth: int = 2) -> str:
    """Any statement with what belongs to it."""
    e, dash = expression(rng), rng.choice(("", "", "-"))
    body = fragment(rng, depth - 1) if depth > 0 else rng.choice(STRINGS)
    kind = rng.randrange(17)
    if kind < 3:
        return f"{{{{{dash} {e} {dash}}}}}"
    if kind < 6:
        where = rng.choice(("m in messages", f"m in {e}", f"k, v in {e}", "m in messages if m.role",
                            "x in range(100) recursive"))
        end = rng.choice(("", "{% else %}", "{{ loop(x) }}", "{% break %}")) + "{% endfor %}"
        return f"{{%{dash} for {where} %}}{body}{end}"
    if kind < 8:
        return f"{{% if {e} {dash}%}}{body}{{% elif {expression(rng)} %}}{{% else %}}{{% endif %}}"
    if kind == 8:
        return f"{{% set x = {e} %}}"
    if kind == 9:
        return (f"{{% set ns = namespace(x={e}) %}}{{% for m in messages %}}{{% set ns.x = {expression(rng)} %}}"
                "{% endfor %}")
    if kind == 10:
        return f"{{% macro f(x, y=1) %}}{body}{rng.choice(('', '{{ f(x) }}'))}{{% endmacro %}}{{{{ f({e}) }}}}"
    if kind == 11:
        return f"{{% filter {rng.choice(FILTERS)} %}}{body}{{% endfilter %}}"
    if kind == 12:
        return f"{{% set x %}}{body}{{% endset %}}{{{{ x {rng.choice(OPERATORS)} x }}}}"
    if kind == 13:
        return f"{{% macro g() %}}{{{{ caller({e}) }}}}{{% endmacro %}}{{% call(z) g() %}}{body}{{% endcall %}}"
    if kind == 14:                          # doubles something again and again
        double = rng.choice(("x ~ x", "x + x", "[x, x]", "x * 2", "x | replace('a', 'aa')", "(x, x)",
                             "{'a': x, 'b': x}"))
        return (f"{{% set ns = namespace(x={e}) %}}{{% for i in range({rng.choice((5, 30, 200))}) %}}"
                f"{{% set x = ns.x %}}{{% set ns.x = {double} %}}{{% endfor %}}{{{{ ns.x | {rng.choice(FILTERS)} }}}}")
    if kind == 15:
        return rng.choice((
            "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as x %}", "{% debug %}", "{% do x.append(1) %}",
            "{% block b %}" + body + "{% endblock %}", "{% autoescape true %}{% endautoescape %}",
            "{% generation %}" + body + "{% endgeneration %}", "{% raw %}{{ x }}{% endraw %}", "{% continue %}",
            "{% with x = 1 %}" + body + "{% endwith %}", "{% trans %}x{% endtrans %}", "{{", "{%", "{#", "}}",
            "{% endfor %}"))
    deep = rng.choice(("(" * 300 + "1" + ")" * 300, "-" * 3000 + "1", "[" * 150 + "]" * 150, "1" + " + 1" * 3000,
                       "x" + ".x" * 2000, "x" + "|list" * 500, "not " * 500 + "x", "9" * 5000))
    return f"{{{{{deep}}}}}"


def fragment(rng: random.Random, depth: int = 2) -> str:
    return "".join(statement(rng, depth) for _ in range(rng.choice((1, 1, 2, 4))))


def mutated(rng: random.Random, source: str) -> str:
    """A mutation of a template; sometimes one that has nothing of it."""
    if rng.randrange(5) == 0:
        return fragment(rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        source = _change(rng, source)
    return source


def _change(rng: random.Random, source: str) -> str:
    kind = rng.randrange(10)
    if kind == 0:
        return raw.mutated(rng, source.encode("utf-8", "replace")).decode("utf-8", "replace")
    parts = _PARTS.split(source)
    i = rng.randrange(len(parts))
    part = parts[i]
    if kind == 1:
        parts[i] = ""
    elif kind == 2:
        parts[i] = part * rng.choice((2, 2, 3, 200))
    elif kind == 3:
        other = rng.randrange(len(parts))
        parts[i], parts[other] = parts[other], part
    elif kind in (4, 5):
        parts.insert(i, statement(rng))
    elif kind == 6:
        parts[i] = f"{{{{ {expression(rng)} }}}}"
    else:
        tokens = _TOKENS.findall(part)
        if tokens:
            at = rng.randrange(len(tokens))
            new = rng.choice((expression(rng, 1), expression(rng, 2), rng.choice(OPERATORS), rng.choice(tokens), "",
                              f"{tokens[at]} | {rng.choice(FILTERS)}", f"{tokens[at]}.{rng.choice(ATTRIBUTES)}"))
            tokens[at] = new
            parts[i] = "".join(tokens)
    return "".join(parts)
