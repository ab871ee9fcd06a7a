"""`pantheon run`: one prompt, one answer."""
import argparse
import os
from typing import TYPE_CHECKING

from pantheon.cli import options, streams, terminal
from pantheon.cli.errors import UsageError

if TYPE_CHECKING:
    import pantheon

SUMMARY = "answer one prompt"
MAX_TOKENS = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pantheon run [options] [MODEL] PROMPT"
    parser.add_argument("model_and_prompt", nargs="+", metavar="[MODEL] PROMPT",
                        help=f"{options.MODEL}, then the prompt; - reads the prompt from stdin")
    options.add_vocab_argument(parser)
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    options.add_template_arguments(parser)
    options.add_generation_arguments(parser, MAX_TOKENS)
    options.add_sampling_arguments(parser)
    options.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> int:
    model_name, prompt = _model_and_prompt(args.model_and_prompt)
    of_template = _of_template(args)
    if args.raw and of_template:
        raise UsageError(f"{of_template} belongs to the chat template, which --raw leaves out")
    from pantheon.cli.session import Session

    with options.load(model_name, args.vocab, args.threads) as model, Session(model, args.ctx, args.kv) as session:
        tokens, stop = _tokens(model, model_name, prompt, args)
        at_line_start = True
        start = args.answer_start or ""
        try:
            for chunk in session.answer(tokens, options.sampling(args), args.max_tokens, stop):
                if text := start + chunk.text:
                    terminal.write(text)
                    at_line_start = text.endswith("\n")
                    start = ""
        finally:
            if not at_line_start:
                terminal.write("\n")
        if not args.quiet:
            terminal.note(f"{session.timing}")
            if session.timing.finish_reason == "length":
                more = session.timing.capped or "-n and --ctx allow more"
                terminal.note(f"the answer was cut at {session.timing.n_answer} tokens; {more}")
    return 0


def _tokens(model: "pantheon.Model", model_name: str | None, prompt: str,
            args: argparse.Namespace) -> tuple[list[int], list[str]]:
    """The prompt as token ids, and what ends the answer: in the model's chat template; as it is with --raw and for a
    model that has none."""
    from pantheon.cli.prompt import PromptEncoder

    encoder = PromptEncoder(model, options.template_arguments(args))
    if args.raw or not encoder.has_template:
        if of_template := _of_template(args):
            raise UsageError(f"{model.path} has no chat template, so there is no place for {of_template}")
        return encoder.text(prompt), args.stop
    messages = [*options.system_messages(args.system, model_name), {"role": "user", "content": prompt}]
    return encoder.chat(messages, args.answer_start), [*args.stop, *encoder.chat_stops]


def _of_template(args: argparse.Namespace) -> str | None:
    """An option that was given and means nothing without a chat template."""
    given = {"--system": args.system, "--answer-start": args.answer_start, "--tools": args.tools,
             "--documents": args.documents, "--template-arg": args.template_arg or None}
    return next((option for option, value in given.items() if value is not None), None)


def _model_and_prompt(words: list[str]) -> tuple[str | None, str]:
    if len(words) > 2:
        raise UsageError(f"{len(words)} arguments where MODEL and PROMPT are expected; put the prompt in quotes")
    model, prompt = words if len(words) == 2 else (None, words[0])
    if model is None and _is_model(prompt):
        raise UsageError(f"{prompt} is a model; the prompt is missing")
    prompt = streams.read_all() if prompt == "-" else streams.valid(prompt, "the prompt")
    if not prompt:
        raise UsageError("the prompt is empty")
    return model, prompt


def _is_model(path: str) -> bool:
    return (path.lower().endswith((".gguf", ".safetensors")) and os.path.exists(path)
            or os.path.exists(os.path.join(path, "config.json")))
