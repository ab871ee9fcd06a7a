"""`pantheon chat`: a conversation. Each turn feeds the model only what is new."""
import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from pantheon.cli import options, streams, terminal
from pantheon.cli.errors import UsageError
from pantheon.errors import AdmissionError

if TYPE_CHECKING:
    import pantheon
    from pantheon.cli.prompt import PromptEncoder
    from pantheon.cli.session import Session

SUMMARY = "talk with a model"
MAX_TOKENS = 1024
HELP = """\
/help   this list
/reset  forget the conversation
/exit   leave (so does Ctrl-D)
Ctrl-C stops an answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model_arguments(parser)
    options.add_template_arguments(parser)
    options.add_generation_arguments(parser, MAX_TOKENS)
    options.add_sampling_arguments(parser)
    options.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from pantheon.cli.prompt import PromptEncoder
    from pantheon.cli.session import Session

    with options.load(args.model, args.vocab, args.threads) as model:
        encoder = PromptEncoder(model, options.template_arguments(args))
        if not encoder.has_template:
            raise UsageError(f"{model.path} has no chat template; `pantheon run --raw` continues a text")
        with Session(model, args.ctx, args.kv) as session:
            _converse(Conversation(session, encoder, args))
    return 0


class Conversation:
    """The messages so far and the session whose state holds them."""

    def __init__(self, session: "Session", encoder: "PromptEncoder", args: argparse.Namespace) -> None:
        self.session = session
        self.encoder = encoder
        self.args = args
        self.params: pantheon.SamplingParams = options.sampling(args)
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        self.session.reset()
        self.messages = options.system_messages(self.args.system, self.args.model)

    def say(self, text: str) -> None:
        """One turn: writes the answer as it comes. Ctrl-C ends it; what was said by then stays in the conversation."""
        messages = [*self.messages, {"role": "user", "content": text}]
        tokens = self.encoder.chat(messages, self.args.answer_start)
        start = self.args.answer_start or ""
        said: list[str] = []
        interrupted = False
        stop = [*self.args.stop, *self.encoder.chat_stops]
        chunks = self.session.answer(tokens, self.params, self.args.max_tokens, stop)
        try:
            with closing(chunks):
                for chunk in chunks:
                    said.append(start + chunk.text)
                    start = ""
                    terminal.write(said[-1])
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if said and not said[-1].endswith("\n"):
                terminal.write("\n")
        self.messages = [*messages, {"role": "assistant", "content": "".join(said)}]
        if interrupted:
            terminal.note("stopped")
        elif not self.args.quiet:
            terminal.note(f"{self.session.timing}")


def _converse(conversation: Conversation) -> None:
    """Takes turns until the end of the input."""
    from pantheon.text import TemplateError

    for line in _typed_lines() if streams.is_terminal() else iter(streams.read_line, None):
        line = line.strip()
        if re.fullmatch(r"/[a-z]+", line):
            if not _command(line, conversation):
                return
        elif line:
            try:
                conversation.say(line)
            except (AdmissionError, TemplateError, UsageError) as e:
                # The turn was refused and left no trace; the conversation goes on, with /reset for instance.
                terminal.note(f"error: {e}")


def _typed_lines() -> Iterator[str]:
    """Lines from a terminal until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input())
    terminal.note("/help lists the commands")
    prompt = "> " if sys.stdout.isatty() else ""
    while True:
        try:
            line = streams.typed_line(prompt)
        except KeyboardInterrupt:
            terminal.note("\n/exit or Ctrl-D leaves")
        except UsageError as e:
            terminal.note(f"error: {e}")
        else:
            if line is None:
                terminal.note("")       # what follows does not stand behind the prompt
                return
            yield line


def _command(line: str, conversation: Conversation) -> bool:
    """Runs a /command; False when it ends the program."""
    if line == "/exit":
        return False
    if line == "/reset":
        conversation.reset()
        terminal.note("the conversation is forgotten")
    elif line == "/help":
        terminal.note(HELP)
    else:
        terminal.note(f"no such command: {line}; /help lists them")
    return True
