"""The engine against llama.cpp on real models, fed with llama.cpp's own greedy tokens (tools/record_greedy.py).

Fed with the same tokens, one early difference cannot send the two apart. Where llama.cpp's two best logits are close,
its rounding and ours may pick differently: those mismatches are printed, not counted.
"""
from __future__ import annotations

import json

import numpy as np
import pytest
from support.fixture_paths import FIXTURES
from support.real_models import available, path_of

import pantheon

pytestmark = pytest.mark.real

GREEDY = FIXTURES / "greedy"
CLEAR = 0.7  # between the two best logits

RECORDINGS = {r["model"]["file"]: r for r in (json.loads(path.read_text("utf-8")) for path in GREEDY.glob("*.json"))}


@pytest.fixture(scope="module", params=available(sorted(RECORDINGS)))
def recorded(request):
    """(the recording, the model it was made with)"""
    recording = RECORDINGS[request.param]
    path = path_of(request.param, request)
    assert path.stat().st_size == recording["model"]["bytes"], f"{path} is not the file that was recorded"
    with pantheon.load(str(path)) as model:
        yield recording, model


def mismatches(model, entry) -> list[str]:
    """One line per step whose best token is not llama.cpp's; those that count begin with '!'."""
    fed = entry["prompt"] + entry["tokens"][:-1]
    logits = np.asarray(model.prefill(fed, model.new_state(n_ctx=256), all_logits=True))
    assert logits.shape == (len(fed), model.n_vocab)
    assert np.isfinite(logits).all()
    lines = []
    for step, (first, high, second, low) in enumerate(entry["best"]):
        row = logits[len(entry["prompt"]) - 1 + step]
        ours = int(np.argmax(row))
        if ours != first:
            mark = "!" if high - low >= CLEAR else " "
            lines.append(f"{mark} {entry['text']!r} step {step}: llama.cpp {first} ({high}) before {second} ({low}), "
                         f"ours {ours} ({row[ours]:.3f}) before it ({row[first]:.3f})")
    return lines


def test_best_tokens_are_those_of_llama_cpp(recorded):
    recording, model = recorded
    steps = [step for entry in recording["prompts"] for step in entry["best"]]
    assert sum(high - low >= CLEAR for _, high, _, low in steps) > len(steps) // 3  # else the test would say little
    lines = [line for entry in recording["prompts"] for line in mismatches(model, entry)]
    print("\n".join(lines) or "no mismatch")
    assert not [line for line in lines if line.startswith("!")], "\n".join(lines)
    assert len(lines) <= len(steps) // 10, "\n".join(lines)


def test_logits_are_near_those_of_llama_cpp(recorded):
    """The margin between llama.cpp's two best tokens is ours too, on average."""
    recording, model = recorded
    errors = []
    for entry in recording["prompts"]:
        fed = entry["prompt"] + entry["tokens"][:-1]
        logits = np.asarray(model.prefill(fed, model.new_state(n_ctx=256), all_logits=True))
        rows = logits[len(entry["prompt"]) - 1 :]
        errors += [float(row[a] - row[b]) - (high - low)
                   for row, (a, high, b, low) in zip(rows, entry["best"], strict=True)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.5
