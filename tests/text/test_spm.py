"""SentencePiece BPE against the package itself and against the definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pantheon.text import Tokenizer

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\u2581\0"), max_size=100)


def naive(tokenizer, text):
    """The definition: join the adjacent pair with the best score, leftmost of equal ones, until none is a token."""
    vocab = tokenizer.vocab
    ids = {t.decode(): i for i, (t, k) in enumerate(zip(vocab.texts, vocab.types, strict=True)) if k == 1}
    byte_ids = {t: i for i, (t, k) in enumerate(zip(vocab.texts, vocab.types, strict=True)) if k == 6}
    symbols = list((" " + text).replace(" ", "\u2581")) if text else []
    while True:
        pairs = [
            (vocab.scores[ids[a + b]], -n)
            for n, (a, b) in enumerate(zip(symbols, symbols[1:], strict=False))
            if a + b in ids
        ]
        if not pairs:
            break
        n = -max(pairs)[1]
        symbols[n : n + 2] = [symbols[n] + symbols[n + 1]]
    out = []
    for s in symbols:
        out += [ids[s]] if s in ids else [byte_ids[b"<0x%02X>" % b] for b in s.encode()]
    return out


def test_same_ids_as_sentencepiece(spm, trained_spm):
    @given(TEXTS.filter(lambda s: "<tool>" not in s))
    def check(text):
        assert spm.encode(text, add_bos=False) == trained_spm.encode(text)

    check()


def test_same_ids_as_the_definition(spm):
    @given(st.text("aelo the quickf日x😀\n1", max_size=40))
    def check(text):
        assert spm.encode(text, add_bos=False) == naive(spm, text)

    check()


def test_round_trip(spm):
    @given(TEXTS)
    def check(text):
        assert spm.decode(spm.encode(text)) == text

    check()


def test_bos_by_default_and_for_the_empty_text(spm):
    assert spm.encode("") == [1]
    assert spm.encode("", add_bos=False) == []
    assert spm.encode("hello")[0] == 1


def test_a_space_is_added_after_every_special_token(spm):
    inst = spm.token_texts.index(b"[INST]")
    hello = spm.encode("hello", add_bos=False)
    spaced = spm.encode(" hello", add_bos=False)
    assert spm.encode("hello[INST]hello", add_bos=False, parse_special=True) == [*hello, inst, *hello]
    assert spm.encode("[INST] hello", add_bos=False, parse_special=True) == [inst, *spaced]
    assert spaced != hello
    assert spm.encode("hello<tool>hello", add_bos=False)[len(hello) + 1 :] == hello


def test_no_space_prefix(spm_metadata):
    n = len(spm_metadata["tokenizer.ggml.tokens"])
    tokenizer = Tokenizer({**spm_metadata, "tokenizer.ggml.add_space_prefix": False}, n)
    ids = tokenizer.encode("hello", add_bos=False)
    assert b"".join(map(tokenizer.piece, ids)) == b"hello"
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


@pytest.mark.parametrize("unit", ["a", " ", "1", "\n", "😀", "the quick ", "<0x41>"])
def test_a_long_run_of_one_kind(spm, unit):
    text = (unit * 131072)[:131072] + "x"
    assert spm.decode(spm.encode(text)) == text


def _replaced(metadata, **values):
    return {**metadata, **{"tokenizer.ggml." + k: v for k, v in values.items()}}


def test_without_byte_tokens_an_unknown_character_is_the_unknown_token(spm_metadata):
    types = [5 if t == 6 else t for t in spm_metadata["tokenizer.ggml.token_type"]]
    tokenizer = Tokenizer(_replaced(spm_metadata, token_type=types), len(types))
    assert tokenizer.encode("hello\u4e01", add_bos=False)[-1] == 0
    types = [6 if i == 20 else t for i, t in enumerate(types)]  # one byte token of 256 is as good as none
    tokenizer = Tokenizer(_replaced(spm_metadata, token_type=types), len(types))
    assert tokenizer.encode("hello\u4e01", add_bos=False)[-1] == 0


def test_an_unknown_token_that_is_a_control_token_is_never_written(spm_metadata):
    """Else text from outside would begin a sequence anew."""
    types = [5 if t == 6 else t for t in spm_metadata["tokenizer.ggml.token_type"]]
    tokenizer = Tokenizer(_replaced(spm_metadata, token_type=types, unknown_token_id=1), len(types))
    ids = tokenizer.encode("hello\u4e01 hello", add_bos=False)
    assert ids and 1 not in ids


@pytest.mark.parametrize("unknown", ([], [0, 50, 51, 52], [400, 401]))
def test_any_number_of_unknown_tokens(spm_metadata, unknown):
    types = list(spm_metadata["tokenizer.ggml.token_type"])
    types[0] = 1
    for i in unknown:
        types[i] = 2
    tokenizer = Tokenizer(_replaced(spm_metadata, token_type=types), len(types))
    assert not set(tokenizer.encode("hello world")[1:]) & set(unknown)


def test_hostile_pieces(spm_metadata):
    tokens = list(spm_metadata["tokenizer.ggml.tokens"])
    types = list(spm_metadata["tokenizer.ggml.token_type"])
    extra = [
        (b"", 1),
        (b"", 1),
        (tokens[300], 1),
        (b"\xff", 1),
        (b"a\0b", 1),
        (b"<0x-1>", 6),
        (b"<0x041>", 6),
        (b"<0x41>", 6),
    ]
    tokens += [t for t, _ in extra]
    types += [k for _, k in extra]
    scores = [*spm_metadata["tokenizer.ggml.scores"], *[-5.0] * len(extra)]
    tokenizer = Tokenizer(_replaced(spm_metadata, tokens=tokens, token_type=types, scores=scores), len(tokens))
    plain = Tokenizer(spm_metadata, len(tokens))
    assert tokenizer.encode("The quick \xff日") == plain.encode("The quick \xff日")
    assert tokenizer.decode([len(tokens) - 3]) == "<0x-1>"


@pytest.mark.parametrize("scores", [None, [0.0], "x", [float("nan")] * 10000])
def test_bad_scores(spm_metadata, scores):
    if isinstance(scores, list) and len(scores) == 10000:
        scores = scores[: len(spm_metadata["tokenizer.ggml.tokens"])]
    with pytest.raises(ValueError, match="tokenizer.ggml.scores"):
        Tokenizer(_replaced(spm_metadata, scores=scores), 10000)
