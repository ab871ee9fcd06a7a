"""The partition at special tokens against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text.specials import SpecialPartition
from pantheon.text.vocab import Vocab


def partition(specials):
    texts, types = zip(*specials, strict=True)
    metadata = {
        "tokenizer.ggml.model": "none",
        "tokenizer.ggml.tokens": [t.encode() for t in texts],
        "tokenizer.ggml.token_type": list(types),
    }
    return SpecialPartition(Vocab.from_metadata(metadata, len(texts)))


def naive(specials, text, control):
    """For each special, longest first: split every raw fragment at every occurrence, left to right."""
    items = [(text, None)] if text else []
    order = sorted(range(len(specials)), key=lambda i: (-len(specials[i][0].encode()), i))
    seen = set()
    for i in order:
        special, kind = specials[i]
        if special in seen or not special or (kind != 4 and not control):
            continue
        seen.add(special)
        out = []
        for fragment, token in items:
            if token is not None:
                out.append((fragment, token))
                continue
            parts = fragment.split(special)
            for n, part in enumerate(parts):
                if n:
                    out.append((special, i))
                if part:
                    out.append((part, None))
        items = out
    return items


@given(
    st.lists(
        st.tuples(st.text("ab<é", max_size=5), st.sampled_from([2, 3, 4])),
        min_size=1,
        max_size=8,
        unique_by=lambda t: t[0],
    ),
    st.text("ab<é", max_size=40),
    st.booleans(),
)
def test_same_as_the_definition(specials, text, control):
    assert partition(specials).split(text, control) == naive(specials, text, control)


def test_longest_first_not_leftmost_first():
    assert partition([("ab", 3), ("bcd", 3)]).split("abcd", True) == [("a", None), ("bcd", 1)]


def test_plain_text_matches_user_defined_tokens_only():
    p = partition([("<c>", 3), ("<u>", 4), ("<k>", 2)])
    assert p.split("<c><u><k>", False) == [("<c>", None), ("<u>", 1), ("<k>", None)]
    assert [t for _, t in p.split("<c><u><k>", True)] == [0, 1, 2]


def test_each_control_token_is_asked_for():
    p = partition([("<c>", 3), ("<c>x", 3), ("<", 4)])
    text = "<c>x<c>"
    assert p.split(text, lambda start, end: end <= 3) == [("<c>", 0), ("x", None), ("<", 2), ("c>", None)]


@pytest.mark.parametrize("unit", ["\n", "<", "<a", "<|x|>"])
def test_long_overlapping_runs(unit):
    specials = [("\n" * n, 4) for n in range(1, 32)] + [("<" * n, 3) for n in range(1, 20)] + [("<|x|>", 3)]
    text = (unit * 131072)[:131072]
    assert "".join(t for t, _ in partition(specials).split(text, True)) == text


def test_very_long_special_tokens():
    special = "<" + "x" * 500 + ">"
    assert partition([(special, 3), ("<x", 4)]).split(special + "<xy", True) == [(special, 0), ("<x", 1), ("y", None)]
    assert partition([("y" * 10**6, 3), ("<x", 4)]).split("<x" + "y" * 10**6, True) == [("<x", 1), ("y" * 10**6, None)]


def test_hostile_specials_are_an_error():
    with pytest.raises(ValueError, match="tokenizer.ggml.tokens"):
        partition([(f"{i:0500}", 3) for i in range(1000)])
    with pytest.raises(ValueError, match="tokenizer.ggml.tokens"):
        partition([("a" * n, 3) for n in range(1, 512)])


def test_thousands_of_specials():
    specials = [(f"<unused{i}>", 3) for i in range(6000)]
    assert [i for _, i in partition(specials).split("<unused42>x<unused5999><unused6000>", True)] == [
        42,
        None,
        5999,
        None,
    ]
