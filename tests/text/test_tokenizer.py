"""What both kinds of tokenizer have in common."""

import json

import pytest
from tokenizers import Tokenizer as Trained

from pantheon.text import Tokenizer
from pantheon.text.hf import HF_JSON_KEY, load_gguf_tokenizer


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_control_tokens_are_parsed_on_request_only(request, kind):
    tokenizer = request.getfixturevalue(kind)
    inst = tokenizer.token_texts.index(b"[INST]")
    assert tokenizer.encode("a[INST]", add_bos=False, parse_special=True)[-1] == inst
    assert not any(map(tokenizer.is_special, tokenizer.encode("a[INST]", add_bos=False)))


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_plain_text_of_any_token_is_no_control_token(request, kind):
    tokenizer = request.getfixturevalue(kind)
    for text in tokenizer.token_texts:
        assert not any(map(tokenizer.is_special, tokenizer.encode(text.decode(), add_bos=False)))


def test_user_defined_tokens_are_found_in_any_text(bpe):
    call = bpe.token_texts.index(b"<tool_call>")
    assert bpe.encode("<tool_call>") == [call]
    assert not bpe.is_special(call)
    assert bpe.decode([call]) == "<tool_call>"


def test_bos_and_eos(bpe_metadata, n_vocab, bpe):
    assert bpe.encode("a", add_bos=True) == [bpe.bos_id, *bpe.encode("a")]
    both = {**bpe_metadata, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    tokenizer = Tokenizer(both, n_vocab)
    assert tokenizer.encode("a") == [bpe.bos_id, *bpe.encode("a"), bpe.eos_id]
    assert tokenizer.encode("a", add_bos=False) == bpe.encode("a")
    assert tokenizer.encode("a", add_bos=True) == [bpe.bos_id, *bpe.encode("a")]


def test_the_file_overrides_the_default_of_its_kind(bpe_metadata, n_vocab, spm_metadata):
    without = {k: v for k, v in bpe_metadata.items() if k != "tokenizer.ggml.add_bos_token"}
    assert not Tokenizer(without, n_vocab).add_bos
    assert Tokenizer({**without, "tokenizer.ggml.pre": "llama-bpe"}, n_vocab).add_bos
    no_bos = {**spm_metadata, "tokenizer.ggml.add_bos_token": False}
    assert Tokenizer(no_bos, 1000).encode("") == []


def test_no_bos_in_the_vocabulary(bpe_metadata, n_vocab):
    metadata = {k: v for k, v in bpe_metadata.items() if "bos" not in k}
    tokenizer = Tokenizer({**metadata, "tokenizer.ggml.add_bos_token": True}, n_vocab)
    assert (tokenizer.bos_id, tokenizer.add_bos) == (None, False)
    with pytest.raises(ValueError, match="BOS"):
        tokenizer.encode("a", add_bos=True)


def test_phi3_specials_swallow_white_space(bpe_metadata, n_vocab):
    tokenizer = Tokenizer({**bpe_metadata, "general.name": "Phi-3-mini"}, n_vocab)
    user, end, bos = (tokenizer.token_texts.index(t) for t in (b"<|user|>", b"<|end|>", b"<s>"))
    hi, spaced = tokenizer.encode("hi"), tokenizer.encode(" hi")
    assert tokenizer.encode("<|user|>\n hi<|end|>\n", parse_special=True) == [user, *hi, end]
    assert tokenizer.encode("<s> hi", parse_special=True) == [bos, *spaced]


def test_unused_tokens_have_no_text(bpe_metadata):
    tokens = [*bpe_metadata["tokenizer.ggml.tokens"], b"[PAD0]"]
    types = [*bpe_metadata["tokenizer.ggml.token_type"], 5]
    metadata = {**bpe_metadata, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    tokenizer = Tokenizer(metadata, len(tokens))
    assert tokenizer.piece(len(tokens) - 1) == b""
    assert len(tokens) - 1 not in tokenizer.encode("[PAD0]")


@pytest.mark.parametrize("text", [None, b"bytes", 5])
def test_only_text_is_encoded(bpe, text):
    with pytest.raises(TypeError, match="text"):
        bpe.encode(text)


def test_a_whole_tokenizer_json_in_a_gguf_file_is_used(bpe_metadata, trained_bpe, n_vocab):
    """Its added tokens and their flags; the other keys name the special ids."""
    data = json.loads(trained_bpe.to_str())
    n = len(data["model"]["vocab"])
    data["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "normalized": False}
    data["added_tokens"] = [{"id": n, "content": "<u>", "special": False, "rstrip": True, **flags},
                            {"id": n + 1, "content": "<end>", "special": True, "rstrip": False, **flags}]  # fmt: skip
    metadata = {**bpe_metadata, HF_JSON_KEY: json.dumps(data), "tokenizer.ggml.eos_token_id": n + 1}
    tokenizer = load_gguf_tokenizer(metadata, n_vocab)
    expected = Trained.from_str(json.dumps(data))
    text = "hello <u>  hello<end>"
    assert tokenizer.encode(text, add_bos=False, parse_special=True) == expected.encode(text).ids
    assert n + 1 not in tokenizer.encode(text) and tokenizer.eog_ids == {n + 1} and tokenizer.eos_id == n + 1
    assert load_gguf_tokenizer(bpe_metadata, n_vocab).encode(text) == Tokenizer(bpe_metadata, n_vocab).encode(text)


@pytest.mark.parametrize("value", [5, "", "[]", "{", '{"model": 1}', b"\xff"])
def test_a_wrong_tokenizer_json_in_a_gguf_file_is_named(bpe_metadata, n_vocab, value):
    with pytest.raises(ValueError, match=HF_JSON_KEY):
        load_gguf_tokenizer({**bpe_metadata, HF_JSON_KEY: value}, n_vocab)


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_tokens_beyond_the_logits_are_ordinary_text(request, kind):
    """In GGUF as in folders: an added [PAD] at n_vocab, and tokens that merges would make."""
    metadata = dict(request.getfixturevalue(f"{kind}_metadata"))
    n = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], b"[PAD]"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 3]
    if kind == "spm":
        metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], 0.0]
    for width in (n, 400, 380):
        tokenizer = Tokenizer(metadata, width)
        for parse in (True, False):
            ids = tokenizer.encode("hello world [PAD]", parse_special=parse)
            assert max(ids) < width == tokenizer.n_tokens
        # The piece of a lone blank is among those that 380 logits leave out: its mark is spelt in bytes then.
        blank = "\u2581" if kind == "spm" and width == 380 else " "
        assert tokenizer.decode(ids) == f"hello world{blank}[PAD]"
