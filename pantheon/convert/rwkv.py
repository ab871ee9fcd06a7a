"""RWKV-7 and RWKV-X: one safetensors file without configuration, and the World vocabulary in text form.

The GGUF file, of architecture "rwkvx", holds the same tensors under the same names: every size is a shape here too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pantheon._core.arch.rwkv.hf import MARKS, MATRIX, SMALL, VOCABULARIES
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon._core.python.model import ModelBase
from pantheon.convert.pieces import Output, Piece, SourceTensor, read_source
from pantheon.text.rwkv import WorldTokenizer, escaped
from pantheon.text.vocab import TokenType

if TYPE_CHECKING:
    import gguf


def rwkv_weights(folder: Path) -> Path | None:
    """The file of an RWKV model in a folder without config.json; None when there is none."""
    for path in sorted(folder.glob("*.safetensors")):
        with SafetensorsFile(str(path)) as file:
            if any(info.name in MARKS for info in file.tensors):
                return path
    return None


def rwkv_model(folder: Path, weights: Path, tokenizer: bool) -> tuple[int, WorldTokenizer | None]:
    """Width of the logits and the vocabulary, from a file rwkv_vocab*.txt. The engine's own loader checks all tensors.

    ValueError naming file and tensor, FileNotFoundError without exactly one vocabulary.
    """
    with ModelBase(str(weights)) as model:
        n_vocab = model.n_vocab
    if not tokenizer:
        return n_vocab, None
    found = sorted(folder.glob(VOCABULARIES))
    if len(found) != 1:
        raise FileNotFoundError(2, f"there are {len(found)} files {VOCABULARIES}, the World vocabulary is one",
                                str(folder))
    return n_vocab, WorldTokenizer.from_file(found[0], n_vocab)


def rwkv_outputs(file: SafetensorsFile) -> list[Output]:
    """Large matrices in the type asked for, LoRAs in its floats, all else as vectors in F32."""
    return [_output(tensor) for tensor in read_source(file).values()]


def _output(tensor: SourceTensor) -> Output:
    kind = "matrix" if re.fullmatch(MATRIX, tensor.name) else "small" if re.fullmatch(SMALL, tensor.name) else "float"
    if kind == "float" or len(tensor.shape) != 2:
        n = 1
        for size in tensor.shape:
            n *= size
        flat = SourceTensor(tensor.name, tensor.dtype, (n,), tensor.data)
        return Output(tensor.name, (n,), "float", (Piece(flat),))
    return Output(tensor.name, tensor.shape, kind, (Piece(tensor),))


def add_world_vocabulary(writer: gguf.GGUFWriter, tokenizer: WorldTokenizer, n_vocab: int) -> None:
    """Id 0 ends a text; ids past the vocabulary are there for the logits that the model has."""
    texts = tokenizer.vocab.texts
    unused = n_vocab - len(texts)
    writer.add_tokenizer_model("rwkv")
    padding = [f"[PAD{i}]".encode() for i in range(unused)]
    writer.add_token_list([b"<s>", *(escaped(text) for text in texts[1:]), *padding])
    writer.add_token_types([int(TokenType.CONTROL)] + [int(TokenType.NORMAL)] * (len(texts) - 1)
                           + [int(TokenType.UNUSED)] * unused)
    writer.add_eos_token_id(0)
