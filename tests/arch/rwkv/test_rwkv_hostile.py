"""RWKV files and settings that are wrong: one clear error that names the file, the tensor or the variable."""
import numpy as np
import pytest
from support import rwkv_models
from support.rwkv_models import RECIPES

import pantheon

pytestmark = pytest.mark.hostile

ARRAYS = {name: rwkv_models.tensors(RECIPES[name]) for name in ("rwkvx", "rwkv7")}


def without(name, *keys):
    return {key: x for key, x in ARRAYS[name].items() if not any(part in key for part in keys)}


def with_shape(name, key, *shape):
    return ARRAYS[name] | {key: np.zeros(shape, np.float32)}


A = "rwkv.blocks.1.att."
HOSTILE = {
    "no embedding": (without("rwkvx", "emb.weight"), "neither rwkv.emb.weight nor emb.weight"),
    "no blocks": (without("rwkvx", ".blocks."), "no tensors rwkv.blocks.0"),
    "no block 2": (without("rwkvx", "rwkv.blocks.2."), "block 3 are there, but none rwkv.blocks.2"),
    "no attention block 0": (without("rwkvx", "moba.0."), "block 1 are there, but none moba.0"),
    "more attention than blocks": (without("rwkvx", *[f"blocks.{i}." for i in (1, 2, 3)]), "2 attention blocks for 1"),
    "no head": (without("rwkvx", "head.weight"), "tensor rwkv.head.weight of shape .300, 128. is missing"),
    "no ln0": (without("rwkvx", "ln0.bias"), "tensor rwkv.blocks.0.ln0.bias of 128 elements is missing"),
    "no v0": (without("rwkvx", "blocks.1.att.v0"), "tensor rwkv.blocks.1.att.v0 of 128 elements is missing"),
    "no decay LoRA": (without("rwkvx", "blocks.1.att.w1"), "tensor rwkv.blocks.1.att.w1 of 128 by 32 is missing"),
    "no attention output": (without("rwkvx", "moba.1.att.output"),
                            "tensor moba.1.att.output.weight of shape .128, 128. is missing"),
    "heads that are no 64": (with_shape("rwkvx", "rwkv.emb.weight", 300, 100), "has 100 columns"),
    "an embedding that is a vector": (with_shape("rwkvx", "rwkv.emb.weight", 2, 2, 128), "is no matrix"),
    "a short vector": (with_shape("rwkvx", A + "x_r", 1, 1, 64), "x_r has 64 elements, expected 128"),
    "a matrix of another shape": (with_shape("rwkvx", A + "key.weight", 128, 64), r"key.weight has shape \(128, 64\)"),
    "a LoRA as wide as the model": (with_shape("rwkvx", A + "w1", 128, 128), r"w1 has shape \(128, 128\)"),
    "a LoRA that fits nowhere": (with_shape("rwkvx", A + "a2", 32, 64), r"a2 has shape \(32, 64\)"),
    "LoRAs of two ranks": (with_shape("rwkvx", A + "g2", 40, 128), r"g2 has shape \(40, 128\), expected 128 by 48"),
    "another feed-forward width": (with_shape("rwkvx", "moba.0.ffn.key.weight", 256, 128), "ffn.key.weight has shape"),
    "a block number beyond reason": (ARRAYS["rwkvx"] | {"rwkv.blocks.99999.ln1.bias": np.zeros(128, np.float32)},
                                     "impossible block number"),
    "a bias that no block has": (with_shape("rwkvx", A + "key.bias", 128),
                                 r"tensor rwkv.blocks.1.att.key.bias of shape .128. is in the file, but not in the "
                                 r"model; expected in rwkv.blocks.1: .*att.key.weight"),
    "a tensor that no model has": (with_shape("rwkvx", "rwkv.head.bias", 300),
                                   "head.bias of shape .300. .*expected outside of the blocks: .*rwkv.head.weight"),
    "an empty embedding": (with_shape("rwkvx", "rwkv.emb.weight", 0, 128), "n_vocab is 0|is empty|no elements|shape"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(rwkv, name):
    arrays, message = HOSTILE[name]
    path = rwkv("rwkvx", arrays=arrays, suffix="-hostile")
    with pytest.raises(ValueError, match=message) as e:
        pantheon.load(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value)


def test_tensors_of_no_use_may_be_there(rwkv):
    """The value residual of block 0, which has no block before it."""
    more = {f"blocks.0.att.{name}": np.ones(shape, np.float32) for name, shape in
            (("v0", (1, 1, 192)), ("v1", (192, 24)), ("v2", (24, 192)))}
    path = rwkv("rwkv7", arrays=ARRAYS["rwkv7"] | more, suffix="-more")
    with pantheon.load(path) as model, pantheon.load(rwkv("rwkv7")) as plain:
        assert (model.forward(5, model.new_state()) == plain.forward(5, plain.new_state())).all()


def test_every_prefix_is_refused(rwkv, tmp_path):
    data = rwkv("rwkv7").read_bytes()
    header = int.from_bytes(data[:8], "little")
    path = tmp_path / "cut.safetensors"
    for n in [*range(0, 40), *range(40, header + 8, 997), header + 8, len(data) // 2, len(data) - 1]:
        path.write_bytes(data[:n])
        with pytest.raises(ValueError, match="cut.safetensors"):
            pantheon.load(path)


def test_integers_are_no_weights(rwkv, tmp_path):
    data = rwkv("rwkv7").read_bytes().replace(b'"dtype": "F32"', b'"dtype": "I32"')
    path = tmp_path / "integers.safetensors"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="has type .*, which is neither F32 nor F16 nor BF16"):
        pantheon.load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_cannot_be_quantised(rwkv, bad):
    key = "blocks.1.ffn.key.weight"
    matrix = ARRAYS["rwkv7"][key].copy()
    matrix[-1, -1] = bad
    path = rwkv("rwkv7", arrays=ARRAYS["rwkv7"] | {key: matrix}, suffix="-bad")
    with pytest.raises(ValueError, match="blocks.1.ffn.key.weight holds numbers that are not finite"):
        pantheon.load(path, quantize=True)
    pantheon.load(path).close()


@pytest.mark.parametrize(("settings", "message"), [
    ({"RWKVX_MODE": "sparse"}, "RWKVX_MODE is 'sparse'"),
    ({"RWKVX_KEEP_TOKENS": "0"}, "RWKVX_KEEP_TOKENS is '0'"),
    ({"RWKVX_KEEP_TOKENS": "12.5"}, "RWKVX_KEEP_TOKENS is '12.5'"),
    ({"RWKVX_KEEP_TOKENS": "9" * 30}, "RWKVX_KEEP_TOKENS"),
    ({"RWKVX_KEEP_RATIO": "0"}, "RWKVX_KEEP_RATIO is '0'"),
    ({"RWKVX_KEEP_RATIO": "1.5"}, "RWKVX_KEEP_RATIO is '1.5'"),
    ({"RWKVX_KEEP_RATIO": "nan"}, "RWKVX_KEEP_RATIO is 'nan'"),
    ({"RWKVX_KEEP_RATIO": "all"}, "RWKVX_KEEP_RATIO is 'all'"),
    ({"RWKVX_KEEP_RATIO": "0.5", "RWKVX_KEEP_TOKENS": "5"}, "both set"),
])
def test_settings_that_make_no_sense(rwkv, monkeypatch, settings, message):
    path = rwkv("rwkv7")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        pantheon.load(path)


def test_a_vocabulary_belongs_to_rwkv(llama, rwkv, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("1 'a' 1\n")
    with pytest.raises(ValueError, match="vocab_path"):
        pantheon.load(llama, vocab_path=vocab)
    with pytest.raises(FileNotFoundError):
        pantheon.load(rwkv("rwkv7"), vocab_path=tmp_path / "none.txt")
    with pantheon.load(rwkv("rwkv7")) as model, pytest.raises(ValueError, match="load it with vocab_path"):
        model.tokenizer  # noqa: B018
    with pantheon.load(rwkv("rwkv7"), vocab_path=vocab) as model:
        assert model.vocab_path == str(vocab)
        with pytest.raises(ValueError, match="byte 0x00 is no token"):
            model.tokenizer  # noqa: B018
    with pytest.raises(ValueError, match="quantize"):
        pantheon.load(llama, quantize=True)


def test_text_in_text_out(rwkv, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    with pantheon.load(rwkv("rwkvx"), vocab_path=vocab) as model:
        assert model.chat_style == "rwkv"
        params = pantheon.SamplingParams(temperature=0)
        chunks = list(model.generate("Hello there", params, max_tokens=12))
        assert chunks[-1].finish_reason in ("length", "stop")
        again = list(model.generate([{"role": "user", "content": "Hello"}], params, max_tokens=12))
        assert again[-1].finish_reason in ("length", "stop") and len(again) <= 12


def test_trailing_blocks_are_reported(rwkv, caplog):
    with caplog.at_level("WARNING", logger="pantheon"):
        pantheon.load(rwkv("rwkvx-uneven")).close()
    assert "the last 1 RWKV blocks are never run" in caplog.text
