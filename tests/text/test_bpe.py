"""Byte-level BPE against the package that trained it, and against hostile vocabularies."""

import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text import Tokenizer
from pantheon.text.pretokenizers import TABLE

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


def test_same_ids_as_the_trained_tokenizer(bpe, trained_bpe):
    @given(TEXTS.filter(lambda s: "tool_call>" not in s))
    def check(text):
        assert bpe.encode(text) == trained_bpe.encode(text).ids

    check()


def test_round_trip(bpe):
    @given(TEXTS)
    def check(text):
        assert bpe.decode(bpe.encode(text)) == text

    check()


@pytest.mark.parametrize(
    "pre", ["llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-v3", "tekken", "gpt-4o", "bloom"]
)
def test_round_trip_with_every_kind_of_splitting(bpe_metadata, n_vocab, pre):
    tokenizer = Tokenizer({**bpe_metadata, "tokenizer.ggml.pre": pre}, n_vocab)
    text = "It's 12345 ÄÖÜ camelCase\r\n\n\t  日本語 e\u0301 😀 <|im_end|> f(x); "
    expected = unicodedata.normalize("NFC", text) if TABLE[pre].nfc else text
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == expected


@pytest.mark.parametrize(("pre", "composed"), [("qwen2", True), ("qwen35", True), ("command-r", True),
                                               ("deepseek-r1-qwen", False), ("llama-bpe", False)])  # fmt: skip
def test_text_is_composed_where_the_reference_does(bpe_metadata, n_vocab, pre, composed):
    tokenizer = Tokenizer({**bpe_metadata, "tokenizer.ggml.pre": pre}, n_vocab)
    same = tokenizer.encode("Cafe\u0301", add_bos=False) == tokenizer.encode("Caf\xe9", add_bos=False)
    assert same == composed
    call = "<tool_call>"  # is found in the text as it is
    ids = tokenizer.encode(f"e\u0301{call}\u0301", add_bos=False)
    assert tokenizer.token_texts.index(call.encode()) in ids


@pytest.mark.parametrize("unit", ["a", " ", "1", "\n", "😀", "\u0301", "A", "<|", "\r\n "])
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "deepseek-llm", "tekken", "superbpe", "afmoe", "exaone-moe"])
def test_a_long_run_of_one_kind(bpe_metadata, n_vocab, pre, unit):
    tokenizer = Tokenizer({**bpe_metadata, "tokenizer.ggml.pre": pre}, n_vocab)
    text = (unit * 131072)[:131072] + "x"
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text


def test_lone_surrogates_become_replacement_characters(bpe):
    assert bpe.decode(bpe.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"


def test_bad_merges_are_dropped(bpe_metadata, n_vocab, caplog):
    bad = [b"", b" ", b"nospace", b"zz qq", b"a zz", b"\xff\xfe a", b"\xe2\x98\x83 a", b"a b c"]
    metadata = {**bpe_metadata, "tokenizer.ggml.merges": [*bad, *bpe_metadata["tokenizer.ggml.merges"]]}
    with caplog.at_level(logging.WARNING, "pantheon"):
        tokenizer = Tokenizer(metadata, n_vocab)
    assert f"{len(bad)} of " in caplog.text
    text = "The quick brown fox"
    assert tokenizer.encode(text) == Tokenizer(bpe_metadata, n_vocab).encode(text)


def test_merges_never_make_a_control_token(bpe_metadata, n_vocab):
    tokens = list(bpe_metadata["tokenizer.ggml.tokens"])
    types = list(bpe_metadata["tokenizer.ggml.token_type"])
    tokens += [b"qz", b"Q"]
    types += [3, 3]
    metadata = {
        **bpe_metadata,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [b"q z", *bpe_metadata["tokenizer.ggml.merges"]],
        "tokenizer.ggml.pre": "llama-bpe",  # takes whole pieces that are tokens without merging
    }
    tokenizer = Tokenizer(metadata, n_vocab)
    assert not any(map(tokenizer.is_special, tokenizer.encode("qz Q qz", add_bos=False)))
    assert tokenizer.encode("qz", add_bos=False, parse_special=True) == [tokens.index(b"qz")]


def test_missing_symbols_are_dropped():
    tokens = [b"a", b"b", b"ab"]
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens}
    tokenizer = Tokenizer({**metadata, "tokenizer.ggml.merges": [b"a b"]}, 3)
    assert tokenizer.encode("abxa") == [2, 0]


def test_duplicate_empty_and_broken_texts(bpe_metadata):
    tokens = bpe_metadata["tokenizer.ggml.tokens"]
    extra = [b"", b"", tokens[5], b"\xff\xfe", b"\xf0\x9f"]
    metadata = {
        **bpe_metadata,
        "tokenizer.ggml.tokens": [*tokens, *extra],
        "tokenizer.ggml.token_type": [*bpe_metadata["tokenizer.ggml.token_type"], 3, 1, 1, 1, 4],
    }
    n = len(tokens) + len(extra)
    tokenizer = Tokenizer(metadata, n)
    assert tokenizer.encode("The quick") == Tokenizer(bpe_metadata, n).encode("The quick")
    assert tokenizer.piece(n - 5) == b"" and tokenizer.piece(n - 2) == b"\xff\xfe"
    assert tokenizer.decode([n - 2, n - 1]) == "\ufffd\ufffd\ufffd"


def test_no_merges_is_an_error(bpe_metadata, n_vocab):
    metadata = {k: v for k, v in bpe_metadata.items() if not k.endswith("merges")}
    with pytest.raises(ValueError, match="tokenizer.ggml.merges"):
        Tokenizer(metadata, n_vocab)


# ---- characters in place of bytes (Gemma 4) --------------------------------------------------------------------------

def character_metadata(**keys):
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    plain = ["\u2581", "a", "b", "\n", "ab", "\u2581ab", "\n\n", "<turn>", "<call>"]
    tokens = [*byte_tokens, *plain]
    types = [6] * 256 + [1] * 7 + [3, 4]
    merges = ["a b", "\u2581 ab"]
    return tokens, {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": [t.encode() for t in tokens],
                    "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": [m.encode() for m in merges],
                    **{"tokenizer.ggml." + key: value for key, value in keys.items()}}  # fmt: skip


@pytest.mark.parametrize("keys", [{}, {"pre": "anything"}, {"model": "gpt2", "pre": "gemma4"}])
def test_vocabularies_of_characters(keys):
    tokens, metadata = character_metadata(**keys)
    tokenizer = Tokenizer(metadata, len(tokens))
    texts = lambda text: [tokens[i] for i in tokenizer.encode(text)]  # noqa: E731
    assert texts(" ab") == ["\u2581ab"] and texts("ab ab") == ["ab", "\u2581ab"]
    assert texts("a\n\nb\n\n\n") == ["a", "\n\n", "b", "\n", "\n", "\n"]  # a run is a token or is spelt
    assert texts("é<call><turn>")[:3] == ["<0xC3>", "<0xA9>", "<call>"]
    assert not any(map(tokenizer.is_special, tokenizer.encode("<turn>")))
    for text in ("  ab\n é\n\n日<call>", " ", "\n", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_another_of_them_merges_line_ends():
    tokens, metadata = character_metadata(model="gpt2", pre="sarvam-moe")
    assert [tokens[i] for i in Tokenizer(metadata, len(tokens)).encode("\n\n")] == ["\n", "\n"]
