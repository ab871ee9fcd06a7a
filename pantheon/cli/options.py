"""Arguments that several commands share, and what they become: a loaded model, a state, sampling parameters."""
import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pantheon import hub
from pantheon.cli import streams, terminal
from pantheon.cli.errors import UsageError, describe
from pantheon.regular_file import read_regular

if TYPE_CHECKING:
    import pantheon

KV_TYPES = ("f16", "f32", "q8_0", "q4_0")


class ArgumentParser(argparse.ArgumentParser):
    """argparse with errors of one line and no abbreviated options."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


# -- numbers ----------------------------------------------------------------------------------------------------------


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """The type of an option that takes a whole number in low..high; the default high is the largest int of C."""
    def whole_number(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise argparse.ArgumentTypeError(f"{_shown(text)} is not a whole number")
        # A number of thousands of digits is out of range without being converted: Python refuses to.
        value = int(text) if len(text) < 100 else high + 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{_shown(text)} is not in {low}..{high}")
        return value

    return whole_number


def real(low: float, high: float = 3.4e38) -> Callable[[str], float]:
    """The type of an option that takes a number in low..high; the default high is what the engine's floats hold."""
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{_shown(text)} is not a number") from None
        if not low <= value <= high:    # nan is nowhere
            raise argparse.ArgumentTypeError(f"{_shown(text)} is not in {low:g}..{high:g}")
        return value

    return number


def _shown(text: str) -> str:
    """text, quoted where it would not be seen for what it is, and shortened."""
    text = text if len(text) <= 40 else f"{text[:40]}..."
    return text if re.fullmatch(r"[!-~]+", text) else repr(text)


def text(value: str) -> str:
    """The type of an option that takes a text."""
    try:
        return streams.valid(value, "the text")
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def some_text(value: str) -> str:
    """The type of an option that takes a text with something in it."""
    if not value:
        raise argparse.ArgumentTypeError("the text is empty")
    return text(value)


count = integer(1)
threads = integer(1, 256)


# -- arguments --------------------------------------------------------------------------------------------------------


MODEL = ("a GGUF file, the folder of a Hugging Face model, a safetensors file of RWKV-X with --vocab, or a known name "
         "(default: the default model, fetched on first use)")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL)
    add_vocab_argument(parser)


def add_vocab_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab", metavar="FILE", help="the World vocabulary of an RWKV-X model in safetensors")


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--ctx", type=count, metavar="N",
                       help="positions of the context (default: the model's, at most 4096)")
    group.add_argument("--kv", choices=KV_TYPES, help="type of the key/value cache (default: f16; q4_0 for qwen35moe)")
    group.add_argument("-t", "--threads", type=threads, metavar="N", help="threads (default: see `pantheon doctor`)")


def add_generation_arguments(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    group = parser.add_argument_group("generation")
    group.add_argument("-n", "--max-tokens", type=count, default=max_tokens, metavar="N",
                       help="longest answer, in tokens (default: %(default)s)")
    group.add_argument("--stop", action="append", type=some_text, default=[], metavar="TEXT",
                       help="end the answer before this text; may be given several times")
    group.add_argument("-q", "--quiet", action="store_true", help="no line of statistics on stderr")


_MAX_JSON_BYTES = 16 << 20


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise argparse.ArgumentTypeError(f"{where}: not JSON: {e}"[:500]) from None


def _template_arg(argument: str) -> tuple[str, Any]:
    name, equals, value = text(argument).partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"{argument[:100]!r} is not NAME=JSON")
    return name, _json(value, f"{name} (a text needs quotes: {name}='\"...\"')")


def _json_list(path: str) -> list[Any]:
    try:
        value = _json(read_regular(path, _MAX_JSON_BYTES).decode("utf-8"), path)
    except UnicodeDecodeError as e:
        raise argparse.ArgumentTypeError(f"{path}: not valid UTF-8 (byte {e.start})") from None
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(describe(e)) from None
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError(f"{path}: not a JSON list")
    return value


def add_template_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chat template")
    group.add_argument("--system", type=text, metavar="TEXT", help="system message")
    group.add_argument("--answer-start", type=text, metavar="TEXT",
                       help="what the answer begins with; the model goes on there")
    group.add_argument("--tools", type=_json_list, metavar="FILE", help="JSON list of the tools the model may call")
    group.add_argument("--documents", type=_json_list, metavar="FILE", help="JSON list of documents to answer from")
    group.add_argument("--template-arg", type=_template_arg, action="append", default=[], metavar="NAME=JSON",
                       help="a variable of the template, such as enable_thinking=false; may be given several times")


# (option, argument of SamplingParams, type, help). Any option of _DRAWING makes the run draw at random, with the
# defaults of SamplingParams for options that are not given; without one the most likely token is taken.
_DRAWING = (
    ("--temp", "temperature", real(0), "temperature; 0 takes the most likely token (0.8)"),
    ("--top-k", "top_k", integer(0), "keep the X most likely tokens; 0: all (40)"),
    ("--top-p", "top_p", real(0, 1), "keep the most likely tokens that together reach this probability (0.95)"),
    ("--min-p", "min_p", real(0, 1), "keep tokens at least this likely relative to the most likely one (0.05)"),
    ("--typical-p", "typical_p", real(0, 1), "keep the most typical tokens that together reach this probability (1)"),
    ("--top-n-sigma", "top_n_sigma", real(0), "keep logits within X standard deviations of the largest; 0: all (0)"),
    ("--xtc-probability", "xtc_probability", real(0, 1), "chance to drop all likely tokens but the least likely (0)"),
    ("--xtc-threshold", "xtc_threshold", real(0, 1), "how likely a token must be for that (0.1)"),
    ("--mirostat", "mirostat", integer(0, 2), "version of mirostat, in place of all above but --temp; 0: off (0)"),
    ("--mirostat-tau", "mirostat_tau", real(0), "surprise that mirostat aims at, in bits (5)"),
    ("--mirostat-eta", "mirostat_eta", real(0), "how fast mirostat gets there (0.1)"),
    ("--seed", "seed", integer(0, 2**64 - 1), "seed of the random numbers (drawn from the system)"),
)
_PENALTIES = (
    ("--repeat-penalty", "repeat_penalty", real(1e-3), "divides the likelihood of recent tokens; 1: off (1)"),
    ("--frequency-penalty", "frequency_penalty", real(-100, 100), "lowers a recent token per occurrence (0)"),
    ("--presence-penalty", "presence_penalty", real(-100, 100), "lowers every recent token once (0)"),
    ("--repeat-last-n", "repeat_last_n", integer(0), "how many recent tokens the penalties look at (64)"),
    ("--dry-multiplier", "dry_multiplier", real(0), "how much DRY lowers a token that would repeat a run; 0: off (0)"),
    ("--dry-base", "dry_base", real(1), "factor of that for every token more in the run (1.75)"),
    ("--dry-allowed-length", "dry_allowed_length", integer(0), "longest run that may be repeated (2)"),
)


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    for name, rows in (("sampling (the most likely token, unless one of these is given)", _DRAWING),
                       ("penalties", _PENALTIES)):
        group = parser.add_argument_group(name)
        for option, field, kind, text in rows:
            group.add_argument(option, dest=field, type=kind, metavar="X", help=text)


# -- what they become -------------------------------------------------------------------------------------------------


def sampling_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of SamplingParams that the command line asks for."""
    def named_values(rows: tuple[tuple[Any, ...], ...]) -> dict[str, Any]:
        return {field: getattr(args, field) for _, field, _, _ in rows if getattr(args, field) is not None}

    return {**(named_values(_DRAWING) or {"temperature": 0.0}), **named_values(_PENALTIES)}


def sampling(args: argparse.Namespace) -> "pantheon.SamplingParams":
    import pantheon

    return pantheon.SamplingParams(**sampling_fields(args))


def template_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of ChatTemplate.render that the command line gives."""
    named = {"tools": args.tools, "documents": args.documents}
    given = {name: value for name, value in named.items() if value is not None}
    for name, value in args.template_arg:
        if name in given or name in ("self", "messages", "continue_last"):
            raise UsageError(f"argument --template-arg: {name} is given otherwise")
        if name == "template" and not isinstance(value, str):
            raise UsageError("argument --template-arg: template is the name of a template, in double quotes")
        if name == "add_generation_prompt" and value and args.answer_start is not None:
            raise UsageError("argument --template-arg: add_generation_prompt and --answer-start exclude each other")
        given[name] = value
    return given


def known_model(model: str | None) -> hub.KnownModel | None:
    """The known model that MODEL means, None when it means a file. A file of the same name goes first."""
    if model is None:
        return hub.KNOWN[hub.DEFAULT_MODEL]
    return None if os.path.exists(model) else hub.KNOWN.get(model)


def system_messages(system: str | None, model: str | None) -> list[dict[str, str]]:
    """How a conversation with MODEL begins: with --system, else with what suits a known model, else with nothing."""
    entry = known_model(model)
    if system is None and entry is not None:
        system = entry.system
    return [] if system is None else [{"role": "system", "content": system}]


def find_model(model: str | None) -> Path:
    """The file that MODEL means: an existing path, or a known name, which is fetched when the cache lacks it."""
    entry = known_model(model)
    if entry is None:
        if not model:
            raise UsageError("MODEL is empty")
        try:
            os.stat(model)
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"{model}: no such file, and no known model ({', '.join(sorted(hub.KNOWN))})") from None
        return Path(model)
    if found := hub.cached(entry.name):
        return found
    terminal.note(f"fetching {entry.name} ({entry.summary}, {terminal.size(entry.size)}, {entry.license}) once, into "
                  f"{hub.cache_dir()}")
    with terminal.progress() as progress:
        return hub.fetch(entry.name, progress)


def check_vocab(path: Path, vocab: str | None) -> None:
    """UsageError where the model at path has a vocabulary of its own: --vocab means nothing there."""
    if vocab is None:
        return
    from pantheon._core.engine import is_safetensors

    if path.is_dir() or not is_safetensors(str(path)):
        raise UsageError(f"--vocab is for an RWKV-X model in a safetensors file, and {path} is none")


def load(model: str | None, vocab: str | None, threads: int | None = None) -> "pantheon.Model":
    """The model that MODEL means, loaded; a context manager. What the engine logs from now on are notes."""
    path = find_model(model)
    check_vocab(path, vocab)
    import pantheon

    terminal.show_log()
    return pantheon.load(str(path), vocab_path=vocab, threads=threads)
