"""Records llama.cpp's greedy continuations: tests/fixtures/greedy/<name>.json.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python==0.3.36   # builds llama.cpp: 10-20 min
    /tmp/peer/bin/python tools/record_greedy.py smollm2 SmolLM2-135M-Instruct.Q4_1.gguf
    /tmp/peer/bin/python tools/record_greedy.py qwen2.5-0.5b Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf

Where the processor has AMX, a native build of 0.3.36 can crash in its matrix product (ggml_backend_amx_mul_mat). Build
it without, by naming the instruction sets instead:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX_VNNI=ON
        -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON" pip install ...

Per prompt: its token ids, the 32 tokens of highest logit one after another (end-of-text is not a reason to stop: the
tokens are fed to the engine under test, not read), and the two best ids and logits of each step. `tokenised` is one
awkward text and its ids. The file also says what it was made with.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import numpy as np

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


def tokenise(llm: llama_cpp.Llama, text: str) -> list[int]:
    """Token ids without BOS (neither recorded model adds one); control tokens in the text are recognised."""
    return llm.tokenize(text.encode(), add_bos=False, special=True)


def continue_greedily(llm: llama_cpp.Llama, prompt: list[int]) -> tuple[list[int], list[list[float]]]:
    """The N_NEW best tokens after the prompt, and for each [id, logit, second id, second logit]."""
    llm.reset()
    llm.eval(prompt)
    tokens, best = [], []
    for _ in range(N_NEW):
        logits = np.array(llm.scores[llm.n_tokens - 1])
        second, first = (int(i) for i in np.argsort(logits, kind="stable")[-2:])
        if logits[second] == logits[first]:
            first, second = sorted((first, second))
        best.append([first, round(float(logits[first]), 4), second, round(float(logits[second]), 4)])
        tokens.append(first)
        llm.eval([first])
    return tokens, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="name of the recording")
    parser.add_argument("model", type=Path, help="GGUF file")
    args = parser.parse_args()
    llm = llama_cpp.Llama(str(args.model), n_ctx=256, n_batch=256, n_threads=2, logits_all=True, verbose=False)
    recording = {
        "model": {
            "file": args.model.name,
            "bytes": args.model.stat().st_size,
            "sha256": hashlib.sha256(args.model.read_bytes()).hexdigest(),
        },
        "peer": {
            "llama-cpp-python": version("llama-cpp-python"),
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "python": sys.version.split()[0],
            "kv_cache": "f16",
            "n_threads": 2,
        },
        "tokenised": {"text": AWKWARD, "tokens": tokenise(llm, AWKWARD)},
        "prompts": [],
    }
    for text in PROMPTS:
        prompt = tokenise(llm, text)
        tokens, best = continue_greedily(llm, prompt)
        print(repr(text), "->", repr(llm.detokenize(tokens).decode(errors="replace")))
        recording["prompts"].append({"text": text, "prompt": prompt, "tokens": tokens, "best": best})
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"{args.name}.json", "w", encoding="utf-8") as file:
        prompts = recording.pop("prompts")
        head = json.dumps(recording, ensure_ascii=False, indent=1).rstrip("\n}")
        body = ",\n  ".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)
        file.write(head + "\n },\n \"prompts\": [\n  " + body + "\n ]\n}\n")


if __name__ == "__main__":
    main()
