"""Makes tests/fixtures/rwkv/<name>.npz: logits of the published RWKV-X package on the seeded models of the tests.

    python -m venv /tmp/rwkv && /tmp/rwkv/bin/pip install torch==2.13.0 rwkv-x==0.2.7 numpy
    /tmp/rwkv/bin/python tools/make_rwkv_goldens.py [NAME ...]

Everything in float32 on the CPU, with the weights that the file of the recipe stands for. Arrays:

tokens (96,), logits (96, n_vocab)        one prefill, every position
decoded (500,), decode_logits (50, ...)   single tokens after it, logits of every tenth
full_logits (50, ...)                     the same single tokens when every token is remembered (models with attention)
margin                                    smallest relative gap between a selected token's loss and a forgotten one's

manifest.json beside them says what made each.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rwkv_x import model as memory_model
from rwkv_x import model_old as full_model
from tiny import manifest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from support import rwkv_models  # noqa: E402

OUT = ROOT / "tests" / "fixtures" / "rwkv"
torch.set_num_threads(1)  # the products are tiny
N_PROMPT, N_DECODE, EVERY = 96, 500, 10
MIN_MARGIN = 1e-3  # float noise is far below this


def checkpoint(recipe: rwkv_models.Recipe, path: Path) -> None:
    """The .pth file that the package reads: names with prefixes, LoRA matrices as (in, out)."""
    arrays = rwkv_models.tensors(recipe)
    prefix = "" if recipe.prefix else "rwkv."
    torch.save({prefix + name: torch.from_numpy(x.copy()) for name, x in arrays.items()}, path)


def watch_margin(margins: list[float], recipe: rwkv_models.Recipe) -> None:
    """Records how clear every selection is."""
    original = memory_model.RWKVBlock.calculate_layer_memory_loss

    def watched(block, state, k, v):
        loss = original(block, state, k, v)
        n = len(loss)
        keep = max(1, int(n * recipe.keep_ratio)) if recipe.keep_ratio else min(n, recipe.keep_tokens or 128)
        ordered = torch.sort(loss, descending=True).values
        if keep < n:
            margins.append(float((ordered[keep - 1] - ordered[keep]) / ordered[keep]))
        return loss

    memory_model.RWKVBlock.calculate_layer_memory_loss = watched


def run(model, recipe: rwkv_models.Recipe) -> tuple[np.ndarray, np.ndarray]:
    prompt = rwkv_models.tokens(recipe, N_PROMPT).tolist()
    logits, state = model.forward(prompt, None, full_output=True)
    rows = []
    for i, token in enumerate(rwkv_models.tokens(recipe, N_DECODE, salt=1).tolist()):
        out, state = model.forward(token, state)
        if i % EVERY == 0:
            rows.append(out.numpy())
    return logits.numpy(), np.stack(rows)


def make(recipe: rwkv_models.Recipe) -> dict:
    """Writes the logits of one recipe and returns its entry of the manifest."""
    margins: list[float] = []
    original = memory_model.RWKVBlock.calculate_layer_memory_loss
    watch_margin(margins, recipe)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pth"
        checkpoint(recipe, path)
        config = memory_model.RWKV_X_Memory_Config(
            memory_keep_tokens=None if recipe.keep_ratio else recipe.keep_tokens or 128,
            memory_keep_ratio=recipe.keep_ratio,
        )
        logits, decoded = run(memory_model.RWKV_X(str(path), "cpu fp32", config), recipe)
        arrays = {"logits": logits, "decode_logits": decoded}
        if recipe.n_attn:
            full, arrays["full_logits"] = run(full_model.RWKV_X(str(path), "cpu fp32"), recipe)
            assert np.abs(full - logits).max() < 1e-3  # the prompt itself is attended to in the same way
            gap = np.abs(arrays["full_logits"] - decoded).max()
            print(f"    memory and full differ by {gap:.2f}")
    memory_model.RWKVBlock.calculate_layer_memory_loss = original
    margin = min(margins, default=1.0)
    print(f"{recipe.name}: deviation {logits.std():.2f}, margin of the selection {margin:.1e}")
    if margin < MIN_MARGIN:
        raise ValueError(f"{recipe.name}: the selection hangs on a gap of {margin}; take another seed")
    np.savez_compressed(
        OUT / f"{recipe.name}.npz",
        tokens=rwkv_models.tokens(recipe, N_PROMPT),
        decoded=rwkv_models.tokens(recipe, N_DECODE, salt=1),
        margin=margin,
        **arrays,
    )
    return manifest.provenance(__file__, recipe.seed, ("torch", "rwkv-x", "numpy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*rwkv_models.RECIPES, []])
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = parser.parse_args().names or rwkv_models.RECIPES
    manifest.update(OUT, {name: make(rwkv_models.RECIPES[name]) for name in wanted}, list(rwkv_models.RECIPES))


if __name__ == "__main__":
    main()
