"""Folders of Hugging Face models, loaded and converted."""
from __future__ import annotations

import functools
import json
import os
import random
from pathlib import Path

import jinja_edit
import json_edit
import raw
import safetensors_edit
import seeds
from cases import Case, Special
from usage import model_options, run_model
from verdicts import LOADING, Refused, Violation, may_refuse


@functools.cache
def folder_parts() -> tuple[list[dict[str, bytes]], list, list[str]]:
    """Folders, entries of config.json files, names of tensors."""
    folders = list(seeds.folders().values())
    names = sorted({name for folder in folders for file, data in folder.items() if file.endswith(".safetensors")
                    for name in json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])})
    return folders, json_edit.entries([folder["config.json"] for folder in folders]), names


def change_folder(rng: random.Random, files: dict[str, bytes | Special], others: list[dict], entries: list,
                    names: list[str]) -> None:
    """Changes one file of a model folder in place."""
    kind = rng.randrange(20)
    name = rng.choice(sorted(files) or ["config.json"])
    if name not in files:
        kind = 0
    if kind == 0:
        files[rng.choice((name, "chat_template.jinja", "generation_config.json", "tokenizer_config.json",
                          "model.safetensors.index.json", "tokenizer.json"))] = rng.choice(list(Special))
        return
    if kind == 1:
        del files[name]
        return
    if kind == 2:
        other = rng.choice(others)
        file = rng.choice(sorted(other))
        files[file] = other[file]
        return
    if kind < 11 and "config.json" in files:
        name = "config.json"
    elif kind < 16:
        name = rng.choice([file for file in sorted(files) if file.endswith(".safetensors")] or [name])
    source = files[name]
    if isinstance(source, Special):
        return
    try:
        if name.endswith(".safetensors"):
            files[name] = safetensors_edit.mutated(rng, source, names)
        elif name.endswith(".json"):
            files[name] = json_edit.mutated(rng, source, entries if name == "config.json" else ())
        elif name.endswith(".jinja"):
            files[name] = jinja_edit.mutated(rng, source.decode("utf-8", "replace")).encode("utf-8", "replace")
        else:
            files[name] = raw.mutated(rng, source)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # mutated before, and no longer of its format
        files[name] = raw.mutated(rng, source)


def make_folders(rng: random.Random) -> Case:
    folders, entries, names = folder_parts()
    files: dict[str, bytes | Special] = dict(rng.choice(folders))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change_folder(rng, files, folders, entries, names)
    options = model_options(rng)
    options["text"] = "tokenizer.json" in files and rng.random() < 0.4
    return Case(files, options)


def run_folders(folder: Path, options: dict) -> None:
    run_model(folder, options)


def make_convert(rng: random.Random) -> Case:
    folders, entries, names = folder_parts()
    if rng.random() < 0.15:
        files: dict[str, bytes | Special] = dict(rng.choice(list(seeds.rwkv_folders().values())))
    else:
        files = dict(rng.choice(folders))
    for _ in range(rng.choice((1, 1, 1, 2))):
        change_folder(rng, files, folders, entries, names)
    return Case({f"m/{name}": content for name, content in files.items()} or {"m": Special.FOLDER},
                {"type": rng.choice(("f32", "f16", "bf16", "q8_0")), "tokenizer": rng.random() < 0.8})


def run_convert(folder: Path, options: dict) -> None:
    from pantheon.convert import convert

    out = folder / "out.gguf"
    try:
        with may_refuse(*LOADING, names=str(folder)):
            convert(folder / "m", out, options["type"], tokenizer=options["tokenizer"])
    except Refused:
        if sorted(os.listdir(folder)) != ["m"]:
            raise Violation("convert failed and left something behind") from None
        raise
    run_model(out, {"text": False})
