"""GGUF files of all architectures, and sets of them in several parts."""
from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import gguf_edit
import json_edit
import raw
import safetensors_edit
import seeds
from cases import Case, Special
from target_folders import folder_parts
from usage import model_options, run_model


@functools.cache
def gguf_parts() -> tuple[list[gguf_edit.File], list[gguf_edit.Key], list[bytes]]:
    files = [gguf_edit.parse(data) for data in seeds.ggufs().values()]
    return files, all_keys(files), all_names(files)


def all_keys(files: list[gguf_edit.File]) -> list[gguf_edit.Key]:
    return sorted({key for file in files for key in file.keys}, key=lambda key: (key.name, key.kind, key.payload))


def all_names(files: list[gguf_edit.File]) -> list[bytes]:
    return sorted({tensor.name for file in files for tensor in file.tensors})


def make_gguf(rng: random.Random) -> Case:
    files, keys, names = gguf_parts()
    source = rng.choice(files)
    if len(source.data) > 300_000 and rng.random() < 0.7:      # large ones take the time of many small ones
        source = rng.choice(files)
    return Case({"m.gguf": gguf_edit.mutated(rng, source, files, keys, names)}, model_options(rng))


def run_gguf(folder: Path, options: dict) -> None:
    run_model(folder / "m.gguf", options)


@functools.cache
def _split_parts() -> tuple[list[list[gguf_edit.File]], list[dict[str, bytes]], list[str]]:
    files, _, _ = gguf_parts()
    sets = [[gguf_edit.parse(part) for part in gguf_edit.split(file, n)] for i, file in enumerate(files[::2])
            for n in (2 + i % 3,)]
    folders, _, names = folder_parts()
    return sets, [folder for folder in folders if "model.safetensors.index.json" in folder], names


def make_split(rng: random.Random) -> Case:
    sets, sharded, names = _split_parts()
    if rng.random() < 0.3:
        return _make_sharded(rng, sharded, names)
    parts = [file.copy() for file in rng.choice(sets)]
    all_files = [file for files in sets for file in files]
    keys = _keys_of_splits()
    written: list[bytes | Special] = [file.packed() for file in parts]
    i = rng.randrange(len(parts))
    kind = rng.randrange(12)
    if kind < 4:
        file = parts[i]
        at = rng.randrange(max(len(file.keys) - 3, 0), len(file.keys))      # one of the three keys of a split
        key = file.keys[at]
        file.keys[at] = gguf_edit.Key(key.name, key.kind, gguf_edit.scalar(rng, key.kind, key.payload))
        written[i] = file.packed()
    elif kind < 8:
        written[i] = gguf_edit.mutated(rng, parts[i], all_files, keys, gguf_parts()[2], on_keys=0.4)
    elif kind == 8:
        other = rng.randrange(len(parts))
        written[i], written[other] = written[other], written[i]
    elif kind == 9:
        written[i] = rng.choice(all_files).packed()
    elif kind == 10:
        written[i] = rng.choice(list(Special))
    else:
        written[i] = raw.mutated(rng, written[i])
    n = len(written)
    stated = rng.choice((n, n, n, n, n, n, n, n, n + 1, n - 1, 99999))
    files = {f"m-{no:05}-of-{stated:05}.gguf": content for no, content in enumerate(written, 1)}
    if rng.random() < 0.1:
        del files[sorted(files)[rng.randrange(n)]]
    if rng.random() < 0.05:
        files[rng.choice(("m-00000-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of-00001.gguf"))] = written[0]
    return Case(files, model_options(rng) | {"open": rng.choice(sorted(files))})


@functools.cache
def _keys_of_splits() -> list[gguf_edit.Key]:
    return all_keys([file for files in _split_parts()[0] for file in files])


def _make_sharded(rng: random.Random, sharded: list[dict[str, bytes]], names: list[str]) -> Case:
    files: dict[str, bytes | Special] = dict(rng.choice(sharded))
    shards = sorted(name for name in files if name.endswith(".safetensors"))
    kind = rng.randrange(8)
    index = "model.safetensors.index.json"
    if kind < 4:
        document = json.loads(files[index])
        weight_map = document["weight_map"]
        for _ in range(rng.choice((1, 1, 3))):
            if kind < 2:
                json_edit.mutate(rng, document)
            else:
                weight_map[rng.choice([*weight_map, rng.choice(names)])] = rng.choice(
                    (*shards, "gone.safetensors", "../x.safetensors", "/etc/passwd", "", index, "model.safetensors",
                     "\0", f"{shards[0]}/", f"./{shards[0]}", "x" * 5000))
        files[index] = json_edit.dumps(document)
    elif kind == 4:
        one, other = rng.sample(shards, 2)
        files[one] = files[other]
    elif kind == 5:
        files[rng.choice(shards)] = rng.choice(list(Special))
    else:
        shard = rng.choice(shards)
        files[shard] = safetensors_edit.mutated(rng, files[shard], names)
    return Case(files, model_options(rng) | {"open": rng.choice(("", "", index))})


def run_split(folder: Path, options: dict) -> None:
    name = options["open"]
    run_model(folder / name if name else folder, options | {"text": False},
              **({"config_path": folder / "config.json"} if name.endswith(".json") else {}))
