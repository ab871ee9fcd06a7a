"""Every operation that a template can use, on values made to break budgets; test_budget.py runs it in a process.

Usage: abuse.py KIND. Writes a JSON object to stdout: per operation what its abuses came to. "budget" and "other" count
answers, "late" those of the clock, "memory" and "slow" are defects. The memory is limited, and an operation that hangs
is ended by the alarm.
"""

import json
import resource
import signal
import sys
import time

from pantheon.text import ChatTemplate, TemplateError
from pantheon.text.sandbox import _DATA_METHODS, SandboxEnvironment
from pantheon.text.strings import _OPERATORS, BYTES_METHODS, METHODS

HEADROOM = 768 << 20  # bytes over what the process takes before
HANGS = 60  # seconds for one template, whose budget is far less
SECONDS = 0.3  # that budget: it ends what runs in steps
LOOP_SECONDS = 20.0  # of a loop that is to come to the end of its other budgets
SLOW = 5.0  # seconds of processor time after that: what goes on so long is one call of C

# Shared parts, common prefixes, texts that are formats or tags, numbers with one hash, lists that stand for 2^60 items.
VALUES = {
    "s": "'a' * 1000000",
    "t": "'a' * 999999 ~ 'b'",
    "l": "['a' * 1000000] * 100000",
    "m": "['a' * 999999 ~ 'b'] * 100000",
    "p": "('a' * 1000000,) * 100000",
    "d": "{'k' * 1000: ['a' * 1000000] * 100000, 'j': 1}",
    "n": "'9' * 1000000",
    "big": "2 ** 4000",
    "f": "'%1000000000d'",
    "ff": "'%(' * 400000",
    "g": "'{:>1000000000}'",
    "gg": "'{0.a' ~ '.a' * 400000 ~ '}'",
    "h": "'<!---->' * 100000",
    "tabs": "'\\t' * 1000000",
    "lines": "'\\n' * 1000000",
    "r": "range(0, 2305843009213693951 * 100000, 2305843009213693951)",
    "b": "('\\u00e9' * 500000).encode()",
    "z": "",
}
DOUBLED = "{% set ns = namespace(z=['x']) %}{% for i in range(60) %}{% set ns.z = [ns.z, ns.z] %}{% endfor %}"


def values(*names):
    for name in names or VALUES:
        if name == "z":
            yield DOUBLED, "ns.z"
        else:
            yield f"{{% set {name} = {VALUES[name]} %}}", name


def with_arguments(call, receivers=("s", "l", "z")):
    """call(receiver, argument list as text) for every receiver, and for the first ones with an argument."""
    for make, name in values(*receivers):
        yield make, call(name, "")
    (make, first), (more, second) = [*values(*receivers), ("", "'a'")][:2]
    yield make, call(first, "1000000000")
    yield f"{make}{{% set t = {VALUES['t']} %}}", call(first, "t")
    yield f"{make}{more}{{% set m = {VALUES['m']} %}}", call(second, "m")


def expressions(kind):
    """(operation, (statements, expression)) of one kind."""
    environment = SandboxEnvironment()
    if kind in ("filters", "more filters"):
        names = sorted(environment.filters.keys() - {"_loop"})
        for name in names[:: 2] if kind == "filters" else names[1::2]:
            special = {"format": ("f", "ff", "z"), "striptags": ("h", "z"), "int": ("n", "z"), "float": ("n", "z")}
            abuses = with_arguments(lambda v, a, f=name: f"{v} | {f}({a})" if a else f"{v} | {f}",
                                    special.get(name, ("s", "l", "z")))
            for make, expression in abuses:
                lazy = name in ("map", "select", "selectattr", "reject", "rejectattr", "unique", "items")
                yield name, make, expression + (" | list | length" if lazy else "")
    elif kind == "conditions":
        for name in sorted(environment.tests):
            if name[0].isalpha():
                for make, expression in with_arguments(lambda v, a, t=name: f"{v} is {t}({a})" if a else f"{v} is {t}"):
                    yield name, make, expression
    elif kind in ("methods", "more methods"):
        names = sorted(METHODS)
        for name in names[:: 2] if kind == "methods" else names[1::2]:
            texts = {"format": ("g", "gg"), "expandtabs": ("tabs",), "splitlines": ("lines",)}.get(name, ("s",))
            for make, expression in with_arguments(lambda v, a, m=name: f"{v}.{m}({a})", texts):
                yield name, make, expression
    elif kind == "data methods":
        for of, names in {"b": BYTES_METHODS, **{str(k.__name__): v for k, v in _DATA_METHODS.items()}}.items():
            receiver = {"list": "l", "tuple": "p", "dict": "d"}.get(of, of)
            for name in names:
                for make, expression in with_arguments(lambda v, a, m=name, o=receiver: f"{o}.{m}({a})", (receiver,)):
                    first = f"{{% set {receiver} = {VALUES[receiver]} %}}"
                    yield f"{of}.{name}", first + make, expression
    elif kind == "operators":
        comparisons = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
        pairs = [("s", "t"), ("l", "m"), ("t", "l"), ("f", "big"), ("ff", "d"), ("l", "big"), ("big", "big"),
                 ("s", "big"), ("p", "p"), ("d", "d"), ("z", "z"), ("b", "big")]
        for name in (*_OPERATORS, *comparisons, "~"):
            for left, right in pairs:
                (make, a), (more, b) = next(values(left)), next(values(right))
                yield name, make + more, f"{a} {name} {b}"
        for make, name in values():
            yield "slice", make, f"({name}[::-1], {name}[1:], {name}[:-1]) | length"
            yield "item", make, f"{name}[{name}].x"
            yield "print", make, name
            yield "key", make, f"{{{name}: 1}}"
            yield "list", make, f"[{name}]"
            yield "-", make, f"-{name}"
    elif kind == "functions":
        for make, name in values("s", "l", "d", "z"):
            for function in sorted(environment.globals):
                for a in (f"{name}", f"*{name}", f"x={name}, **{name}", f"{name}, 1000000000"):
                    yield function, make, f"{function}({a})"
        for make, name in values("r", "p", "z"):
            yield "dict", make, f"dict({name} | batch(2))"
            yield "dict", make + f"{{% set l = {name} | list %}}", "dict(l | batch(2)) | length"


def statements():
    """Abuses that are no expressions: what loops keep."""
    grow = "{% set ns = namespace(l=[], t='', d={}) %}{% for i in range(100000) %}@{% endfor %}"
    long = "'" + "x" * 100000 + "'"
    for name, body in {
        "literal": "{% set ns.l = [ns.l, " + long + "] %}",
        "list": "{% set ns.l = [ns.l, [" + "1," * 50000 + "]] %}",
        "tuple": "{% set ns.l = [ns.l, (" + "1," * 50000 + ")] %}",
        "dict": "{% set ns.l = [ns.l, {" + ",".join(f"{i}:1" for i in range(15000)) + "}] %}",
        "methods": "{% set ns.l = [ns.l, [" + ",".join(["i.x, ''.upper"] * 5000) + "]] %}",
        "items": "{% set ns.l = [ns.l, ns.d.items(), dict(x=ns.l).items(), range(9999) | list] %}",
        "copy": "{% set ns.l = [ns.l, range(9999) | list].copy() %}",
        "set block": "{% set x %}" + "y" * 100000 + "{% endset %}{% set ns.l = [ns.l, x] %}",
        "characters": "{% set ns.l = [ns.l, ('y' * 9999) | list] %}",
        "splits": "{% set ns.l = [ns.l, ('y ' * 9999).split()] %}",
        "numbers": "{% set ns.l = [ns.l, 2 ** 4000 + i] %}",
        "sums": "{% set ns.n = (ns.n or 2 ** 4000) + (ns.n or 1) %}",
        "call": "{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m(*range(99999)) }}",
        "loop changed": "{% if loop.changed(['a' * 1000000] * 1000, ['a' * 1000000] * 99999) %}{% endif %}",
        "namespace shown": "{% set ns.t = ['a' * 1000000] * 100000 %}{{ [ns] }}",
        "macro shown": "{% macro m() %}{% endmacro %}{{ [m, loop, joiner()] }}",
        "iterator searched": "{% set s = 'a' * 1000000 %}{% set t = 'a' * 999999 ~ 'b' %}"
                             "{{ s in ([t] * 100000) | reverse }}{{ s in ([t] * 100000) | map('string') }}",
        "views": "{% set d = {'x': ['a' * 1000000] * 100000} %}{{ [d.items()] == [d.items()] }}{{ d.values() }}",
        "collisions": "{% set l = range(0, 2305843009213693951 * 99999, 2305843009213693951) | unique | list %}",
        "lists with one hash": "{% set a = [(-1, -2), (-2, -1), (-1, -1), (-2, -2)] %}{% for x in a %}{% for y in a %}"
                               "{% set ns.l = ns.l + [(x, y, i)] %}{% endfor %}{% endfor %}"
                               "{{ ns.l | unique | list | length }}",
    }.items():  # fmt: skip
        yield name, grow.replace("@", body)


def main(kind):
    with open("/proc/self/statm") as f:
        taken = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + HEADROOM, taken + HEADROOM))
    outcomes = {}
    seconds = LOOP_SECONDS if kind == "statements" else SECONDS
    cases = statements() if kind == "statements" else (
        (name, f"{make}{{{{ {expression} }}}}") for name, make, expression in expressions(kind))
    for name, source in cases:
        print(name, source[:300], file=sys.stderr)
        signal.alarm(HANGS)
        begin = time.thread_time()
        try:
            ChatTemplate(source, seconds=seconds).render([])
            outcome = "done"
        except TemplateError as e:
            outcome = str(e)
        taken = time.thread_time() - begin
        known = outcomes.setdefault(name, {})
        if taken > seconds + SLOW:
            known.setdefault("slow", f"{taken:.1f} s: {source[:300]}")
        if "emory" in outcome:
            known.setdefault("memory", source[:300])
        elif outcome.startswith("template runs longer"):
            known["late"] = known.get("late", 0) + 1
        elif outcome.startswith(("template ", "tojson: indent", "pprint: nested")):
            known["budget"] = known.get("budget", 0) + 1
        else:
            known["other"] = known.get("other", 0) + 1
    signal.alarm(0)
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
