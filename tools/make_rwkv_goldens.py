"""Makes tests/fixtures/rwkv/<name>.npz: logits of the published RWKV-X package on the seeded models of the tests.

    python -m venv /tmp/rwkv && /tmp/rwkv/bin/pip install torch==2.13.0 rwkv-x==0.2.7 safetensors numpy
    /tmp/rwkv/bin/python tests/support/rwkv_models.py /tmp/models
    /tmp/rwkv/bin/python tools/make_rwkv_goldens.py /tmp/models [NAME ...]

Everything in float32 on the CPU, with the weights that each NAME.safetensors stands for and the tokens of the NAME.json
beside it. Arrays:

tokens (96,), logits (96, n_vocab)        one prefill, every position
decoded (500,), decode_logits (50, ...)   single tokens after it, logits of every tenth
full_logits (50, ...)                     the same single tokens when every token is remembered (models with attention)
margin                                    smallest relative gap between a selected token's loss and a forgotten one's

manifest.json beside them says what made each.
"""
from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from rwkv_x import model as memory_model
from rwkv_x import model_old as full_model
from safetensors.torch import load_file
from tiny import manifest

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "rwkv"
torch.set_num_threads(1)  # the products are tiny
EVERY = 10  # decoded tokens whose logits are kept
MIN_MARGIN = 1e-3  # float noise is far below this


def checkpoint(model: Path, recipe: dict, path: Path) -> None:
    """The .pth file that the package reads: names with prefixes, LoRA matrices as (in, out)."""
    loras = tuple(f".att.{name}{i}" for name in "wagv" for i in (1, 2))
    prefix = "" if recipe["prefix"] else "rwkv."
    torch.save({prefix + name: (x.T if recipe["lora_out_in"] and name.endswith(loras) else x).float().contiguous()
                for name, x in load_file(model).items()}, path)


def watch_margin(margins: list[float], recipe: dict) -> None:
    """Records how clear every selection is."""
    original = memory_model.RWKVBlock.calculate_layer_memory_loss

    def watched(block, state, k, v):
        loss = original(block, state, k, v)
        n = len(loss)
        ratio = recipe["keep_ratio"]
        keep = max(1, int(n * ratio)) if ratio else min(n, recipe["keep_tokens"] or 128)
        ordered = torch.sort(loss, descending=True).values
        if keep < n:
            margins.append(float((ordered[keep - 1] - ordered[keep]) / ordered[keep]))
        return loss

    memory_model.RWKVBlock.calculate_layer_memory_loss = watched


def run(model, recipe: dict) -> tuple[np.ndarray, np.ndarray]:
    logits, state = model.forward(recipe["tokens"], None, full_output=True)
    rows = []
    for i, token in enumerate(recipe["decoded"]):
        out, state = model.forward(token, state)
        if i % EVERY == 0:
            rows.append(out.numpy())
    return logits.numpy(), np.stack(rows)


def make(model: Path) -> dict:
    """Writes the logits of one model and returns its entry of the manifest."""
    recipe = json.loads(model.with_suffix(".json").read_text("utf-8"))
    margins: list[float] = []
    original = memory_model.RWKVBlock.calculate_layer_memory_loss
    watch_margin(margins, recipe)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pth"
        checkpoint(model, recipe, path)
        config = memory_model.RWKV_X_Memory_Config(
            memory_keep_tokens=None if recipe["keep_ratio"] else recipe["keep_tokens"] or 128,
            memory_keep_ratio=recipe["keep_ratio"],
        )
        logits, decoded = run(memory_model.RWKV_X(str(path), "cpu fp32", config), recipe)
        arrays = {"logits": logits, "decode_logits": decoded}
        if recipe["n_attn"]:
            full, arrays["full_logits"] = run(full_model.RWKV_X(str(path), "cpu fp32"), recipe)
            assert np.abs(full - logits).max() < 1e-3  # the prompt itself is attended to in the same way
            gap = np.abs(arrays["full_logits"] - decoded).max()
            print(f"    memory and full differ by {gap:.2f}")
    memory_model.RWKVBlock.calculate_layer_memory_loss = original
    margin = min(margins, default=1.0)
    print(f"{model.stem}: deviation {logits.std():.2f}, margin of the selection {margin:.1e}")
    if margin < MIN_MARGIN:
        raise ValueError(f"{model.stem}: the selection hangs on a gap of {margin}; take another seed")
    np.savez_compressed(
        OUT / f"{model.stem}.npz",
        tokens=np.array(recipe["tokens"], np.int32),
        decoded=np.array(recipe["decoded"], np.int32),
        margin=margin,
        **arrays,
    )
    return manifest.provenance(__file__, recipe["seed"], ("torch", "rwkv-x", "numpy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what tests/support/rwkv_models.py wrote")
    parser.add_argument("names", nargs="*", help="models to run; all of them when none is named")
    options = parser.parse_args()
    models = {path.stem: path for path in sorted(options.folder.glob("*.safetensors"))}
    OUT.mkdir(parents=True, exist_ok=True)
    manifest.update(OUT, {name: make(models[name]) for name in options.names or models}, list(models))


if __name__ == "__main__":
    main()
