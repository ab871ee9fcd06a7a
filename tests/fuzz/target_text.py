"""Tokenizers of GGUF files and of folders, and chat templates."""
from __future__ import annotations

import functools
import random
from pathlib import Path

import gguf_edit
import jinja_edit
import json_edit
import protobuf_edit
import seeds
from cases import Case, Special
from target_folders import change_folder
from target_gguf import all_keys
from usage import MESSAGES, TOOLS, check_segments, use_tokenizer
from verdicts import LOADING, may_refuse

from pantheon._core.files.gguf_reader import GGUFFile
from pantheon.text import ChatTemplate, TemplateError, Tokenizer
from pantheon.text.hf import load_tokenizer


@functools.cache
def _vocabularies() -> tuple[list[gguf_edit.File], list[gguf_edit.Key]]:
    """GGUF files and their keys."""
    ggufs = [gguf_edit.parse(data) for data in seeds.vocabulary_ggufs().values()]
    return ggufs, all_keys(ggufs)


@functools.cache
def _tokenizer_folders() -> tuple[list[dict[str, bytes]], dict[str, bytes], list]:
    """Folders with tokenizer.json, and a folder without a tokenizer and the tokenizer.model for it."""
    folder = seeds.folders()["mixtral"]
    byte_level = {name: folder[name] for name in sorted(folder) if name.endswith((".json", ".jinja"))}
    small = {name: content for name, content in byte_level.items() if name != "tokenizer.json"} | {
        "tokenizer_config.json": b'{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true,'
                                 b' "chat_template": "{{ messages[0].content }}", "added_tokens_decoder":'
                                 b' {"1": {"content": "<s>", "special": true}, "300": {"content": "<x>"}}}'}
    jsons = [byte_level, *(small | {"tokenizer.json": seeds.spm_json(metaspace)} for metaspace in (False, True))]
    return jsons, small, seeds.spm_model()


def make_tokenizers(rng: random.Random) -> Case:
    ggufs, keys = _vocabularies()
    jsons, small, spm = _tokenizer_folders()
    options = {"salt": rng.random(), "extra": rng.choice((0, 0, 0, 7, 1000, -3))}
    kind = rng.randrange(10)
    if kind < 4:
        return Case({"m.gguf": gguf_edit.mutated(rng, rng.choice(ggufs), ggufs, keys, [b"t"], on_keys=1.0)}, options)
    files: dict[str, bytes | Special]
    if kind < 8:
        files = dict(rng.choice(jsons))
        if rng.random() < 0.75:
            files["tokenizer.json"] = json_edit.mutated(rng, files["tokenizer.json"])
        else:
            change_folder(rng, files, jsons, [], [])
    else:
        files = dict(small)
        if rng.random() < 0.75:
            files["tokenizer.model"] = protobuf_edit.mutated(rng, spm)
        else:
            files["tokenizer.model"] = protobuf_edit.dumps(spm)
            change_folder(rng, files, jsons, [], [])
    return Case(files, options)


def run_tokenizers(folder: Path, options: dict) -> None:

    if (folder / "m.gguf").exists():
        with may_refuse(*LOADING, names=str(folder)):
            file = GGUFFile(folder / "m.gguf")
        with file, may_refuse(*LOADING):
            tokens = file.metadata.get("tokenizer.ggml.tokens")
            n = len(tokens) if hasattr(tokens, "__len__") else 1
            tokenizer = Tokenizer(file.metadata, max(n + options["extra"], 1))
    else:
        with may_refuse(*LOADING, names=str(folder)):
            tokenizer = load_tokenizer(str(folder), 292 + options["extra"])
    use_tokenizer(tokenizer, options)


@functools.cache
def _templates() -> list[str]:
    return seeds.templates()


def make_templates(rng: random.Random) -> Case:
    source = jinja_edit.mutated(rng, rng.choice(_templates()))
    options = {"messages": rng.choice((1, 2, 2, 5, 5)), "tools": rng.random() < 0.3, "prompt": rng.random() < 0.7}
    return Case({"chat_template.jinja": source.encode("utf-8", "surrogatepass")}, options)


def run_templates(folder: Path, options: dict) -> None:
    source = (folder / "chat_template.jinja").read_bytes().decode("utf-8", "surrogatepass")
    with may_refuse(TemplateError):
        template = ChatTemplate(source, "<s>", "</s>", seconds=0.5)
        segments = template.render(MESSAGES[: options["messages"]], TOOLS if options["tools"] else None,
                                   add_generation_prompt=options["prompt"])
    check_segments(segments)
