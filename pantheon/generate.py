"""The generation loop: reserve memory, prefill, then sample, decode and stop, one token at a time."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pantheon import admission
from pantheon._core.base.arguments import integer
from pantheon._core.base.single import Single
from pantheon._core.base.turn import Turn
from pantheon._core.python.state import Checkpoint, State
from pantheon._core.sampling.params import SamplingParams
from pantheon._core.sampling.sampler import logprobs as token_logprobs
from pantheon._core.sampling.sampler import sample
from pantheon.errors import BusyError, ContextFullError
from pantheon.prefix_cache import MAX_CHECKPOINTS, MIN_SHARED, PrefixCache
from pantheon.text.dry import default_breaker_ids
from pantheon.text.stop import StopMatcher
from pantheon.text.stream import DetokenizeStream
from pantheon.text.tokenizer import Tokenizer
from pantheon.text_model import Prompt, TextModel
from pantheon.verdict import Verdict

logger = logging.getLogger("pantheon")
PROGRESS = 32                    # tokens of an answer between two reports of what it has touched


class Chunk(NamedTuple):
    """What one token adds to an answer."""

    text: str                    # complete characters to show; "" while one, or a stop string, may be under way
    token: int | None            # the token; the one that ended the generation has no text of its own. None: max_tokens
                                 # was 0
    logprob: float | None        # natural log of its probability before any sampling parameter, when asked for
    finish_reason: str | None    # None; at the end "stop" (end of generation or a stop string) or "length"


def prompt_tokens(model: TextModel, prompt: Prompt, arguments: Mapping[str, Any] | None = None) -> list[int]:
    """Token ids of a prompt: a str (BOS as the model wants), a list of chat messages (through the model's template,
    which gets arguments), or token ids, which are taken as they are."""
    items: Any = prompt if isinstance(prompt, str) else list(prompt)
    if items and not isinstance(items, str) and all(isinstance(item, dict) for item in items):
        return model.tokenizer.encode_chat(model.chat_template.render(items, **(arguments or {})))
    if arguments:
        raise ValueError(f"{next(iter(arguments))}: only chat messages go through a template, the prompt is none")
    if isinstance(items, str):
        return model.tokenizer.encode(items)
    return [_token_id(item, model.n_vocab) for item in items]


def _token_id(item: Any, n_vocab: int) -> int:
    try:
        return integer("prompt: a token", item, 0, n_vocab - 1)
    except TypeError:
        raise TypeError(f"prompt: {type(item).__name__} among its items, which must be chat messages or token ids"
                        ) from None


def template_arguments(template_args: Mapping[str, Any] | None, **own: Any) -> dict[str, Any]:
    """The keywords of ChatTemplate.render: template_args, and own but for None and False."""
    if template_args is None:
        template_args = {}
    if not isinstance(template_args, Mapping) or not all(isinstance(name, str) for name in template_args):
        raise TypeError("template_args must be a mapping of names to values")
    arguments = {name: value for name, value in own.items() if value is not None and value is not False}
    for name in template_args:
        if name in ("self", "messages") or name in arguments:
            raise ValueError(f"template_args: {name!r} is given otherwise")
    return {**template_args, **arguments}


def generate(model: TextModel, prompt: Prompt, params: SamplingParams | None = None, *, max_tokens: int | None = None,
             stop: str | Iterable[str] = (), state: State | None = None, logprobs: bool = False, timeout: float = 0.0,
             tools: Sequence[Mapping[str, Any]] | None = None, documents: Sequence[Mapping[str, Any]] | None = None,
             continue_last: bool | str = False, template_args: Mapping[str, Any] | None = None) -> Generation:
    """Generates the continuation of prompt: an iterator of Chunk, the last with its finish_reason.

    prompt      str, chat messages ({"role": ..., "content": ...}), or token ids; not empty
    params      SamplingParams; None = its defaults. It owns the random state, which moves on
    max_tokens  most tokens of the answer; None = until the context is full. 0 = none: one chunk without a token comes
                when the prompt has been fed
    stop        strings that end the answer; their text is not part of it. A control token counts with its text, whole
    state       a State that the prompt continues; None = one for this answer, from the prefix cache if the model has
                one. Afterwards it holds the prompt and the answer but for its last token
    logprobs    whether to compute Chunk.logprob
    timeout     seconds to wait for running requests to end when the prompt does not fit beside them

    For chat messages only (see ChatTemplate.render):
    tools, documents  JSON objects that the template shows to the model
    continue_last     the answer goes on with the last message, whose text stands open, in place of a new one
    template_args     what else the template takes, such as {"enable_thinking": False}

    The memory of the whole request is reserved before any work, and given back when it ends in whatever way. An answer
    that does not fit in full is shorter: its verdict says CAPPED, a warning is logged, it ends with "length".

    DRY without breakers has the usual ones: a newline, a colon, a double quote, an asterisk.

    Raises TypeError or ValueError for bad arguments, ContextFullError for a prompt longer than the context,
    AdmissionError for one that does not fit into memory; at once, not at the first chunk.
    """
    if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
        raise TypeError(f"prompt must be a str, chat messages or token ids, not {type(prompt).__name__}")
    if not isinstance(params, SamplingParams | None):
        raise TypeError(f"params must be SamplingParams or None, not {type(params).__name__}")
    if not isinstance(state, State | None):
        raise TypeError(f"state must be a State or None, not {type(state).__name__}")
    if state is not None and (state.closed or state.model is not model):
        raise ValueError("state is closed" if state.closed else "state is one of another model")
    items: Any = prompt if isinstance(prompt, str) else list(prompt)
    chat = len(items) > 0 and isinstance(items[0], dict)
    ids = prompt_tokens(model, items, template_arguments(
        template_args, tools=tools, documents=documents, continue_last=continue_last))
    if not ids:
        raise ValueError("prompt: there are no tokens in it")
    if max_tokens is not None:
        max_tokens = integer("max_tokens", max_tokens, 0, 2**62)
    if isinstance(stop, bytes) or not isinstance(stop, Iterable):
        raise TypeError(f"stop must be a str or several, not {type(stop).__name__}")
    stop = [stop] if isinstance(stop, str) else list(stop)
    if chat:
        stop += model.tokenizer.chat_stops
    matcher = StopMatcher(stop)
    params = SamplingParams() if params is None else params
    return Generation(_Request(model, ids, max_tokens, state, timeout), params, matcher, logprobs)


class Generation(Single, Iterator[Chunk]):
    """What generate returns: the chunks. verdict is what admission said; close() ends the request early.

    The request's memory is given back with its last chunk, with an exception, with close(), or with the object.
    """

    def __init__(self, request: _Request, params: SamplingParams, matcher: StopMatcher, logprobs: bool) -> None:
        self._turn = Turn("the generation")
        self._request = request
        self._chunks = _answer(request, params, matcher, logprobs)
        self.verdict: Verdict = request.reservation.verdict

    def __next__(self) -> Chunk:
        try:
            with self._turn:
                return self._next()
        finally:
            if self._request.stopping:   # close came from elsewhere meanwhile, and left the end to this call
                self.close()

    def _next(self) -> Chunk:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self._request.close(failed=True)
            if isinstance(error, ValueError) and self._request.cut_short:
                raise StopIteration from None
            raise
        if chunk.finish_reason is not None:
            self._finish()
        return chunk

    def close(self) -> None:
        """Ends the request. May be called again, and from elsewhere while a chunk is being made: then that is the last
        one, or if the prompt is still being fed there is none. (A prompt goes on in a state of the caller's own up to
        the end of its window.)"""
        self._request.stopping = True
        try:
            with self._turn:
                self._finish()
        except BusyError:                # the running call sees the mark when it has given its turn back
            self._request.stop_feeding()

    def _finish(self) -> None:
        self._chunks.close()
        self._request.close()

    def __del__(self) -> None:
        if hasattr(self, "_chunks"):
            self.close()


class _Stopped(Exception):
    """The request was ended while its prompt was being fed."""


class _Request:
    """A request that was admitted: its state, its reservation, and how both end."""

    def __init__(self, model: TextModel, ids: list[int], max_tokens: int | None, state: State | None,
                 timeout: float) -> None:
        self.model = model
        self.ids = ids
        self.cache = model.prefix_cache if state is None and not model.whole_prompts else None
        self.owned = state is None
        self.checkpoints: list[Checkpoint] = []
        self.closed = False
        self.stopping = False            # nothing more is to be done for it
        self.feeding = False             # the prompt is being fed
        n = len(ids)
        n_ctx = _context(model, n, max_tokens) if state is None else state.reach
        room = n_ctx if state is None else n_ctx - state.pos
        if n > room:
            kind = "n_ctx" if state is None or state.reach == state.n_ctx else "reach"
            raise ContextFullError(f"the prompt has {n} tokens, and {room} of {kind} {n_ctx} are free")
        wanted = room - n if max_tokens is None else min(max_tokens, room - n)
        reach = n + wanted           # not what the state has room for: that depends on what else is asked of it
        kept = 0
        if self.cache is not None:
            n_ctx = max(n_ctx, self.cache.n_ctx)
            prefix = self.cache.take(ids, admission.ask(model, n, wanted, quiet=True).kv_type, n_ctx,
                                     reach)
            if prefix is not None:
                state, self.checkpoints = prefix
                kept = state.pos
        self.n_kept = kept
        self.known = list(ids)       # what the state may hold: its first state.pos tokens
        try:
            self.marks = _marks(model, ids, kept) if self.cache is not None else []
            spacious = state is None and n_ctx > n + wanted
            self.reservation = model.reserve(n - kept, wanted, n_ctx if spacious else None, state=state,
                                             checkpoints=len(self.marks), timeout=timeout)
        except BaseException:
            if self.cache is not None and state is not None:
                self.cache.put(ids[:kept], state, self.checkpoints)
            raise
        verdict = self.reservation.verdict
        fits = kept + verdict.fit_tokens
        self.max_tokens = max_tokens
        if verdict.status == "CAPPED":
            self.max_tokens = max(1, fits - n)
            if max_tokens is not None and self.max_tokens < max_tokens:
                logger.warning("max_tokens capped %d -> %d: %s", max_tokens, self.max_tokens, verdict.reason)
        try:
            self.state: State = state if state is not None else model.new_state(
                n_ctx if spacious else max(1, min(n_ctx, fits)), verdict.kv_type, reach)
        except BaseException:
            self.reservation.release()
            raise

    def prefill(self) -> Any:
        """Feeds what the state does not hold yet, in calls of the planned size: the logits of the last token.

        _Stopped when the request was ended meanwhile."""
        self.feeding = True
        try:
            return self._feed()
        finally:
            self.feeding = False

    def _feed(self) -> Any:
        window, n = self.reservation.verdict.prefill_window, len(self.ids)
        first, taken = self.n_kept, 0
        for stop in (*self.marks, n):
            while first < stop:
                end = min(first + window, stop)
                if self.stopping:
                    raise _Stopped
                logits = self.model.prefill(self.ids[first:end], self.state)
                self.reservation.progress(self.state.pos, taken)
                first = end
            if stop < n:
                self.checkpoints.append(self.state.checkpoint())
                taken += 1
        return logits

    @property
    def cut_short(self) -> bool:
        """Whether a ValueError, of a closed state, is what stop_feeding did; the prompt may have been fed just then."""
        return self.stopping and self.owned and not self.model.closed

    def stop_feeding(self) -> None:
        """Ends a prefill that is running in another thread."""
        if self.feeding and self.owned:
            self.state.close()

    def forward(self, token: int) -> Any:
        self.known.append(token)
        logits = self.model.forward(token, self.state)
        if len(self.known) % PROGRESS == 0:
            self.reservation.progress(self.state.pos, len(self.marks))
        return logits

    def close(self, failed: bool = False) -> None:
        """Frees the state, or gives it to the cache, and then the reservation. Once."""
        if self.closed:
            return
        self.closed = True
        try:
            if self.cache is not None and not failed:
                self.reservation.release()
                self._keep(self.cache)
            elif self.owned:
                self.state.close()
        finally:
            self.reservation.release()


    def _keep(self, cache: PrefixCache) -> None:
        try:
            held = self.state.pos
        except ValueError:               # closed, with its model perhaps, and perhaps just now
            return
        cache.put(self.known[:held], self.state, self.checkpoints)


def _marks(model: TextModel, ids: list[int], kept: int) -> list[int]:
    """Positions behind kept where a state that cannot go back just anywhere is to be remembered, the latest few.

    They are the ends of the prompt's messages, which other prompts may share, and the place before its last token,
    which is fed anew when the same prompt comes again, for its logits.
    """
    if model.cost(1).checkpoint_bytes == 0:
        return []
    ends = model.tokenizer.eog_ids
    return [i for i in range(max(kept + 1, MIN_SHARED), len(ids)) if i == len(ids) - 1 or ids[i - 1] in ends
            ][-MAX_CHECKPOINTS:]


def _context(model: TextModel, n_prompt: int, max_tokens: int | None) -> int:
    """Positions for a state of this one answer."""
    return min(model.n_ctx_train, 4096 if max_tokens is None else n_prompt + max_tokens)


def _chain(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """params for the tokens that this tokenizer can draw, with DRY's usual breakers where none were given."""
    changes: dict[str, Any] = {"n_tokens": min(params.n_tokens or tokenizer.n_tokens, tokenizer.n_tokens)}
    if tokenizer.vocab.suppressed:
        changes["logit_bias"] = {**params.logit_bias, **dict.fromkeys(tokenizer.vocab.suppressed, -math.inf)}
    if params.dry_multiplier > 0 and params.dry_breakers is None:
        changes["dry_breakers"] = default_breaker_ids(tokenizer)
    return params.copy(**changes)


def _possible(logits: Any, tokenizer: Tokenizer) -> Any:
    """A copy in which tokens that this tokenizer never draws have no part: what log probabilities are taken of."""
    logits = logits.copy()
    logits[tokenizer.n_tokens:] = -math.inf
    logits[sorted(tokenizer.vocab.suppressed)] = -math.inf
    return logits


def _answer(request: _Request, params: SamplingParams, matcher: StopMatcher,
            logprobs: bool) -> Generator[Chunk, None, None]:
    state, tokenizer = request.state, request.model.tokenizer
    stream = DetokenizeStream(tokenizer)
    window = max(params.repeat_last_n, params.dry_penalty_last_n)
    recent = list(request.ids[-window:]) if window else []
    produced = 0
    try:
        logits = request.prefill()
    except _Stopped:
        return
    if request.max_tokens == 0:
        yield Chunk("", None, None, "length")
        return
    chain = _chain(params, tokenizer)
    while True:
        raw = _possible(logits, tokenizer) if logprobs else None
        chain.resume(params)
        token = sample(logits, chain, recent)
        params.resume(chain)
        logprob = float(token_logprobs(raw, [token])[0]) if raw is not None else None
        produced += 1
        hidden = tokenizer.piece(token).decode("utf-8", "replace") if tokenizer.is_special(token) else ""
        if token in tokenizer.eog_ids:
            text = matcher.feed(stream.flush()) + matcher.feed_control(hidden)
            yield Chunk(text + matcher.flush(), token, logprob, "stop")
            return
        text = matcher.feed(stream.step(token)) + matcher.feed_control(hidden)
        if matcher.matched is not None:
            yield Chunk(text, token, logprob, "stop")
            return
        if produced == request.max_tokens or state.pos == state.reach:
            text += matcher.feed(stream.flush())
            reason = "length" if matcher.matched is None else "stop"
            yield Chunk(text + matcher.flush(), token, logprob, reason)
            return
        yield Chunk(text, token, logprob, None)
        if window:
            recent.append(token)
            del recent[:-window]
        logits = request.forward(token)
