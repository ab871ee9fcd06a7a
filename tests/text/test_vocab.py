"""Validation of the tokenizer keys, special ids and the end-of-generation set."""

import numpy as np
import pytest

from pantheon.text import Tokenizer
from pantheon.text.vocab import TokenType, Vocab, byte_value

P = "tokenizer.ggml."


def vocab(texts, types=None, n_vocab=None, model="gpt2", **keys):
    texts = [t.encode() if isinstance(t, str) else t for t in texts]
    metadata = {P + "model": model, P + "tokens": texts, P + "token_type": [3] * len(texts) if types is None else types}
    metadata.update({P + k: v for k, v in keys.items()})
    return Vocab.from_metadata(metadata, n_vocab or len(texts))


def eog_texts(v):
    return {v.texts[i].decode() for i in v.eog_ids}


def test_end_of_generation_is_the_ids_and_the_known_texts():
    v = vocab(
        ["<s>", "</s>", "<|im_end|>", "<|eot_id|>", "[EOT]", "<stop>", "<eom>", "<x>"], eos_token_id=5, eom_token_id=6
    )
    assert eog_texts(v) == {"</s>", "<|im_end|>", "<|eot_id|>", "[EOT]", "<stop>", "<eom>"}


def test_eot_is_found_in_order_of_preference():
    assert vocab(["<|endoftext|>", "<|im_end|>", "x"]).ids["eot"] == 1
    assert vocab(["<|endoftext|>", "<|im_end|>", "x"], eot_token_id=2).ids["eot"] == 2


def test_end_is_no_stop_beside_return_and_call():
    assert "<|end|>" in eog_texts(vocab(["<|end|>", "<|return|>"]))
    assert eog_texts(vocab(["<|end|>", "<|return|>", "<|call|>"])) == {"<|return|>", "<|call|>"}


def test_old_end_is_no_stop_beside_tool_response():
    assert eog_texts(vocab(["</s>", "<|tool_response>", "a"])) == {"<|tool_response>"}


def test_fill_in_the_middle_separators_stop():
    v = vocab(["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"])
    assert eog_texts(v) == {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}
    assert eog_texts(vocab(["<a>", "<b>"], fim_rep_token_id=1)) == {"<b>"}


def test_an_unmarked_end_token_becomes_control():
    assert vocab(["<|im_end|>", "a"], [4, 1]).types[0] == TokenType.CONTROL
    assert vocab(["<|im_end|>", "a"], [1, 1]).types[0] == TokenType.CONTROL
    assert vocab(["a", "b"], [1, 1], eos_token_id=0).types[0] == TokenType.NORMAL


def test_an_end_text_that_merges_make_stays_ordinary():
    v = vocab(["</s>", "</", "s>"], [1, 1, 1], merges=[b"</ s>"])
    assert v.types[0] == TokenType.NORMAL and v.eog_ids == {0}


def test_ids_out_of_range_are_ignored():
    v = vocab(["a", "b"], [1, 1], bos_token_id=2, eos_token_id=2**32 - 1, padding_token_id=1)
    assert v.ids == {"padding": 1}


def test_llama_defaults_only_where_they_fit():
    scores = {"scores": [0.0, 0.0]}
    assert vocab(["a", "b"], [1, 1], model="llama", **scores).ids == {"unknown": 0, "bos": 1}
    assert "bos" not in vocab(["a"] * 20, [1] * 20).ids


def test_numpy_values_are_welcome():
    v = vocab(
        ["a", "</s>"],
        np.array([1, 3], np.int32),
        scores=np.array([0, -1], np.float32),
        eos_token_id=np.uint32(1),
        add_bos_token=np.bool_(True),
        suppress_tokens=np.array([1, 7], np.int32),
    )
    assert (v.ids["eos"], v.scores, v.add_bos, v.suppressed) == (1, [0.0, -1.0], True, {1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", None),
        ("tokens", []),
        ("tokens", 5),
        ("tokens", [b"a", 5]),
        ("token_type", [1]),
        ("token_type", [1, 9]),
        ("token_type", [1, -1]),
        ("token_type", [1, "x" * 5000]),
        ("scores", [1.0]),
        ("scores", [1.0, float("inf")]),
        ("scores", [1.0, None]),
        ("scores", [1.0, "x" * 5000]),
        ("scores", [1.0, 1e300]),
        ("bos_token_id", "1"),
        ("bos_token_id", ["1"] * 5000),
        ("bos_token_id", True),
        ("eos_token_id", 1.5),
        ("add_bos_token", 1),
        ("model", 7),
        ("model", None),
        ("pre", [b"x"]),
        ("merges", [b"a b", 3]),
        ("suppress_tokens", ["x" * 5000]),
    ],
)
def test_wrong_values_are_errors_that_name_the_key(key, value):
    metadata = {P + "model": "gpt2", P + "tokens": [b"a", b"b"], P + "token_type": [1, 1], P + "merges": []}
    metadata[P + key] = value
    with pytest.raises(ValueError, match=P + key) as caught:
        Vocab.from_metadata(metadata, 2)
    assert len(str(caught.value)) < 300


def test_tokens_beyond_the_logits_are_left_out(caplog):
    keys = {"scores": [0.0] * 3, "padding_token_id": 2, "suppress_tokens": [1, 2]}
    v = vocab(["a", "</s>", "[PAD]"], [1, 3, 3], n_vocab=2, **keys)
    assert (v.texts, v.types, v.scores, v.ids) == ([b"a", b"</s>"], [1, 3], [0.0, 0.0], {})
    assert v.suppressed == {1} and "2 logits" in caplog.text


class Wide(list):
    """An array that may be counted, not looked at."""

    def __iter__(self):
        raise AssertionError("it was looked at")


@pytest.mark.parametrize(("key", "n"), [
    ("merges", 8 * 3 + 1), ("tokens", 2 * 3 + 65536 + 1), ("suppress_tokens", 2 * 3 + 65536 + 1),
])  # fmt: skip
def test_arrays_are_bounded_by_what_the_vocabulary_can_use(key, n):
    with pytest.raises(ValueError, match=rf"{P}{key} has {n} entries"):
        vocab(["a", "b", "ab"], [1] * 3, **{key: Wide([b"a b"] * n)})


def test_eight_merges_a_token_are_taken():
    assert len(vocab(["a", "b", "ab"], [1] * 3, merges=[b"a b"] * 24).merges) == 24


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "plamo2", "none", "x" * 1000])
def test_other_models_are_an_error_that_names_them(model):
    with pytest.raises(ValueError, match=model[:64]):
        Tokenizer({P + "model": model, P + "tokens": [b"a"]}, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"<0x00>", 0),
        (b"<0xfF>", 255),
        (b"<0x-1>", None),
        (b"<0x 1>", None),
        (b"<0x1>", None),
        (b"<0x001>", None),
        (b"", None),
    ],
)
def test_byte_tokens_have_exactly_two_hex_digits(text, value):
    assert byte_value(text) == value
