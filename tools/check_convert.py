"""Converts tiny transformers models of every architecture and compares llama.cpp's logits with transformers'.

    python -m venv /tmp/check
    /tmp/check/bin/pip install torch==2.13.0 transformers==5.24.0 llama-cpp-python==0.3.36 .[convert]
    /tmp/check/bin/python tools/check_convert.py [NAME ...]

Prints the table of docs/convert.md: how far llama.cpp's and the engine's logits of the F32 file are at most from those
of transformers in float32, and for each type the KL divergence of the probabilities, the mean over the positions, and
how many positions have the same most likely token. F32 files must agree to max |diff| 2e-3 and KL 1e-6; what the other
types may differ by is what their rounding does to such small models. Exit status 1 when one does not agree. Models with
a sliding window are compared within it: llama.cpp has none for them.
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from peers.llama_c import Peer
from safetensors.torch import save_file
from tiny import reference
from tiny.hf_tokenizer import save_tokenizer
from tiny.recipes import RECIPES
from transformers import BitNetConfig, LlamaConfig

import pantheon
from pantheon.convert import TYPES, convert
from pantheon.text.hf import load_tokenizer

torch._dynamo.config.disable = True

LIMITS = {"f32": 1e-6, "f16": 2e-3, "bf16": 5e-2, "q8_0": 1e-1}
TERNARY_LIMIT = 5e-3  # inputs of the matrices are int8
MAX_DIFF = 2e-3
TEXTS = ["The theory of the world and on.", "<|im_start|>user\nin 1999 it's\n\n  there<|im_end|>",
         " trailing  \n\t é 日本"]


@dataclass
class Case:
    name: str
    config: object
    seed: int
    n_tokens: int = reference.N_TOKENS
    ternary: bool = False


def ternary_sizes(**changes) -> dict:
    return {"vocab_size": 288, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}} | changes


# Sizes that llama.cpp takes for granted: heads of Qwen3.5's keys as wide as those of its values, experts in all layers
# of Qwen3-MoE, YaRN with the usual betas.
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
CHANGES = {"qwen2-yarn": {"rope_parameters": YARN | {"attention_factor": 1.3}}, "qwen3moe": {"mlp_only_layers": []},
           "qwen35": {"linear_value_head_dim": 16}, "qwen35moe": {"linear_value_head_dim": 24}}


def cases() -> list[Case]:
    out = []
    for recipe in RECIPES:
        if recipe.types or recipe.experts == "split":
            continue  # the same models in other spellings
        window = getattr(recipe.config, "sliding_window", None)
        config = reference.changed(recipe.config, CHANGES.get(recipe.name, {}))
        out.append(Case(recipe.name, config, recipe.seed, min(window or reference.N_TOKENS, reference.N_TOKENS)))
    out.append(Case("ternary-llama", LlamaConfig(**ternary_sizes()), 21, ternary=True))
    out.append(Case("bitnet-silu", BitNetConfig(**ternary_sizes(hidden_act="silu")), 22, ternary=True))
    return out


def save_ternary(net: torch.nn.Module, folder: Path, divide: bool) -> None:
    """Stores the layers' matrices packed, and leaves what they stand for in the net."""
    from transformers.integrations.bitnet import pack_weights

    stored, values = {}, {}
    for key, value in net.state_dict().items():
        if key.endswith("_proj.weight"):
            scale = value.abs().mean()
            codes = (value / scale).round().clamp(-1, 1)
            stored[key] = pack_weights(codes.clone())
            stored[key + "_scale"] = (1 / scale if divide else scale).reshape(1)
            value = codes * scale
        elif key != "lm_head.weight":
            stored[key] = value.contiguous()
        values[key] = value
    net.load_state_dict(values)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {"quant_method": "bitnet"} | ({} if divide else {"linear_class": "autobitlinear"})
    config = net.config.to_dict() | {"architectures": [type(net).__name__], "quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))


def peer_logits(peer: Peer, tokens: np.ndarray) -> np.ndarray:
    peer.start(128, 128, 2, exact=True)
    return np.stack([peer.decode([int(token)]).copy() for token in tokens])


def engine_logits(model: pantheon.Model, tokens: np.ndarray) -> np.ndarray:
    return np.array(model.prefill(tokens, model.new_state(kv_type="f32"), all_logits=True))


def check_texts(peer: Peer, model: pantheon.Model, folder: Path) -> None:
    """llama.cpp and the engine split texts as the folder's tokenizer does."""
    ours = load_tokenizer(str(folder), model.n_vocab)
    for text in TEXTS:
        expected = ours.encode(text, add_bos=False, parse_special=True)
        got = {"llama.cpp": peer.tokenise(text),
               "the engine": model.tokenizer.encode(text, add_bos=False, parse_special=True)}
        for who, ids in got.items():
            if ids != expected:
                raise ValueError(f"{who} reads {text!r} as {ids}, the folder's tokenizer as {expected}")


def check(case: Case, folder: Path) -> bool:
    net = reference.build(case.config)
    reference.draw_weights(net, case.seed)
    if case.ternary:
        save_ternary(net, folder, divide=isinstance(case.config, LlamaConfig))
    else:
        net.save_pretrained(folder)
    save_tokenizer(folder)
    tokens = np.random.default_rng(1000 + case.seed).integers(3, 288, size=case.n_tokens, dtype=np.int32)
    expected = reference.logits(net, tokens)
    good = True
    rows: dict[str, list[str]] = {"llama.cpp": [], "Pantheon": []}
    for kind in TYPES:
        path = folder / f"{kind}.gguf"
        convert(folder, path, kind)
        peer = Peer(str(path), plain=True)
        with pantheon.load(str(path)) as model:
            if kind == "f32":
                check_texts(peer, model, folder)
            for who, got in (("llama.cpp", peer_logits(peer, tokens)), ("Pantheon", engine_logits(model, tokens))):
                kl = float(reference.kl(expected, got).mean())
                diff = float(np.abs(got - expected).max())
                same = int((got.argmax(-1) == expected.argmax(-1)).sum())
                limit = max(LIMITS[kind], TERNARY_LIMIT) if case.ternary else LIMITS[kind]
                good &= kl < limit and (kind != "f32" or case.ternary or diff < MAX_DIFF)
                rows[who] += [f"{diff:.0e}"] * (kind == "f32") + [f"{kl:.0e}, {100 * same // len(tokens)} %"]
    for who, cells in rows.items():
        print(f"| {' | '.join([case.name, type(net).__name__, model.arch, who, *cells])} |", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to check; all of them when none is named")
    wanted = parser.parse_args().names
    print(f"| model | class | GGUF | run by | diff | {' | '.join(TYPES)} |\n|{'---|' * (5 + len(TYPES))}")
    bad = []
    for case in cases():
        if wanted and case.name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                if not check(replace(case), Path(folder)):
                    bad.append(case.name)
            except (RuntimeError, ValueError, OSError) as e:
                print(f"{case.name}: {e}", file=sys.stderr)
                bad.append(case.name)
    if bad:
        print(f"these do not agree: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
