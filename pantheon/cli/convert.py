"""`pantheon convert`: the folder of a Hugging Face model as a GGUF file."""
import argparse
import os

from pantheon.cli import terminal
from pantheon.cli.errors import UsageError

SUMMARY = "write a Hugging Face model as a GGUF file"

TYPES = ("f32", "f16", "bf16", "q8_0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="MODEL", help="folder with config.json, safetensors and a tokenizer")
    parser.add_argument("out", metavar="OUT.gguf", help="the file to write")
    parser.add_argument("--type", choices=TYPES, default="f16",
                        help="type of the matrices (default: %(default)s); ternary ones stay ternary")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT.gguf when it exists")
    parser.add_argument("--no-tokenizer", action="store_true",
                        help="write no tokenizer: a file that runs by token ids only")


def run(args: argparse.Namespace) -> int:
    if not args.folder or not args.out:
        raise UsageError("MODEL and OUT.gguf must not be empty")
    from pantheon.convert import convert

    with terminal.progress() as progress:
        convert(args.folder, args.out, args.type, args.force, not args.no_tokenizer, progress)
    terminal.note(f"wrote {args.out}, {terminal.size(os.path.getsize(args.out))}")
    return 0
