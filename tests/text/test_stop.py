"""Stop strings in streams against a search of the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text import StopMatcher

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def naive(stops, text):
    """(text before the match, match): the match that ends first, the longest of those."""
    ends = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    if not ends:
        return text, None
    end, length, stop = min(ends)
    return text[: end + length], stop


@given(STOPS, st.lists(st.text("abc", max_size=5)))
def test_same_as_a_search_of_the_whole(stops, parts):
    matcher = StopMatcher(stops)
    out = "".join(map(matcher.feed, parts))
    if matcher.matched is None:
        out += matcher.flush()
    assert (out, matcher.matched) == naive(stops, "".join(parts))


@given(STOPS, st.text("abc", max_size=30))
def test_exactly_the_longest_possible_start_is_held(stops, text):
    matcher = StopMatcher(stops)
    sent = ""
    for n, c in enumerate(text, 1):
        sent += matcher.feed(c)
        if matcher.matched is not None:
            return
        seen = text[:n]
        held = max((k for s in stops for k in range(len(s)) if seen.endswith(s[:k])), default=0)
        assert sent == seen[: n - held]


# ---- control tokens: symbols with a text that is not shown -----------------------------------------------------------

PARTS = st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.booleans()), max_size=8)


def search(stops, parts):
    """(text shown before the match, match) by looking at every place between symbols."""
    symbols = []
    for text, control in parts:
        symbols += [(text, True)] if control else [(c, False) for c in text]
    for end in range(1, len(symbols) + 1):
        for begin in range(end):
            found = "".join(text for text, _ in symbols[begin:end])
            if found in stops:
                return "".join(text for text, control in symbols[:begin] if not control), found
    return "".join(text for text, control in symbols if not control), None


@given(st.lists(st.text("ab", min_size=1, max_size=5), max_size=4), PARTS)
def test_control_tokens_are_symbols(stops, parts):
    matcher = StopMatcher(stops)
    out = "".join(matcher.feed_control(text) if control else matcher.feed(text) for text, control in parts)
    out += matcher.flush()
    assert (out, matcher.matched) == search(stops, parts)


def test_a_control_token_is_not_shown_and_may_be_a_part_of_a_stop():
    matcher = StopMatcher(["\n<|im_start|>user", "im_start"])
    assert matcher.feed("a\n") == "a"
    assert matcher.feed_control("<|im_start|>") == ""
    assert matcher.feed("use") == ""
    assert matcher.feed("d") == "\nused"             # the token itself never comes out
    assert matcher.feed("b\n") + matcher.feed_control("<|im_start|>") + matcher.feed("user") == "b"
    assert matcher.matched == "\n<|im_start|>user"


def test_nothing_is_held_for_a_match_inside_of_a_control_token():
    matcher = StopMatcher(["|>abc"])
    assert matcher.feed_control("<|end|>") == ""
    assert matcher.feed("ab") == "ab"
    assert matcher.feed("c") == "c" and matcher.matched is None


def test_flush_gives_the_tail():
    matcher = StopMatcher(["</s>"])
    assert matcher.feed("ab</") == "ab"
    assert matcher.flush() == "</"
    assert matcher.feed("s>") == "s>"


def test_nothing_after_a_match():
    matcher = StopMatcher(["END"])
    assert matcher.feed("xENDy") == "x"
    assert (matcher.feed("z"), matcher.flush(), matcher.matched) == ("", "", "END")


def test_without_stops_everything_passes():
    matcher = StopMatcher([])
    assert matcher.feed("abc") == "abc"
    assert matcher.flush() == ""


@pytest.mark.parametrize("stops", [[""], ["a", ""], [5], [None]])
def test_bad_stops(stops):
    with pytest.raises(ValueError, match="stop"):
        StopMatcher(stops)


def test_long_stop_and_long_text():
    stop = "a" * 5000 + "b"
    matcher = StopMatcher([stop])
    out = "".join(matcher.feed("a" * 100) for _ in range(2000))
    assert matcher.feed("b") == "" and matcher.matched == stop
    assert len(out) == 200000 - 5000
