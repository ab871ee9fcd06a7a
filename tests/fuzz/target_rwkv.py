"""RWKV models as safetensors with a World vocabulary, and as GGUF files that hold theirs."""
from __future__ import annotations

import functools
import json
import os
import random
from pathlib import Path

import gguf_edit
import raw
import safetensors_edit
import seeds
from cases import Case, Special
from target_gguf import all_keys, all_names
from usage import model_options, run_model


@functools.cache
def _rwkv_parts() -> tuple[list[dict[str, bytes]], list[gguf_edit.File], list[gguf_edit.Key], list[bytes]]:
    """Folders; GGUF files, their keys, and the names of their tensors."""
    ggufs = [gguf_edit.parse(data) for data in seeds.rwkv_ggufs().values()]
    return list(seeds.rwkv_folders().values()), ggufs, all_keys(ggufs), all_names(ggufs)


def make_rwkv(rng: random.Random) -> Case:
    folders, ggufs, keys, tensors = _rwkv_parts()
    options = model_options(rng) | {"quantize": rng.random() < 0.3, "keep": rng.choice((None, None, "1", "3", "0.5"))}
    options["text"] = rng.random() < 0.6
    if rng.random() < 0.4:
        return Case({"m.gguf": gguf_edit.mutated(rng, rng.choice(ggufs), ggufs, keys, tensors)}, options)
    files: dict[str, bytes | Special] = dict(rng.choice(folders))
    names = sorted(json.loads(_header(files["model.safetensors"])))
    for _ in range(rng.choice((1, 1, 2))):
        name = "model.safetensors" if rng.random() < 0.6 else "rwkv_vocab_v20230424.txt"
        if rng.random() < 0.02:
            files[name] = rng.choice(list(Special))
        elif isinstance(files[name], bytes):
            files[name] = (_mutated_vocabulary(rng, files[name]) if name.endswith("txt") else
                           safetensors_edit.mutated(rng, files[name], names))
            break
    return Case(files, options)


def _header(data: bytes) -> bytes:
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def _mutated_vocabulary(rng: random.Random, source: bytes) -> bytes:
    if rng.random() < 0.3:
        return raw.mutated(rng, source)
    lines = source.split(b"\n")
    i = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(i, lines[rng.randrange(len(lines))])
    elif kind == 2:
        lines[i] = f"{i + 1} {raw.text(rng)!r} {rng.choice((0, 1, 2, 2000))}".encode("utf-8", "replace")
    elif kind == 3:
        literal = rng.choice((b"'\\", b"b'\\xzz'", b"'\\U00110000'", b"''", b"'a", b"f'a'", b"'\\N{DASH}'",
                              b"'\\ud800'", b"b'\\u0041'", b"'" + b"a" * 20_000 + b"'"))
        lines[i] = b"%d %s 1" % (i + 1, literal)
    elif kind == 4:
        lines = lines[: i + 1]
    else:
        lines[i] = raw.mutated(rng, lines[i] or b" ")
    return b"\n".join(lines)


def run_rwkv(folder: Path, options: dict) -> None:
    os.environ.pop("RWKVX_KEEP_TOKENS", None)
    os.environ.pop("RWKVX_KEEP_RATIO", None)
    keep = options["keep"]
    if keep is not None:
        os.environ["RWKVX_KEEP_RATIO" if "." in keep else "RWKVX_KEEP_TOKENS"] = keep
    if (folder / "m.gguf").exists():
        run_model(folder / "m.gguf", options)
    else:
        run_model(folder / "model.safetensors", options, vocab_path=folder / "rwkv_vocab_v20230424.txt")
