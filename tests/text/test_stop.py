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
