"""pantheon.load and Model: a model file in memory, its tokenizer, and text out of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from pantheon._core.binding import ModelBase, State
from pantheon._core.sampling_params import SamplingParams
from pantheon.config import Config

if TYPE_CHECKING:
    from pantheon.generate import Chunk
    from pantheon.text.chat import ChatTemplate
    from pantheon.text.tokenizer import Tokenizer

Path = str | bytes | PathLike[str] | PathLike[bytes]
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


def load(path: Path, config_path: str | PathLike[str] | None = None, vocab_path: str | PathLike[str] | None = None,
         quantize: bool = False, dies: Sequence[int] | None = None, threads: int | None = None,
         device: str = "auto") -> Model:
    """Loads a model file by mapping it: weights are read when they are first used.

    path           a GGUF file, of a split set any part; a safetensors file or the .safetensors.index.json of a sharded
                   set, with config_path; or the folder of a Hugging Face model, which holds both
    config_path    config.json of a safetensors model; its folder has the tokenizer
    vocab_path     RWKV World vocabulary
    quantize       INT8 at load, where the architecture has it
    dies           GPU dies to place the weights on
    threads        threads that take part in this model's runs, 1..256; None: what the process may use
    device         "auto" or "cpu"; "cuda" is an error where no GPU path is available

    Raises OSError (the file cannot be read), ValueError naming file, key, tensor or argument, or MemoryError.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is {device!r}, not one of auto, cpu, cuda")
    if device == "cuda":
        raise ValueError("device: this build has no GPU path; use 'cpu' or 'auto'")
    return Model(path, config_path=config_path, vocab_path=vocab_path, quantize=quantize, dies=dies, threads=threads)


class Model(ModelBase):
    """A loaded model; made by pantheon.load. A context manager; close() frees it and closes its states.

    arch           architecture name, as in general.architecture
    config         hyper-parameters, see Config
    n_vocab        logits per token
    n_ctx_train    context that the model was trained for
    tokenizer      built on first use: feeding token ids never pays for it
    path           the file that was loaded
    threads        threads that take part in runs; may be set
    """

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
        self._text_lock = threading.Lock()

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
        if self.arch == "rwkvx":
            from pantheon.text.rwkv import WorldTokenizer

            if self.vocab_path is None:
                raise ValueError(f"{self.path}: there is no tokenizer in it; load it with vocab_path")
            return WorldTokenizer.from_file(self.vocab_path, self.n_vocab)
        if self._hf_folder is None:
            from pantheon.text.tokenizer import Tokenizer

            return Tokenizer(self.metadata, self.n_vocab)
        from pantheon.text.hf import load_tokenizer

        return load_tokenizer(self._hf_folder, self.n_vocab)

    @property
    def chat_template(self) -> ChatTemplate:
        """The compiled chat template, the file's or that of the style its vocabulary shows; TemplateError without
        one."""
        from pantheon.text.chat import ChatTemplate

        tokenizer = self.tokenizer
        with self._text_lock:
            if self._template is None:
                self._template = ChatTemplate.for_tokenizer(tokenizer)
            return self._template

    def __enter__(self) -> Model:
        super().__enter__()
        return self

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, *, max_tokens: int | None = None,
                 stop: str | Iterable[str] = (), state: State | None = None,
                 logprobs: bool = False) -> Generator[Chunk, None, None]:
        """Iterator of Chunk: the continuation of prompt, one chunk per token. See pantheon.generate.generate."""
        from pantheon.generate import generate

        return generate(self, prompt, params, max_tokens=max_tokens, stop=stop, state=state, logprobs=logprobs)

    def __repr__(self) -> str:
        return "<Model, closed>" if self.closed else f"<Model {self.arch}, {self.path!r}>"
