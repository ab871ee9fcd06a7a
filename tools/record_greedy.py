"""Records llama.cpp's greedy continuations: tests/fixtures/greedy/<name>.json.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python==0.3.36   # builds llama.cpp: 10-20 min
    /tmp/peer/bin/python tools/record_greedy.py smollm2 SmolLM2-135M-Instruct.Q4_1.gguf
    /tmp/peer/bin/python tools/record_greedy.py qwen2.5-0.5b Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf

Per prompt: its token ids, the 32 tokens of highest logit one after another (end-of-text is not a reason to stop: the
tokens are fed to the engine under test, not read), and the two best ids and logits of each step. `tokenised` is one
awkward text and its ids. The file also says what it was made with. Weights stay as they are in the file (no repacking,
no AMX), so that a recording depends little on the machine.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from peers.llama_c import VERSION, Peer

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "greedy"
N_NEW = 32

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village at the edge of a dark forest, there lived",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "SELECT name, COUNT(*) FROM orders WHERE",
    "Der schnelle braune Fuchs springt über den faulen Hund. Am nächsten Morgen",
    "今天天气很好，我们",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "<|im_start|>user\nWrite a haiku about the sea.<|im_end|>\n<|im_start|>assistant\n",
]
AWKWARD = "Naïve café — 日本語のテキスト 🦙🇫🇷👩‍👩‍👧  1234567890  3.14\n\n\tfoo    bar\r\n  Ünïcödé… l'été don't"


def continue_greedily(peer: Peer, prompt: list[int]) -> tuple[list[int], list[list[float]]]:
    """The N_NEW best tokens after the prompt, and for each [id, logit, second id, second logit]."""
    peer.forget()
    logits = peer.decode(prompt)
    tokens, best = [], []
    for _ in range(N_NEW):
        second, first = (int(i) for i in np.argsort(logits, kind="stable")[-2:])
        best.append([first, round(float(logits[first]), 4), second, round(float(logits[second]), 4)])
        tokens.append(first)
        logits = peer.decode([first])
    return tokens, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="name of the recording")
    parser.add_argument("model", type=Path, help="GGUF file")
    args = parser.parse_args()
    peer = Peer(str(args.model), plain=True)
    peer.start(n_ctx=256, n_batch=256, threads=2)
    recording = {
        "model": {
            "file": args.model.name,
            "bytes": args.model.stat().st_size,
            "sha256": hashlib.sha256(args.model.read_bytes()).hexdigest(),
        },
        "peer": {
            "llama-cpp-python": VERSION,
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "python": sys.version.split()[0],
            "kv_cache": "f16",
            "weights": "as in the file",
            "n_threads": 2,
        },
        "tokenised": {"text": AWKWARD, "tokens": peer.tokenise(AWKWARD)},
        "prompts": [],
    }
    for text in PROMPTS:
        prompt = peer.tokenise(text)
        tokens, best = continue_greedily(peer, prompt)
        print(repr(text), "->", repr(peer.text_of(tokens)))
        recording["prompts"].append({"text": text, "prompt": prompt, "tokens": tokens, "best": best})
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"{args.name}.json", "w", encoding="utf-8") as file:
        prompts = recording.pop("prompts")
        head = json.dumps(recording, ensure_ascii=False, indent=1).rstrip("\n}")
        body = ",\n  ".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)
        file.write(head + "\n },\n \"prompts\": [\n  " + body + "\n ]\n}\n")


if __name__ == "__main__":
    main()
