"""A model with its text layer: tokenizer, chat template, admission and prefix cache."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from pantheon import admission
from pantheon._core.base.arguments import integer
from pantheon._core.base.turn import TurnLock
from pantheon._core.python.model import ModelBase
from pantheon._core.python.state import State
from pantheon._imports import whole_imports
from pantheon.config import Config
from pantheon.prefix_cache import PrefixCache
from pantheon.verdict import Cost, Verdict

if TYPE_CHECKING:                            # the tokenizers' libraries are imported when the first one is built
    from pantheon.text.chat import ChatTemplate
    from pantheon.text.tokenizer import Tokenizer

Path = str | bytes | PathLike[str] | PathLike[bytes]
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


class TextModel(ModelBase):
    """All of a Model but what generates: see pantheon.Model."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.config = Config(self.config_fields())
        self._hf_folder: str | None = None
        if self.container == "gguf":
            self.arch: str = self.metadata["general.architecture"]
        else:
            self.arch = self.arch_name
            config_path = options.get("config_path")
            self._hf_folder = os.fsdecode(path) if config_path is None else os.path.dirname(os.fsdecode(config_path))
        self._tokenizer: Tokenizer | None = None
        self._template: ChatTemplate | None = None
        self._text_lock = TurnLock("the tokenizer", reentrant=True)
        self.prefix_cache: PrefixCache | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """GGUF metadata, a read-only mapping whose values are converted when asked for; empty for safetensors."""
        return self.gguf().metadata if self.container == "gguf" else {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The GGUF file's tokenizer or the Hugging Face folder's; ValueError when there is none that can be built."""
        with self._text_lock:
            if self._tokenizer is None:
                self._tokenizer = self._build_tokenizer()
            return self._tokenizer

    def _build_tokenizer(self) -> Tokenizer:
        if self.own_vocabulary:
            with whole_imports:
                from pantheon.text.rwkv import WorldTokenizer

            if self.container == "gguf":
                return WorldTokenizer.from_gguf(self.metadata, self.n_vocab, self.path)
            if self.vocab_path is None:
                raise ValueError(f"{self.path}: there is no tokenizer in it; load it with vocab_path (--vocab FILE)")
            return WorldTokenizer.from_file(self.vocab_path, self.n_vocab)
        with whole_imports:
            from pantheon.text.hf import load_gguf_tokenizer, load_tokenizer

        if self._hf_folder is None:
            return load_gguf_tokenizer(self.metadata, self.n_vocab)
        return load_tokenizer(self._hf_folder, self.n_vocab)

    @property
    def chat_template(self) -> ChatTemplate:
        """The file's chat template, or that of the style its vocabulary shows; TemplateError without one."""
        with whole_imports:
            from pantheon.text.chat import ChatTemplate

        tokenizer = self.tokenizer
        with self._text_lock:
            if self._template is None:
                self._template = ChatTemplate.for_tokenizer(tokenizer)
            return self._template

    def cost(self, n_ctx: int | None = None, kv_type: str | None = None, window: int | None = None, batch: int = 1,
             all_logits: bool = False) -> Cost:
        """What one sequence takes, in bytes, before anything is allocated for it.

        n_ctx       positions (default: min(n_ctx_train, 4096)), rounded up to a multiple of 8
        kv_type     type of the KV cache; None: the model's own
        window      tokens of one prefill call; None: as many as the model takes
        batch       sequences of its forward_batch calls, itself included: they share work buffers and logits, while
                    kv_bytes and state_bytes are one sequence's
        all_logits  whether prefill calls ask for the logits of every token
        """
        return admission.cost(self, n_ctx, kv_type, window, batch, all_logits)

    def admit(self, n_prompt: int, max_tokens: int = 0, n_ctx: int | None = None, *, kv_type: str | None = None,
              window: int | None = None, state: State | None = None, checkpoints: int = 0, batch: int = 1,
              all_logits: bool = False) -> Verdict:
        """Whether a request fits into memory. Only asks: nothing is held, and nothing is freed for it.

        n_prompt    tokens to be fed; 0..the context, 1 at least unless max_tokens is given
        max_tokens  tokens to be generated at most
        n_ctx       positions that the state will have; None: as many as the request takes
        kv_type     type of the KV cache; None: the model's own, or q8_0 while memory is short
        window      most tokens of one prefill call; None: as many as the model takes
        state       the state that goes on; its own n_ctx and kv_type count then
        checkpoints state.checkpoint() calls that are to be paid for; they cost nothing where going back is truncating
        batch       sequences of its forward_batch calls, itself included
        all_logits  whether its prefill calls ask for the logits of every token

        ValueError or TypeError naming the argument and what it may be.
        """
        return admission.ask(self, n_prompt, max_tokens, n_ctx, kv_type=kv_type, window=window, state=state,
                             checkpoints=checkpoints, batch=batch, all_logits=all_logits)

    def reserve(self, n_prompt: int, max_tokens: int = 0, n_ctx: int | None = None, *, kv_type: str | None = None,
                window: int | None = None, state: State | None = None, checkpoints: int = 0, batch: int = 1,
                all_logits: bool = False, timeout: float = 0.0) -> admission.Reservation:
        """Decides as admit and holds what was promised: a context manager with .verdict.

        Frees what is idle first, where the ladder or the request asks for it. AdmissionError when the prompt does not
        fit, after waiting up to timeout seconds for other requests to end.
        """
        return admission.reserve(self, n_prompt, max_tokens, n_ctx, kv_type=kv_type, window=window, state=state,
                                 checkpoints=checkpoints, batch=batch, all_logits=all_logits, timeout=timeout)

    def use_prefix_cache(self, max_bytes: int, n_ctx: int | None = None) -> PrefixCache:
        """From now on generate keeps the states of its finished requests, up to max_bytes, and reuses them.

        n_ctx: positions of such a state, default min(n_ctx_train, 4096); a longer request gets a longer one.
        TypeError or ValueError naming the argument.
        """
        max_bytes = integer("max_bytes", max_bytes, 1, 2**62)
        n_ctx = min(self.n_ctx_train, 4096) if n_ctx is None else integer("n_ctx", n_ctx, 1, self.n_ctx_train)
        if self.prefix_cache is not None:
            self.prefix_cache.clear()
        self.prefix_cache = PrefixCache(self, max_bytes, n_ctx)
        return self.prefix_cache

    def close(self) -> None:
        """See ModelBase.close; the prefix cache is emptied."""
        try:
            super().close()
        finally:
            if self.prefix_cache is not None:
                self.prefix_cache.clear()
