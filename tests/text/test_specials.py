"""The partition at added tokens against its definition and against the tokenizers package."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Package

from pantheon.text.specials import WHITE_SPACE, Special, SpecialPartition

CONTROL, USER = True, False


def partition(specials):
    return SpecialPartition([Special(i, text, control) for i, (text, control) in enumerate(specials)], "the file")


def pieces(p, text, trusted):
    """(text, id or None) of every piece."""
    return [(text[start:end], i) for start, end, i in p.split(text, trusted)]


def naive(specials, text, trusted):
    """At every place from the left the longest token that is there. A control token's text from outside stays."""
    items, at, plain = [], 0, ""
    while at < len(text):
        there = [(len(s), -i) for i, (s, _) in enumerate(specials) if s and text.startswith(s, at)]
        length, i = max(there, default=(1, None))
        if i is None or (specials[-i][1] and not trusted):
            plain += text[at : at + length]
        else:
            if plain:
                items.append((plain, None))
            items.append((text[at : at + length], -i))
            plain = ""
        at += length
    return [*items, (plain, None)] if plain else items


@given(
    st.lists(st.tuples(st.text("ab<é", max_size=5), st.booleans()), min_size=1, max_size=8, unique_by=lambda t: t[0]),
    st.text("ab<é", max_size=40),
    st.booleans(),
)
def test_same_as_the_definition(specials, text, trusted):
    assert pieces(partition(specials), text, trusted) == naive(specials, text, trusted)


FLAGS = st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip", "single_word")})


@given(
    st.lists(st.tuples(st.text("ab <\u3000", min_size=1, max_size=4), st.booleans(), FLAGS), min_size=1, max_size=6,
             unique_by=lambda t: t[0]),
    st.text("abc <\u3000\x1f_", max_size=30),
    st.booleans(),
)  # fmt: skip
def test_same_ids_as_the_package(specials, text, trusted):
    """With every flag, and where the package takes the text of special tokens for ordinary text too."""
    characters = sorted(set("abc <\u3000\x1f_"))
    # ids from 0 on: the package numbers what is added from the size of the vocabulary on, taken or not
    package = Package(models.BPE({c: i for i, c in enumerate(characters)}, []))
    ours = []
    for text_of, control, flags in specials:
        package.add_tokens([AddedToken(text_of, special=control, normalized=False, **flags)])
        ours.append(Special(package.token_to_id(text_of), text_of, control, **flags))
    package.encode_special_tokens = not trusted
    found = []
    for start, end, i in SpecialPartition(ours, "the file").split(text, trusted):
        found += [characters.index(c) for c in text[start:end]] if i is None else [i]
    assert found == package.encode(text).ids


def test_leftmost_then_longest():
    p = partition([("ab", CONTROL), ("bcd", CONTROL), ("abc", CONTROL)])
    assert pieces(p, "abd", True) == [("ab", 0), ("d", None)]
    assert pieces(p, "abcd", True) == [("abc", 2), ("d", None)]
    assert pieces(partition([("ab", USER), ("bcd", CONTROL)]), "abcd", True) == [("ab", 0), ("cd", None)]


def test_plain_text_matches_other_than_control_tokens_only():
    p = partition([("<c>", CONTROL), ("<u>", USER), ("<k>", CONTROL)])
    assert pieces(p, "<c><u><k>", False) == [("<c>", None), ("<u>", 1), ("<k>", None)]
    assert [i for _, i in pieces(p, "<c><u><k>", True)] == [0, 1, 2]


@pytest.mark.parametrize(("text", "trusted", "expected"), [
    ("<c>x<c>", b"\1\1\1\0\0\0\0", [("<c>", 0), ("x<c>", None)]),
    ("<c>x", b"\1\1\1\0", [("<c>", 0), ("x", None)]),         # "<c>x" would be the longest, but crosses the border
    ("<c>x", b"\1\1\1\1", [("<c>x", 1)]),
    ("<c>", b"\0\1\1", [("<", 2), ("c>", None)]),             # nor does text from outside begin a control token
    ("a<c>", b"\0\1\1\1", [("a", None), ("<c>", 0)]),
    ("<<c>", b"\0\1\1\1", [("<", 2), ("<c>", 0)]),
    ("<c><c>", b"\0\0\0\1\1\1", [("<c>", None), ("<c>", 0)]),
    ("[u]", b"\0\1\0", [("[u]", 3)]),                         # other tokens need no trust
])  # fmt: skip
def test_control_tokens_stand_in_one_run_of_trusted_text(text, trusted, expected):
    p = partition([("<c>", CONTROL), ("<c>x", CONTROL), ("<", USER), ("[u]", USER)])
    assert pieces(p, text, trusted) == expected


@given(st.lists(st.tuples(st.text("ab<", max_size=6), st.booleans()), max_size=8))
def test_text_from_outside_neither_makes_nor_hides_a_control_token(parts):
    p = partition([("ab", CONTROL), ("b", CONTROL), ("<a", CONTROL), ("a<", CONTROL), ("aab<", CONTROL)])
    text = "".join(part for part, _ in parts)
    mask = b"".join(bytes((trusted,)) * len(part) for part, trusted in parts)
    found = {(start, end) for start, end, i in p.split(text, mask) if i is not None}
    expected = set()
    for run in re.finditer(rb"\x01+", mask):
        expected |= {(run.start() + start, run.start() + end)
                     for start, end, i in p.split(text[slice(*run.span())], True) if i is not None}  # fmt: skip
    assert found == expected


def test_white_space_is_unicode_s():
    p = SpecialPartition([Special(0, "<u>", False, rstrip=True), Special(1, "<v>", False, lstrip=True)], "the file")
    for c in map(chr, [*range(0x3001), 0xFEFF]):
        blank = c in WHITE_SPACE
        assert blank == (c.isspace() and not "\x1c" <= c <= "\x1f")
        assert p.split(f"<u>{c}a", False)[0] == (0, 4 if blank else 3, 0)
        assert p.split(f"a{c}<v>", False)[-1] == (1 if blank else 2, 5, 1)


@pytest.mark.parametrize("around", ["s", "1", "_", "é", "\u0301", "\u200d", "\u24b6", "日"])
def test_a_single_word_is_none_within_a_word(around):
    p = SpecialPartition([Special(0, "cat", False, single_word=True)], "the file")
    assert p.split(f"cat{around}", False) == [(0, 4, None)] and p.split(f"{around}cat", False) == [(0, 4, None)]
    assert p.split("cat", False) == [(0, 3, 0)] and p.split(" cat.", False)[1] == (1, 4, 0)


class Counted:
    """A pattern that counts what is asked of it."""

    def __init__(self, pattern):
        self._pattern, self.asked = pattern, 0

    def search(self, *args):
        self.asked += 1
        return self._pattern.search(*args)

    def match(self, *args):
        self.asked += 1
        return self._pattern.match(*args)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("trusted", [False, True, b"\0", b"\1", b"\0\1" * 50, b"\1" * 50 + b"\0" * 50])
def test_candidates_visited_in_a_long_run(control, trusted):
    """100,000 blanks, of which runs of 2 to 31 are tokens (Phi-2's): one look at a token, a few at each border."""
    p = partition([(" " * n, control) for n in range(31, 1, -1)])
    n = 100_000
    mask = trusted if isinstance(trusted, bool) else (trusted * n)[:n]
    p._any = Counted(p._any)
    p._plain = p._plain and Counted(p._plain)
    assert "".join(text for text, _ in pieces(p, " " * n, mask)) == " " * n
    borders = 0 if isinstance(mask, bool) else len(re.findall(b"(?=\0\1|\1\0)", mask))
    assert p._any.asked <= n / 31 + 2 + 4 * borders


@pytest.mark.parametrize("unit", ["\n", "<", "<a", "<|x|>"])
@pytest.mark.parametrize("trusted", [True, False])
def test_long_overlapping_runs(unit, trusted):
    specials = [("\n" * n, USER) for n in range(1, 32)] + [("<" * n, CONTROL) for n in range(1, 20)] + [("<|x|>", True)]
    text = (unit * 131072)[:131072]
    assert "".join(t for t, _ in pieces(partition(specials), text, trusted)) == text


def test_white_space_taken_again_and_again():
    """Every token takes the rest of the run; it is looked at once."""
    p = SpecialPartition([Special(0, " ", False, rstrip=True)], "the file")
    assert len(p.split(" " * 50_000, False)) == 50_000
    p = SpecialPartition([Special(0, " ", False, rstrip=True, lstrip=True)], "the file")
    assert p.split(" " * 50_000, False) == [(0, 50_000, 0)]


def test_very_long_special_tokens():
    special = "<" + "x" * 500 + ">"
    p = partition([(special, CONTROL), ("<x", USER)])
    assert pieces(p, special + "<xy", True) == [(special, 0), ("<x", 1), ("y", None)]
    p = partition([("y" * 10**6, CONTROL), ("<x", USER)])
    assert pieces(p, "<x" + "y" * 10**6, True) == [("<x", 1), ("y" * 10**6, None)]


def test_hostile_specials_are_an_error():
    with pytest.raises(ValueError, match="the file"):
        partition([(f"{i:0500}", CONTROL) for i in range(1000)])
    with pytest.raises(ValueError, match="the file"):
        partition([("a" * n, CONTROL) for n in range(1, 512)])


def test_thousands_of_specials():
    specials = [(f"<unused{i}>", CONTROL) for i in range(6000)]
    text = "<unused42>x<unused5999><unused6000>"
    assert [i for _, i in pieces(partition(specials), text, True)] == [42, None, 5999, None]
