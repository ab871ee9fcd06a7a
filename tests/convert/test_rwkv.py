"""RWKV models as GGUF files: the same tensors, logits and tokens."""

import numpy as np
import pytest
from support import rwkv_models

import pantheon
from pantheon.convert import convert
from pantheon.text.rwkv import WorldTokenizer, escaped, unescaped

WORDS = [b"the", b" the", "日本".encode(), b"\\n", b"\t\t", b"it's", b'say "it\'s"', b"\\'", b"\xff\xfe", b"[PAD1]"]
TOKENS = [bytes([i]) for i in range(256)] + WORDS


def line(i, token):
    try:
        return f"{i} {token.decode()!r} {len(token)}\n"
    except UnicodeDecodeError:
        return f"{i} {token!r} {len(token)}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a recipe's model and a small vocabulary."""

    def made(name):
        recipe = rwkv_models.RECIPES[name]
        for key, value in (("RWKVX_KEEP_TOKENS", recipe.keep_tokens), ("RWKVX_KEEP_RATIO", recipe.keep_ratio)):
            monkeypatch.delenv(key, raising=False)
            if value is not None:
                monkeypatch.setenv(key, str(value))
        path = tmp_path / "m"
        path.mkdir()
        rwkv_models.write(recipe, path / "model.safetensors")
        (path / "rwkv_vocab_v20230424.txt").write_text("".join(line(i, t) for i, t in enumerate(TOKENS, 1)), "utf-8")
        return path

    return made


def logits(path, name, **options):
    recipe = rwkv_models.RECIPES[name]
    with pantheon.load(str(path), **options) as model, model.new_state() as state:
        prompt = model.prefill(rwkv_models.tokens(recipe, 40), state)
        return np.stack([np.array(prompt), *(np.array(model.forward(int(t), state))
                                             for t in rwkv_models.tokens(recipe, 8, 1))])


def divergence(a, b):
    """Mean KL divergence over rows of logits."""
    p, q = (x.astype(np.float64) - x.max(1, keepdims=True) for x in (a, b))
    p, q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (p, q))
    return (np.exp(p) * (p - q)).sum(1).mean()


@pytest.mark.parametrize("name", rwkv_models.RECIPES)
def test_same_logits(folder, tmp_path, name):
    source, out = folder(name), tmp_path / "x.gguf"
    dtype = rwkv_models.RECIPES[name].dtype.lower()
    expected = logits(source / "model.safetensors", name)
    convert(source, out, dtype)
    np.testing.assert_array_equal(logits(out, name), expected)
    convert(source, out, "f32", force=True)
    assert np.abs(logits(out, name) - expected).max() < 1e-3
    convert(source, out, "q8_0", force=True)
    assert divergence(expected, logits(out, name)) < 1e-2


def test_the_vocabulary_comes_along(folder, tmp_path):
    source, out = folder("rwkvx"), tmp_path / "x.gguf"
    convert(source, out)
    world = WorldTokenizer.from_file(source / "rwkv_vocab_v20230424.txt", 300)
    with pantheon.load(str(out)) as model:
        assert model.arch == "rwkvx" and model.container == "gguf" and model.tokenizer.n_tokens == world.n_tokens
        text = "the the\\n 日本\t\tit's 'say \"it's\" \x00\u0080 [PAD1]"
        ids = model.tokenizer.encode(text)
        assert ids == world.encode(text) and model.tokenizer.decode(ids) == text
        rendered = model.chat_template.render([{"role": "user", "content": "hi"}])
        assert "".join(text for text, _ in rendered) == "User: hi\n\nAssistant:"


@pytest.mark.parametrize("token", TOKENS)
def test_escapes(token):
    text = escaped(token)
    assert text.isascii() and text.decode().isprintable()
    assert unescaped(text, "here") == token


def test_escape_errors():
    with pytest.raises(ValueError, match="here ends with a backslash"):
        unescaped(b"a\\", "here")


def test_without_vocabulary(folder, tmp_path):
    source, out = folder("rwkv7"), tmp_path / "x.gguf"
    (source / "rwkv_vocab_v20230424.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"rwkv_vocab\*\.txt"):
        convert(source, out)
    assert not out.exists()
    convert(source, out, tokenizer=False)
    with pantheon.load(str(out)) as model, pytest.raises(ValueError, match="no vocabulary of model 'rwkv'"):
        model.tokenizer.encode("a")


def test_what_cannot_be(folder, tmp_path):
    source, out = folder("rwkvx"), tmp_path / "x.gguf"
    convert(source, out, "q8_0")
    with pytest.raises(ValueError, match="quantize: .* is a GGUF file"):
        pantheon.load(str(out), quantize=True)
    with pytest.raises(ValueError, match="vocab_path is for models in safetensors files"):
        pantheon.load(str(out), vocab_path=str(source / "rwkv_vocab_v20230424.txt"))
    arrays = rwkv_models.tensors(rwkv_models.RECIPES["rwkvx"])
    arrays["rwkv.emb.weight"] = arrays["rwkv.emb.weight"][:, :100]
    rwkv_models.write(rwkv_models.RECIPES["rwkvx"], source / "model.safetensors", arrays)
    with pytest.raises(ValueError, match="rwkv.emb.weight"):
        convert(source, tmp_path / "y.gguf")
    assert not (tmp_path / "y.gguf").exists()
