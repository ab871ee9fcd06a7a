"""The generation loop: prefill, then sample, decode and stop, one token at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pantheon._core.binding import State
from pantheon._core.sampler import logprobs as token_logprobs
from pantheon._core.sampler import sample
from pantheon._core.sampling_params import SamplingParams
from pantheon.errors import ContextFullError
from pantheon.text.stop import StopMatcher
from pantheon.text.stream import DetokenizeStream

if TYPE_CHECKING:
    from pantheon.model import Model, Prompt


class Chunk(NamedTuple):
    """What one token adds to an answer."""

    text: str                    # complete characters to show; "" while one, or a stop string, may be under way
    token: int                   # the token; the one that ended the generation has no text of its own
    logprob: float | None        # natural log of its probability before any sampling parameter, when asked for
    finish_reason: str | None    # None; at the end "stop" (end of generation or a stop string) or "length"


def prompt_tokens(model: Model, prompt: Prompt) -> list[int]:
    """Token ids of a prompt: a str (BOS as the model wants), a list of chat messages (through the model's template), or
    token ids, which are taken as they are."""
    if isinstance(prompt, str):
        return model.tokenizer.encode(prompt)
    items: list[Any] = list(prompt)
    if items and all(isinstance(item, dict) for item in items):
        return model.tokenizer.encode_chat(model.chat_template.render(items))
    return items


def generate(model: Model, prompt: Prompt, params: SamplingParams | None = None, *, max_tokens: int | None = None,
             stop: str | Iterable[str] = (), state: State | None = None,
             logprobs: bool = False) -> Generator[Chunk, None, None]:
    """Generates the continuation of prompt: an iterator of Chunk, the last with its finish_reason.

    prompt      str, chat messages ({"role": ..., "content": ...}), or token ids; not empty
    params      SamplingParams; None = its defaults. It owns the random state, which moves on
    max_tokens  most tokens of the answer; None = until the context is full
    stop        strings that end the answer; their text is not part of it
    state       a State that the prompt continues; None = a fresh one for this answer. Afterwards it holds the prompt
                and the answer but for its last token
    logprobs    whether to compute Chunk.logprob

    Raises ValueError for bad arguments, ContextFullError for a prompt that does not fit; at once, not at the first
    chunk.
    """
    if not isinstance(prompt, str):
        prompt = list(prompt)
    chat = bool(prompt) and isinstance(prompt[0], dict)
    ids = prompt_tokens(model, prompt)
    if not ids:
        raise ValueError("prompt: there are no tokens in it")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}, not at least 1")
    if isinstance(stop, str):
        stop = [stop]
    stop = list(stop)
    if chat:
        stop += model.tokenizer.chat_stops
    matcher = StopMatcher(stop)
    params = SamplingParams() if params is None else params
    with ExitStack() as stack:
        if state is None:
            state = stack.enter_context(model.new_state(n_ctx=_context(model, len(ids), max_tokens)))
        if len(ids) > state.n_ctx - state.pos:
            raise ContextFullError(f"the prompt has {len(ids)} tokens, and {state.n_ctx - state.pos} of n_ctx "
                                   f"{state.n_ctx} are free")
        return _answer(model, ids, params, max_tokens, matcher, state, logprobs, stack.pop_all())


def _context(model: Model, n_prompt: int, max_tokens: int | None) -> int | None:
    """Positions for a state of this one answer."""
    if max_tokens is None:
        return None
    return min(model.n_ctx_train, max(n_prompt + max_tokens, 1))


def _answer(model: Model, ids: list[int], params: SamplingParams, max_tokens: int | None, matcher: StopMatcher,
            state: State, logprobs: bool, resources: ExitStack) -> Generator[Chunk, None, None]:
    tokenizer = model.tokenizer
    stream = DetokenizeStream(tokenizer)
    banned = sorted(tokenizer.vocab.suppressed)
    window = max(params.repeat_last_n, params.dry_penalty_last_n)
    recent = list(ids[-window:]) if window else []
    produced = 0
    with resources:
        logits = model.prefill(ids, state)
        while True:
            logits[tokenizer.n_tokens:] = -np.inf
            logits[banned] = -np.inf
            raw = logits.copy() if logprobs else None
            token = sample(logits, params, recent)
            logprob = float(token_logprobs(raw, [token])[0]) if raw is not None else None
            produced += 1
            if token in tokenizer.eog_ids:
                yield Chunk(matcher.feed(stream.flush()) + matcher.flush(), token, logprob, "stop")
                return
            text = matcher.feed(stream.step(token))
            if matcher.matched is not None:
                yield Chunk(text, token, logprob, "stop")
                return
            if produced == max_tokens or state.pos == state.n_ctx:
                text += matcher.feed(stream.flush())
                reason = "length" if matcher.matched is None else "stop"
                yield Chunk(text + matcher.flush(), token, logprob, reason)
                return
            yield Chunk(text, token, logprob, None)
            if window:
                recent.append(token)
                del recent[:-window]
            logits = model.forward(token, state)
