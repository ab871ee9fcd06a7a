"""Names that are no words: every name that a directory lists is found again, and a message has it on one line."""
import numpy as np
import pytest
from support import rwkv_models
from support.gguf_bytes import STRING, U32, gguf, kv, tensor
from support.safetensors_bytes import CONFIG, hf_folder, safetensors, tiny_tensors

import pantheon
from pantheon._core.files.gguf_reader import GGUFFile
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert import convert
from pantheon.regular_file import open_regular

pytestmark = pytest.mark.hostile

ODD = ["\ud800", "\udfff\ud800", "\udcff", "a\nb", "\x1b[2J", "\u202e", "é", "e\u0301", "\U0001f600", "\u0663", "'",
       '"', "\\", "a" * 300, "blocks.\u0663.x", "model.layers.\u0663.x", "model.\ud800"]
ONE = np.ones((2, 3), np.float32)


def refused(call, *says):
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in says) and "\n" not in text and len(text) < 2000
    text.encode()                        # half a surrogate pair could not be printed


@pytest.mark.parametrize("name", ODD)
def test_a_superfluous_tensor_of_rwkv(tmp_path, name):
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors({**rwkv_models.tensors(rwkv_models.RECIPES["rwkv7"]), name: ONE}))
    refused(lambda: pantheon.load(path), "m.safetensors", "of shape (2, 3) is in the file")
    if name.isprintable():
        refused(lambda: pantheon.load(path), repr(name[:200])[1:-1])
    refused(lambda: convert(tmp_path, tmp_path / "x.gguf", tokenizer=False), "m.safetensors")


@pytest.mark.parametrize("name", ODD)
def test_a_superfluous_tensor_of_a_folder(tmp_path, name):
    folder = hf_folder(tmp_path / "m", CONFIG, {**tiny_tensors(), name: ONE})
    refused(lambda: pantheon.load(folder), "model.safetensors", "of shape (2, 3) is in the file")
    refused(lambda: convert(folder, tmp_path / "x.gguf", tokenizer=False), "model.safetensors", "of shape (2, 3)")


def test_every_name_of_a_directory_is_found(tmp_path):
    arrays = {name: np.full(3, i, np.float32) for i, name in enumerate(ODD)}
    (tmp_path / "m.safetensors").write_bytes(safetensors(arrays))
    with SafetensorsFile(tmp_path / "m.safetensors") as file:
        assert sorted(info.name for info in file.tensors) == sorted(ODD)
        for info in file.tensors:
            assert file.tensor(info.name).view(np.float32).tolist() == arrays[info.name].tolist()
        for name in ("\ud801", "?", "\ufffd"):
            with pytest.raises(KeyError):
                file.tensor(name)


def test_every_name_of_a_gguf_directory_is_found(tmp_path):
    names = [name for name in ODD if len(name) < 60 and not any("\ud800" <= c <= "\udfff" for c in name)]
    kvs = [kv("general.architecture", STRING, "llama"), *(kv(name, U32, i) for i, name in enumerate(names))]
    infos = [tensor(name, [8], 0, 32 * i) for i, name in enumerate(names)]
    (tmp_path / "m.gguf").write_bytes(gguf(kvs, infos, bytes(32 * len(names))))
    with GGUFFile(tmp_path / "m.gguf") as file:
        assert [info.name for info in file.tensors] == names and list(file.metadata)[1:] == names
        assert [file.metadata[name] for name in names] == list(range(len(names)))
        assert all(file.tensor(name).shape == (8,) for name in names)
        for name in ("\ud800", "\udcff"):
            assert name not in file.metadata
            with pytest.raises(KeyError):
                file.tensor(name)


@pytest.mark.parametrize("path", ["\ud800", "m\ud800/x.gguf"])
def test_a_path_that_no_file_can_have(tmp_path, path):
    says = repr(path)[1:-1]
    refused(lambda: open_regular(path), says, "no name of a file")
    refused(lambda: pantheon.load(path), says)
    refused(lambda: pantheon.load(hf_folder(tmp_path / "m", CONFIG, tiny_tensors()), config_path=path), says)
    refused(lambda: pantheon.load(tmp_path / "x.safetensors", vocab_path=path), says)
