"""Makes the tiny golden models: tests/fixtures/tiny/<name>.gguf, <name>.npz and manifest.json.

    python -m venv /tmp/tiny && /tmp/tiny/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 .
    /tmp/tiny/bin/python tools/make_tiny_models.py [NAME ...]

Each model is a seeded Hugging Face model in float32, eager attention. An .npz holds `tokens` (96,) int32 and `logits`
(96, n_vocab) float32 of the weights that the file stands for; where the file is quantised also `logits_int8`, the same
model with the input of each matrix rounded to int8 by the engine's rule; where the manifest has `short` also
`short_logits`, those of the first `short` tokens alone, for a state of as many positions (LongRoPE's other factors).
The manifest says what each fixture is for, within what the engine must agree, and what made it. A fixture whose logits
would not notice the mistakes that it is there to catch is refused.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tiny import convert, manifest, qwen35, reference
from tiny.recipes import RECIPES, Recipe

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tiny"

PACKAGES = ("torch", "transformers", "gguf", "numpy")
INT8_POSITIONS = slice(3, None, 4)  # whose int8 logits are kept
LONG_POSITIONS = slice(31, None, 32)  # of a long prompt, whose logits are kept
MAX_DIFF = 2e-3
MAX_KL = 1e-6
NOTICEABLE = 0.1  # a mistake moves some logit by at least this much: fifty times what a right engine may


def check_notices(recipe: Recipe, model, tokens: np.ndarray, logits: np.ndarray) -> None:
    """Raises unless each mistake that the recipe lists would change the logits clearly."""
    wrongs = {}
    for mistake, fields in recipe.notice.items():
        wrongs[mistake] = reference.build(reference.changed(recipe.config, fields))
        wrongs[mistake].load_state_dict(model.state_dict())
    for mistake, change in recipe.notice_weights.items():
        wrongs[mistake] = reference.build(recipe.config)
        wrongs[mistake].load_state_dict(change(model.state_dict(), model.config))
    for mistake, wrong in wrongs.items():
        moved = float(np.abs(reference.logits(wrong, tokens) - logits).max())
        print(f"    {mistake}: moves a logit by {moved:.2f}")
        if moved < NOTICEABLE:
            raise ValueError(f"{recipe.name} does not notice {mistake!r}: {moved}")


def make(recipe: Recipe) -> dict:
    """Writes the files of one recipe and returns its entry of the manifest."""
    model = reference.build(recipe.config)
    reference.draw_weights(model, recipe.seed)
    data, blocks = convert.quantise(model, recipe)
    tokens = reference.prompt(recipe)
    logits = reference.logits(model, tokens)
    arrays = {"tokens": tokens, "logits": logits}
    if recipe.n_long:
        arrays["long_tokens"] = reference.prompt(recipe, recipe.n_long)
        arrays["long_logits"] = reference.logits(model, arrays["long_tokens"])[LONG_POSITIONS]
    entry = {"file": f"{recipe.name}.gguf", "arch": recipe.arch, "why": recipe.why,
             **manifest.provenance(__file__, recipe.seed, PACKAGES)}
    print(f"{recipe.name}: logits have mean {logits.mean():.2f}, deviation {logits.std():.2f}")
    check_notices(recipe, model, tokens, logits)
    if any(blocks.values()):
        int8 = reference.logits_int8(model, tokens, blocks)
        arrays["logits_int8"] = int8[INT8_POSITIONS]
        kl = reference.kl(logits, int8)
        print(f"    int8 inputs: KL mean {kl.mean():.2e}, max {kl.max():.2e}, diff {np.abs(logits - int8).max():.3f}")
        entry |= {"expected_kl": float(f"{kl.mean():.2e}"), "max_diff": None}
    else:
        entry |= {"max_kl": MAX_KL, "max_diff": MAX_DIFF}
    if recipe.short:
        arrays["short_logits"] = reference.logits(model, tokens[:recipe.short])
        entry["short"] = recipe.short
    convert.write(model, recipe, data, OUT / entry["file"], qwen35.mtp_block(recipe) if recipe.n_mtp else None)
    np.savez_compressed(OUT / f"{recipe.name}.npz", **arrays)
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="recipes to make; all of them when none is named")
    wanted = parser.parse_args().names
    unknown = set(wanted) - {recipe.name for recipe in RECIPES}
    if unknown:
        parser.error(f"unknown recipes: {', '.join(sorted(unknown))}")
    OUT.mkdir(parents=True, exist_ok=True)
    entries = {recipe.name: make(recipe) for recipe in RECIPES if not wanted or recipe.name in wanted}
    manifest.update(OUT, entries, [recipe.name for recipe in RECIPES])


if __name__ == "__main__":
    main()
