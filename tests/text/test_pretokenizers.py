"""How each family of pre-tokenizers splits text."""

import logging

import pytest
from tokenizers import Regex, pre_tokenizers

from pantheon.text.pretokenizers import TABLE, find_pretokenizer


def split(pre, text):
    splits = [pre_tokenizers.Split(Regex(r), behavior="isolated") for r in TABLE[pre].regexes]
    return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize("pre", TABLE)
def test_splits_lose_nothing(pre):
    text = "It'S 12345 Ünï e\u0301 日本 かな 한국 😀!? \r\n\n\t x  y ʕ Ⴧ Աա  camelCase a.b `c` |d|,e؟ \u0301"
    assert "".join(split(pre, text)) == text


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("llama-bpe", "Hello WORLD'S 12345", ["Hello", " WORLD", "'S", " ", "123", "45"]),
        ("llama-bpe", "a  b\n\n c", ["a", " ", " b", "\n\n", " c"]),
        ("llama-bpe", "x.y (z)!\n", ["x", ".y", " (", "z", ")!\n"]),
        ("smaug-bpe", "12345", ["123", "45"]),
        ("qwen2", "ab 123", ["ab", " ", "1", "2", "3"]),
        ("qwen2", "e\u0301a", ["e", "\u0301a"]),
        ("qwen35", "e\u0301a 1", ["e\u0301a", " ", "1"]),
        ("gpt-2", "it's 'S  123 ab!", ["it", "'s", " '", "S", " ", " 123", " ab", "!"]),
        ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
        ("starcoder", "x=10", ["x", "=", "1", "0"]),
        ("falcon", "a 12345|b", ["a", " ", "123", "45", "|", "b"]),
        ("default", "a, 1234", ["a", ",", " ", "123", "4"]),
        ("deepseek-llm", "Ab 12\n日本x", ["Ab", " ", "12", "\n", "日本", "x"]),
        ("deepseek-llm", "a   ", ["a", "   "]),
        ("deepseek-llm", "a   b", ["a", "  ", " b"]),
        ("deepseek-llm", " éაé", [" é", "ა", "é"]),
        ("deepseek-llm", "naïve", ["na", "ï", "ve"]),  # the third regex splits the second's matches again
        ("deepseek-coder", "a 12", ["a", " ", "1", "2"]),
        ("deepseek-v3", "ab 1234 .x日本か", ["ab", " ", "123", "4", " .", "x", "日本か"]),
        ("tekken", "camelCase ABCdef 12", ["camel", "Case", " ABCdef", " ", "1", "2"]),
        ("gpt-4o", "camelCase's 1234", ["camel", "Case's", " ", "123", "4"]),
        ("bloom", "a b, c", ["a", " b", ",", " c"]),
        ("viking", "a 12", ["a", " ", "1", "2"]),
        ("seed-coder", "x!\n 12", ["x", "!", "\n", " ", "1", "2"]),
        ("mellum", "it's 12", ["it", "'s", " 12"]),
        ("trillion", "it's 12", ["it", "'s", " 12"]),
        ("kormo", "IT'S 12", ["IT", "'S", " ", "1", "2"]),
        ("superbpe", "a b 12345 1234567", ["a b ", "12", "345", " ", "1", "234", "567"]),
        ("superbpe", "123456 1", ["123", "456", " ", "1"]),
        ("afmoe", "n1234 日本", ["n", "1", "234", " ", "日本"]),
        ("tiny_aya", "1234567x", ["1", "234", "567", "x"]),
        ("kimi-k2", "camelCase日本語's", ["camel", "Case", "日本語", "'s"]),
        ("bailingmoe", "IT'S a\n\n b", ["IT", "'S", " a", "\n\n", " b"]),
        ("exaone-moe", "a big dog!\n\n", ["a big dog", "!\n", "\n"]),
        ("jais-2", "a" + " " * 7 + "b", ["a", "    ", "  ", " b"]),
        ("chameleon", "a    b!!", ["a", "    ", "b", "!", "!"]),
        ("youtu", "日本，ab1", ["日本", "，", "ab", "1"]),
        ("laguna", "a \n\nb", ["a", " ", "\n\n", "b"]),
        ("ufakzeka", "it's", ["it", "'s"]),
        ("minicpm5", "a 1234", ["a", " ", "123", "4"]),
        ("spark2_5", "a!\n\n12", ["a", "!", "\n", "\n", "1", "2"]),
    ],
)
def test_pieces(pre, text, pieces):
    assert split(pre, text) == pieces


def test_flags():
    assert find_pretokenizer("llama-bpe").ignore_merges and find_pretokenizer("llama-bpe").add_bos
    assert find_pretokenizer("tekken").ignore_merges and find_pretokenizer("tekken").add_bos
    assert find_pretokenizer("glm4").ignore_merges and not find_pretokenizer("glm4").add_bos
    assert not find_pretokenizer("dbrx").ignore_merges
    assert not find_pretokenizer("qwen2").add_bos


@pytest.mark.parametrize("pre", [None, "default"])
def test_a_missing_name_is_said_once(pre, caplog, recwarn):
    with caplog.at_level(logging.WARNING, "pantheon"):
        assert find_pretokenizer(pre) == TABLE["default"]
    assert caplog.text.count("tokenizer.ggml.pre is missing") == 1 and not recwarn.list


@pytest.mark.parametrize("pre", ["no-such", "", "Qwen2", "whitespace"])
def test_a_name_without_rules_is_an_error_that_names_it(pre):
    with pytest.raises(ValueError, match=f"tokenizer.ggml.pre '{pre}'"):
        find_pretokenizer(pre)
