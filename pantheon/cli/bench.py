"""`pantheon bench`: how fast a model runs on this machine, and how near that is to what the machine can do."""
import argparse
import json
from typing import Any

from pantheon.cli import options, terminal

SUMMARY = "measure a model: load, prefill, decode, memory, batches, where a step's time goes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model_arguments(parser)
    parser.add_argument("-p", "--prompt-tokens", type=options.count, default=512, metavar="N",
                        help="tokens of the prefill (default: %(default)s)")
    parser.add_argument("-n", "--decode-tokens", type=options.count, default=64, metavar="N",
                        help="single tokens after it (default: %(default)s)")
    parser.add_argument("-t", "--threads", type=options.threads, metavar="N",
                        help="threads (default: see `pantheon doctor`)")
    parser.add_argument("-r", "--repeats", type=options.count, default=5, metavar="N",
                        help="repeats after a warm-up; medians are shown (default: %(default)s)")
    parser.add_argument("--batch", type=options.count, action="append", default=[], metavar="N",
                        help="also N sequences at once, such as 2, 8 and 32; may be given several times")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    path = options.find_model(args.model)
    options.check_vocab(path, args.vocab)
    from pantheon import bench

    batches = (1, *(n for n in args.batch if n != 1)) if args.batch else ()
    result = bench.measure_apart(bench.Job(str(path), args.prompt_tokens, args.decode_tokens, args.threads,
                                           args.repeats, batches, args.vocab))
    if args.json:
        terminal.line(json.dumps(result, indent=2))
        return 0
    terminal.title(f"{result['model']}: {result['arch']}, level {result['level']}, {result['threads']} threads, "
                   f"median of {result['repeats']}")
    terminal.table(_figures(result))
    if result["batch_per_s"]:
        terminal.title("sequences at once")
        terminal.table(_batches(result["batch_per_s"]))
    terminal.title("a decode step")
    terminal.table(_breakdown(result["breakdown_s"], bench.BREAKDOWN))
    return 0


def _figures(r: dict[str, Any]) -> list[list[str]]:
    def share(fraction: float | None, limit: float | None, unit: str, name: str) -> str:
        return "" if fraction is None or limit is None else f", {fraction:.0%} of {limit / 1e9:.1f} {unit} ({name})"

    return [
        ["  load", f"{1e3 * r['load_s']:.1f} ms"],
        [f"  prefill {r['n_prompt']}", f"{r['prefill_tokens_per_s']:.1f} tokens/s"],
        ["", f"{r['prefill_multiply_adds_per_s'] / 1e9:.1f} G multiply-adds/s"
             + share(r["prefill_of_peak"], r["peak_multiply_adds_per_s"], "G", "instructions alone")],
        [f"  decode {r['n_decode']}", f"{r['decode_tokens_per_s']:.1f} tokens/s"],
        ["", f"{r['decode_read_bytes_per_s'] / 1e9:.1f} GB/s"
             + share(r["decode_of_probe"], r["probe_read_bytes_per_s"], "GB/s", "reads alone")],
        ["  peak memory", f"{terminal.size(r['peak_rss_bytes'])}, the file's pages included"],
        ["  weights read", f"{terminal.size(r['active_bytes'])} a token"],
    ]


def _batches(rates: dict[str, float]) -> list[list[str]]:
    return [[f"  {n}", f"{rate:.1f} tokens/s", f"{rate / rates['1']:.2f} x one"] for n, rate in rates.items()]


def _breakdown(seconds: dict[str, float], names: dict[str, str]) -> list[list[str]]:
    whole = sum(seconds.values())
    rows = [[f"  {names[kind]}", f"{1e6 * s:.0f} us", f"{s / whole:.1%}"] for kind, s in seconds.items()]
    rest = whole - sum(seconds[kind] for kind in ("products", "attention", "waiting"))
    return [*rows, ["  all but products, attention and waiting", f"{1e6 * rest:.0f} us", f"{rest / whole:.1%}"]]
