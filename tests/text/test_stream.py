"""Incremental decoding against decoding at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text import DetokenizeStream
from pantheon.text.stream import Utf8Stream


@given(st.lists(st.binary(max_size=4)))
def test_pieces_joined_are_the_whole(chunks):
    stream = Utf8Stream()
    out = ""
    for chunk in chunks:
        out += stream.feed(chunk)
        assert stream.pending <= 3
    assert out + stream.flush() == b"".join(chunks).decode("utf-8", "replace")


@given(st.text())
def test_byte_by_byte_only_whole_characters_come_out(text):
    stream = Utf8Stream()
    parts = [stream.feed(bytes([b])) for b in text.encode("utf-8", "replace")]
    assert [p for p in parts if p] == list(text.encode("utf-8", "replace").decode())
    assert stream.flush() == ""


def test_an_unfinished_character_is_replaced_once():
    stream = Utf8Stream()
    assert stream.feed("😀".encode()[:3]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.feed(b"a") == "a"


def test_what_cannot_become_a_character_is_not_held():
    stream = Utf8Stream()
    assert stream.feed(b"\xff") == "\ufffd"
    assert stream.feed(b"\xe4\xb8") == ""
    assert stream.feed(b"x") == "\ufffdx"


@pytest.mark.parametrize("skip_special", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_any_tokens_stream_like_decode(request, kind, skip_special):
    tokenizer = request.getfixturevalue(kind)

    @given(st.lists(st.integers(0, tokenizer.n_vocab - 1)))
    def check(ids):
        stream = DetokenizeStream(tokenizer, skip_special, continues=False)
        assert "".join(map(stream.step, ids)) + stream.flush() == tokenizer.decode(ids, skip_special)

    check()


def test_a_continuation_keeps_its_leading_space(spm):
    ids = spm.encode("hello", add_bos=False)
    stream = DetokenizeStream(spm)
    assert "".join(map(stream.step, ids)) + stream.flush() == " hello"
    assert spm.decode(ids) == "hello"


def test_special_tokens_are_text_only_on_request(bpe):
    end = bpe.eos_id
    assert DetokenizeStream(bpe).step(end) == ""
    assert DetokenizeStream(bpe, skip_special=False).step(end) == "<|im_end|>"
    assert bpe.piece(end) == b"<|im_end|>"


@pytest.mark.parametrize("offset", [-1, 0, 10**12])
def test_ids_out_of_range(bpe, offset):
    token = bpe.n_vocab + offset if offset >= 0 else -1
    for call in (bpe.piece, DetokenizeStream(bpe).step, lambda t: bpe.decode([t])):
        with pytest.raises(ValueError, match="token id"):
            call(token)
    assert bpe.piece(bpe.n_vocab - 1) == b""
