"""`pantheon info`: what is in a model file and what running it needs. Reads the header only, never the weights."""
import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pantheon.cli import options, terminal

if TYPE_CHECKING:
    import pantheon

SUMMARY = "show a model's configuration, its tensors by type and the memory it needs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model_arguments(parser)
    parser.add_argument("--ctx", type=options.count, action="append", metavar="N",
                        help="context to state the memory for; may be given several times (default: the model's, at "
                             "most 4096)")
    parser.add_argument("--kv", choices=options.KV_TYPES, action="append",
                        help="key/value cache type to state the memory for; may be given several times (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    with options.load(args.model, args.vocab) as model:
        report = collect(model, args.ctx or [None], args.kv or options.KV_TYPES)
    if args.json:
        terminal.line(json.dumps(report, indent=2))
    else:
        _print(report)
    return 0


def collect(model: "pantheon.Model", contexts: Iterable[int | None], kv_types: Iterable[str]) -> dict[str, Any]:
    """Everything that `pantheon info` says of model, as plain JSON values."""
    return {
        "path": model.path,
        "mapped": model.mapped,
        "arch": model.arch,
        "config": model.config,
        "tensors": tensors_by_type(model),
        "states": [_state(model, n_ctx, kv_type) for n_ctx in contexts for kv_type in kv_types],
    }


def tensors_by_type(model: "pantheon.Model") -> list[dict[str, Any]]:
    """Per weight type of a model's files: tensors, their elements and bytes; most bytes first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    with model.gguf() if model.container == "gguf" else model.safetensors() as file:
        for tensor in file.tensors:
            entry = sums[tensor.type]
            entry[0] += 1
            entry[1] += math.prod(tensor.shape)
            entry[2] += tensor.nbytes
    return [{"type": name, "tensors": tensors, "elements": elements, "bytes": nbytes}
            for name, (tensors, elements, nbytes) in sorted(sums.items(), key=lambda item: -item[1][2])]


def _state(model: "pantheon.Model", n_ctx: int | None, kv_type: str) -> dict[str, Any]:
    """Price of one sequence, from the engine's cost function: nothing is allocated for it."""
    cost = model.cost(n_ctx, kv_type)
    return {"n_ctx": cost.n_ctx, "kv_type": cost.kv_type, "bytes": cost.total, "kv_bytes": cost.kv_bytes,
            "state_bytes": cost.state_bytes, "scratch_bytes": cost.scratch_bytes, "logits_bytes": cost.logits_bytes}


def _print(report: dict[str, Any]) -> None:
    terminal.title(report["path"])
    terminal.table([["  weights are", "mapped" if report["mapped"] else "read into memory"],
                    ["  architecture", report["arch"]],
                    *([f"  {name}", str(value)] for name, value in report["config"].items())])
    tensors = report["tensors"]
    terminal.table([[f"  {t['type']}", str(t["tensors"]), f"{t['elements']:,}", terminal.size(t["bytes"])]
                    for t in tensors], header=["  weights", "tensors", "elements", "size"])
    weights = sum(t["bytes"] for t in tensors)
    columns = ("kv_bytes", "state_bytes", "scratch_bytes", "logits_bytes", "bytes")
    terminal.table([[f"  {s['n_ctx']}", s["kv_type"] or "none", *(terminal.size(s[name]) for name in columns),
                     terminal.size(weights + s["bytes"])] for s in report["states"]],
                   header=["  context", "kv", "kv cache", "state", "scratch", "logits", "one sequence",
                           "with all weights"])
