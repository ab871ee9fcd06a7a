"""Marks on text: an operation may lose them, but never give one to a character from outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text import ChatTemplate, TemplateError
from pantheon.text.provenance import Segment, Text, concat, mask_of, segments, template_text

# Only text from outside has these letters, in whatever case a filter may put them.
OUTSIDE = st.text("xyz \n\u00e9ß", max_size=12)
OUTSIDE_LETTERS = set("xyzXYZ\u00e9\u00c9ßsS\n")
INSIDE = "<A B>"


def test_marks_follow_slices_and_iteration():
    value = concat([template_text("<A>"), "bc", template_text("<D>")])
    assert segments(value) == [Segment("<A>", True), Segment("bc", False), Segment("<D>", True)]
    assert segments(value[1:4]) == [Segment("A>", True), Segment("b", False)]
    assert segments(value[::-1]) == [Segment(">D<", True), Segment("cb", False), Segment(">A<", True)]
    assert [mask_of(c)[0] for c in value] == [1, 1, 1, 0, 0, 1, 1, 1]
    assert type(value[3:5]) is str
    assert str(value) is value


def test_operations_unknown_to_us_lose_the_marks():
    value = template_text("<A>")
    for lost in (value.upper(), value + "x", value * 2, f"{value}x", "".join([value]), value.encode().decode()):
        assert type(lost) is str


def test_marks_must_fit():
    with pytest.raises(ValueError, match="mark"):
        Text("abc", b"\1")


def test_copies_keep_the_marks():
    import copy
    import pickle

    value = concat(["a", template_text("B")])
    for other in (copy.copy(value), pickle.loads(pickle.dumps(value))):
        assert other == value and mask_of(other) == b"\0\1"


# (expression, does the template's "<A B>" stay marked?)
EXPRESSIONS = [
    ("'<A B>' + c", True),
    ("c + '<A B>' + c", True),
    ("c ~ '<A B>' ~ 1", True),
    ("(c + '<A B>') | trim", True),
    ("(' <A B> ' + c).strip()", True),
    ("('<A B>,' + c).split(',')[0]", True),
    ("('<A B> ' + c).split(' ') | join(' ')", True),
    ("(c + '<A B>')[0:]", True),
    ("('<A B>9' + c)[:5] + c", True),
    ("'<A B>'.join([c, c])", True),
    ("[c, '<A B>'] | join(c)", True),
    ("'%s<A B>%s' % (c, c)", True),
    ("'%s<A B>' | format(c)", True),
    ("'{}<A B>{}'.format(c, c)", True),
    ("'{x}<A B>'.format(x=c)", True),
    ("('<A B>' + c).replace('x', '9')", True),
    ("c.replace('x', '<A B>') + '<A B>'", True),
    ("(c + '\\r<A B>').splitlines() | last", True),
    ("('<A B>' + c) | string | safe", True),
    ("('<A B>' + c) | indent(1)", True),
    ("('<A B>' + c) | list | join", True),
    ("('<A B>' + c) | reverse | reverse", True),
    ("('<A B>,' + c).partition(',')[0]", True),
    ("('<A B>,' + c).rsplit(',', 1)[0]", True),
    ("('9<A B>' + c).removeprefix('9')", True),
    ("[('<A B>' + c)] | map('trim') | first", True),
    ("('<A B>' + c) * 2", True),
    ("('<A B>' + c) | upper | lower", None),
    ("('<A B>' + c) | title", None),
    ("('<A B>' + c) | capitalize", None),
    ("('<A B>\\t' + c).expandtabs(4)", True),
    ("('<A B>' + c).encode().decode()", False),
    ("{'a': '<A B>' + c} | pprint", False),
    ("('<A B>' + c) | wordwrap", False),
    ("[c, '<A B>' + c] | sort | join", True),
    ("[c, '<A B>' + c] | unique | join", True),
    ("('<A B>' + c) | escape", False),
    ("{'a': '<A B>' + c} | tojson", False),
    ("['<A B>' + c]", False),
    ("('<A B>' + c) | truncate(3, true, '')", None),
    ("('<A B>' + c) | center(40)", False),
    ("('<A B>' + c) | urlencode", False),
]


@pytest.mark.parametrize(("expression", "kept"), EXPRESSIONS)
def test_template_expressions(expression, kept):
    template = ChatTemplate("{%- set c = messages[0].content -%}{{ " + expression + " }}")

    @given(OUTSIDE)
    def check(content):
        try:
            parts = template.render([{"role": "user", "content": content}])
        except TemplateError:
            return
        for part in parts:
            if part.trusted:
                assert not set(part.text) & OUTSIDE_LETTERS, parts
        if kept is not None:
            assert any(INSIDE in p.text for p in parts if p.trusted) == kept, parts

    check()


@pytest.mark.parametrize(
    "source",
    [
        "{% set x %}<A B>{{ c }}{% endset %}{{ x }}",
        "{% macro m(a) %}<A B>{{ a }}{% endmacro %}{{ m(c) }}",
        "{% macro m() %}{{ caller() }}<A B>{% endmacro %}{% call m() %}{{ c }}{% endcall %}",
        "{% filter trim %} <A B>{{ c }} {% endfilter %}",
        "{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t + '<A B>' + c %}{% endfor %}{{ ns.t }}",
        "{% generation %}<A B>{{ c }}{% endgeneration %}",
        "{% for k, v in {'<A B>': c}.items() %}{{ k }}{{ v }}{% endfor %}",
        "{% for x in [c] recursive %}<A B>{{ x }}{% endfor %}",
        "{{ '<A B>' if c else '<A B>' }}{{ c }}",
        "{% block b %}<A B>{% endblock %}{{ self.b() }}",
    ],
)
def test_template_statements(source):
    parts = ChatTemplate("{% set c = messages[0].content %}" + source).render([{"content": "user text"}])
    assert any(INSIDE in p.text for p in parts if p.trusted)
    assert not any(set("user text") & (set(p.text) - {" "}) for p in parts if p.trusted)
