"""The valid files that cases are mutations of: the fixtures, and small RWKV models and vocabularies made here."""
from __future__ import annotations

import functools
import json
import struct
import tempfile
from pathlib import Path

import gguf_edit
import protobuf_edit
from support import every_architecture, rwkv_models
from support.fixture_paths import FIXTURES, HF_MODELS, TOKENIZER
from support.gguf_bytes import ARRAY, BOOL, F32, I32, STRING, U32, array, gguf, kv

WORLD_WORDS = [b"the", b" the", "日本".encode(), b"\\n", b"\t\t", b"it's", b'say "it\'s"', b"\\'", b"\xff\xfe", b"User",
               b"Assistant"]
RWKV = (
    rwkv_models.Recipe("rwkvx", seed=11, n_layer=2, n_attn=1, n_embd=64, n_vocab=270),
    rwkv_models.Recipe("rwkvx-half", seed=12, n_layer=3, n_attn=1, n_embd=64, n_vocab=270, dtype="BF16"),
    rwkv_models.Recipe("rwkv7", seed=14, n_layer=2, n_attn=0, n_embd=64, n_vocab=270, dtype="F16", prefix="",
                       lora_out_in=True),
)
# words of the SentencePiece vocabularies, each after those that it is merged from
SPM_WORDS = ["▁", *"thefoxandqu.,", "th", "he", "▁t", "▁th", "▁the", "an", "and", "▁a", "▁and", "ox", "fox", "▁fox"]


def ggufs() -> dict[str, bytes]:
    """One file of every architecture but RWKV's, several of most."""
    found = {path.stem: path.read_bytes() for path in sorted((FIXTURES / "tiny").glob("*.gguf"))}
    with tempfile.TemporaryDirectory() as folder:
        for name in every_architecture.BITNETS:
            found[name] = every_architecture.model_path(name, Path(folder), None).read_bytes()
    return found


def folders() -> dict[str, dict[str, bytes]]:
    """Model folders of fixtures/hf, each with the tokenizer that one of them has: files by name."""
    return {folder.name: {path.name: path.read_bytes() for path in (*sorted(folder.iterdir()), *TOKENIZER)
                          if path.name != "golden.npz"}
            for folder in HF_MODELS}


def world_vocabulary() -> bytes:
    """A World vocabulary file: all bytes and some words."""
    lines = []
    for i, token in enumerate([bytes([byte]) for byte in range(256)] + WORLD_WORDS, 1):
        try:
            literal = repr(token.decode())
        except UnicodeDecodeError:
            literal = repr(token)
        lines.append(f"{i} {literal} {len(token)}\n")
    return "".join(lines).encode()


@functools.cache
def rwkv_folders() -> dict[str, dict[str, bytes]]:
    vocabulary = world_vocabulary()
    return {
        recipe.name: {
            "model.safetensors": rwkv_models.safetensors_bytes(
                rwkv_models.as_stored(recipe, rwkv_models.tensors(recipe)), recipe.dtype),
            "rwkv_vocab_v20230424.txt": vocabulary,
        } for recipe in RWKV
    }


def rwkv_ggufs() -> dict[str, bytes]:
    from pantheon.convert import convert

    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "m")
        folder.mkdir()
        for recipe, files in rwkv_folders().items():
            for file, content in files.items():
                (folder / file).write_bytes(content)
            convert(folder, Path(name, "x.gguf"), "q8_0" if recipe == "rwkvx-half" else "f32", force=True)
            found[recipe] = Path(name, "x.gguf").read_bytes()
    return found


@functools.cache
def _spm_pieces() -> list[tuple[str, float, int]]:
    """Text, score and type of each."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    return pieces + [(word, -float(i), 1) for i, word in enumerate(SPM_WORDS)]


def spm_model() -> list[protobuf_edit.Field]:
    """tokenizer.model as fields."""
    fields = [protobuf_edit.piece(text.encode(), score, kind) for text, score, kind in _spm_pieces()]
    trainer = [(3, 0, 2), (4, 0, len(fields)), (35, 0, 1), (40, 0, 0), (41, 0, 1), (42, 0, 2), (43, 0, 2**64 - 1)]
    return [*fields, (2, 2, trainer), (3, 2, [(1, 2, b"identity"), (3, 0, 1), (4, 0, 0), (5, 0, 1)])]


def spm_json(metaspace: bool) -> bytes:
    """tokenizer.json with the same vocabulary."""
    ids = {text: i for i, (text, _, _) in enumerate(_spm_pieces())}
    words = set(SPM_WORDS)
    merges = [[word[:k], word[k:]] for word in SPM_WORDS for k in range(1, len(word))
              if word[:k] in words and word[k:] in words]
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": i == 2, "normalized": False,
                "special": True} for i, text in enumerate(("<unk>", "<s>", "</s>"))]
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None if metaspace else normalizer,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
        if metaspace else None,
        "post_processor": {
            "type": "TemplateProcessing", "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": ids, "merges": merges}}).encode()


def vocabulary_ggufs() -> dict[str, bytes]:
    """GGUF files without tensors: a vocabulary of each kind."""
    keys = gguf_edit.parse((FIXTURES / "tiny" / "qwen2.gguf").read_bytes()).keys
    bpe = gguf_edit.File([key for key in keys if key.name.startswith((b"tokenizer.", b"general."))]).packed()
    pieces = _spm_pieces()
    spm = gguf([
        kv("general.architecture", STRING, "llama"), kv("general.name", STRING, "Phi-3 mini"),
        kv("tokenizer.ggml.model", STRING, "llama"),
        kv("tokenizer.ggml.tokens", ARRAY, (STRING, [text for text, _, _ in pieces])),
        kv("tokenizer.ggml.scores", ARRAY, (F32, [score for _, score, _ in pieces])),
        kv("tokenizer.ggml.token_type", ARRAY, array(I32, [kind for _, _, kind in pieces])),
        kv("tokenizer.ggml.bos_token_id", U32, 1), kv("tokenizer.ggml.eos_token_id", U32, 2),
        kv("tokenizer.ggml.unknown_token_id", U32, 0), kv("tokenizer.ggml.add_space_prefix", BOOL, True),
        kv("tokenizer.chat_template", STRING,
           "{% for m in messages %}{{ bos_token + m.content + eos_token }}{% endfor %}"),
        kv("tokenizer.ggml.suppress_tokens", ARRAY, struct.pack("<IQi", I32, 1, 0)),
    ])
    return {"bpe": bpe, "spm": spm}


def templates() -> list[str]:
    from pantheon.text.chat_styles import STYLES

    files = sorted((FIXTURES / "text" / "templates").glob("*.jinja"))
    return [path.read_text("utf-8") for path in files] + list(STYLES.values())
