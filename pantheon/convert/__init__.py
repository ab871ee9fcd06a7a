"""From the folder of a Hugging Face model to a GGUF file.

settings -> rope, hyper: what config.json says, by the facts of arch/*/hf.py; keys: the same as GGUF keys
pieces, ternary -> layout -> families, delta: which tensors the file gets, from which rows of the folder's
pretokenizer, vocabulary: the tokenizer's keys
rwkv: all of that for RWKV, whose files have no configuration
types, writer: the bytes

All checks of names, shapes and keys come before the first byte is written. Memory holds one slab of one tensor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pantheon._core.arch.rwkv.hf import ARCH, NO_CONFIG
from pantheon._core.engine import hf_weights
from pantheon._core.files.bounded_json import read_json
from pantheon._core.files.safetensors import SafetensorsFile
from pantheon.convert.delta import delta_tensors
from pantheon.convert.families import fused_tensors, parallel_tensors, plain_tensors
from pantheon.convert.hyper import Hyper, read_hyper
from pantheon.convert.keys import add_keys, hyper_keys
from pantheon.convert.layout import Layout
from pantheon.convert.pieces import Source, read_source
from pantheon.convert.rwkv import add_world_vocabulary, rwkv_model, rwkv_outputs, rwkv_weights
from pantheon.convert.types import TYPES, Plan, file_type, gguf_package, planned
from pantheon.convert.vocabulary import Vocabulary, add_vocabulary, no_vocabulary, read_vocabulary
from pantheon.convert.writer import Progress, refuse_existing, replaced, write_file

__all__ = ["TYPES", "convert"]


def convert(folder: str | os.PathLike[str], out: str | os.PathLike[str], type: str = "f16", force: bool = False,
            tokenizer: bool = True, progress: Progress | None = None) -> None:
    """Writes the GGUF file `out` from a folder with config.json, safetensors and a tokenizer, or with an RWKV model's
    safetensors file and its World vocabulary, rwkv_vocab*.txt.

    type: of the matrices, one of TYPES; vectors, routers and convolutions are F32. force: replace an existing file.
    tokenizer=False: the file carries none, and runs by token ids only. progress: called with ("convert", bytes done,
    bytes in all).

    Raises ValueError naming the file and the key or tensor, OSError for files that cannot be read or written,
    ImportError without the gguf package.
    """
    if type not in TYPES:
        raise ValueError(f"type is {type!r}, known: {', '.join(TYPES)}")
    gguf_package()
    folder, out = Path(folder), Path(out)
    refuse_existing(out, force)
    progress = progress or (lambda stage, done, total: None)
    rwkv = rwkv_weights(folder) if folder.is_dir() and not (folder / "config.json").exists() else None
    if rwkv is not None:
        _convert_rwkv(folder, rwkv, out, type, force, tokenizer, progress)
        return
    config_path = _config_path(folder)
    h = read_hyper(read_json(config_path, max_depth=64, max_items=1 << 20, max_bytes=16 << 20), str(config_path))
    weights = hf_weights(str(folder))
    with SafetensorsFile(weights) as file:
        layout, n_mtp = lay_out(read_source(file), h, weights)
        layout.check_extra()
        plans = [planned(output, type) for output in layout.outputs]
        # After the tensors: an embedding of that many rows is there for each token that the vocabulary is filled up to.
        vocabulary = read_vocabulary(folder, h) if tokenizer else None
        writer = _writer(h.arch, model_name(folder, h, vocabulary), plans, type)
        add_keys(writer, hyper_keys(h, n_mtp), h.arch)
        if vocabulary is None:
            no_vocabulary(writer)
        else:
            add_vocabulary(writer, vocabulary)
        with replaced(out, force) as part:
            write_file(part, writer, plans, file, weights, progress)


def _convert_rwkv(folder: Path, weights: Path, out: Path, type: str, force: bool, tokenizer: bool,
                  progress: Progress) -> None:
    n_vocab, world = rwkv_model(folder, weights, tokenizer)
    with SafetensorsFile(str(weights)) as file:
        plans = [planned(output, type) for output in rwkv_outputs(file)]
        writer = _writer(ARCH, weights.stem, plans, type)
        if world is None:
            no_vocabulary(writer)
        else:
            add_world_vocabulary(writer, world, n_vocab)
        with replaced(out, force) as part:
            write_file(part, writer, plans, file, str(weights), progress)


def _writer(arch: str, name: str, plans: Sequence[Plan], type: str) -> Any:
    """A gguf.GGUFWriter without file, with the keys that say what this is."""
    gguf = gguf_package()
    writer = gguf.GGUFWriter(None, arch)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(file_type([plan.kind for plan in plans], type))
    if any(plan.kind > 1 and plan.kind != gguf.GGMLQuantizationType.BF16 for plan in plans):
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    return writer


def lay_out(source: Source, h: Hyper, name: str) -> tuple[Layout, int]:
    """The tensors of the file, and the number of drafting blocks. name: of the weights, for messages."""
    layout, n_mtp = Layout(source, h, name), 0
    if h.delta is not None:
        n_mtp = delta_tensors(layout)
    elif h.facts.layer_norm:
        parallel_tensors(layout)
    elif h.facts.gguf_fused:
        fused_tensors(layout)
    else:
        plain_tensors(layout)
    return layout, n_mtp


def _config_path(folder: Path) -> Path:
    if not folder.exists():
        raise FileNotFoundError(2, "no such folder", str(folder))
    if not folder.is_dir():
        hint = f" ({NO_CONFIG})" if folder.suffix in (".safetensors", ".pth") else ""
        raise NotADirectoryError(20, f"not a folder with config.json and safetensors{hint}", str(folder))
    path = folder / "config.json"
    if not path.exists():
        hint = "; only RWKV models have none, and this is none" if any(folder.glob("*.safetensors")) else ""
        raise FileNotFoundError(2, f"this file of a Hugging Face model is missing{hint}", str(path))
    return path


def model_name(folder: Path, h: Hyper, vocabulary: Vocabulary | None) -> str:
    """The name of the folder, with what readers know the architecture by (facts.gguf_name): no key says it."""
    name = folder.resolve().name.encode("utf-8", "replace").decode()
    mark = h.facts.gguf_name if vocabulary is not None and vocabulary.model == "llama" else ""
    return f"{mark} {name}" if mark and mark.lower().replace("-", "") not in name.lower().replace("-", "") else name
