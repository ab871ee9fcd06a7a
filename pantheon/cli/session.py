"""One conversation: a state and the tokens in it.

A prompt that begins with the tokens of the last one and its answer costs only what is new.
"""
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pantheon.cli.errors import UsageError
from pantheon.cli.terminal import rate
from pantheon.prefix_cache import go_on

if TYPE_CHECKING:
    import pantheon
    from pantheon import Chunk, SamplingParams


@dataclass
class Timing:
    """What one answer cost. Prompt time ends with the answer's first token, which the prompt's last logits gave."""

    n_cached: int = 0        # prompt tokens that were in the state already
    n_prompt: int = 0        # prompt tokens that were fed
    prompt_seconds: float = 0.0
    n_answer: int = 0        # tokens of the answer
    answer_seconds: float = 0.0
    finish_reason: str | None = None
    capped: str = ""         # why the answer was to be shorter than asked for: what admission said

    def __str__(self) -> str:
        cached = f" + {self.n_cached} cached" if self.n_cached else ""
        return (f"prompt tokens {rate(self.n_prompt, self.prompt_seconds)}{cached}; "
                f"answer tokens {rate(self.n_answer, self.answer_seconds)}")


class Session:
    """A state of model and what it holds. Use it as a context manager; it closes the state, not the model."""

    def __init__(self, model: "pantheon.Model", n_ctx: int | None = None, kv_type: str | None = None) -> None:
        self.model = model
        self.state = model.new_state(n_ctx=n_ctx, kv_type=kv_type)
        self.tokens: list[int] = []     # the first state.pos of them are what the state holds
        self.timing = Timing()          # of the last answer

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.state.close()

    def reset(self) -> None:
        self.state.reset()
        self.tokens = []

    def answer(self, prompt: Sequence[int], params: "SamplingParams", max_tokens: int,
               stop: Sequence[str]) -> Generator["Chunk", None, None]:
        """Feeds the part of prompt (token ids) that the state does not hold, then yields the answer's chunks.

        However the iteration ends, by interrupts too, the session knows afterwards what its state holds.
        """
        known = list(prompt)
        room = self.state.n_ctx - len(known)
        if room < 1:
            raise UsageError(f"the prompt has {len(known)} tokens and the context {self.state.n_ctx} positions, "
                             "one of them for the answer; --ctx sets a larger one")
        keep = go_on(self.state, self.tokens, known, len(known) + min(max_tokens, room))
        self.tokens = known             # grows with the answer, ahead of the state
        self.timing = timing = Timing(n_cached=keep, n_prompt=len(known) - keep)
        begin = time.perf_counter()
        first = None
        try:
            with closing(self.model.generate(known[keep:], params, max_tokens=min(max_tokens, room), stop=list(stop),
                                             state=self.state)) as chunks:
                if chunks.verdict.status == "CAPPED":
                    timing.capped = chunks.verdict.reason
                for chunk in chunks:
                    if first is None:
                        first = time.perf_counter()
                    if chunk.token is not None:
                        known.append(chunk.token)
                        timing.n_answer += 1
                    if chunk.finish_reason is not None:
                        timing.finish_reason = chunk.finish_reason
                    yield chunk
        finally:
            end = time.perf_counter()
            timing.prompt_seconds = (end if first is None else first) - begin
            timing.answer_seconds = 0.0 if first is None else end - first
