"""pantheon.load and Model: a model file in memory, its tokenizer, and text out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from pantheon import admission
from pantheon._core.python.state import State
from pantheon._core.sampling.params import SamplingParams
from pantheon._imports import whole_imports
from pantheon.text_model import Path, Prompt, TextModel

if TYPE_CHECKING:                            # it needs the tokenizers' libraries
    from pantheon.generate import Generation


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

    Starts memwatch, which says what requests fit into memory; PANTHEON_MEMWATCH=0 leaves it off, and
    PANTHEON_MEMORY_LIMIT (bytes, suffixes K, M, G, T) bounds what this process may take.

    Raises OSError (the file cannot be read), ValueError naming file, key, tensor or argument, or MemoryError.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is {device!r}, not one of auto, cpu, cuda")
    if device == "cuda":
        raise ValueError("device: this build has no GPU path; use 'cpu' or 'auto'")
    admission.start_memwatch()
    return Model(path, config_path=config_path, vocab_path=vocab_path, quantize=quantize, dies=dies, threads=threads)


class Model(TextModel):
    """A loaded model; made by pantheon.load. A context manager; close() closes it and its states without waiting.

    arch           architecture name, as in general.architecture
    config         hyper-parameters, see Config
    n_vocab        logits per token
    n_ctx_train    context that the model was trained for
    tokenizer      built on first use: feeding token ids never pays for it
    path           the file that was loaded
    mapped         whether its weights are mapped files; False: read into memory, see PANTHEON_MMAP
    threads        threads that take part in runs; may be set
    prefix_cache   states of finished requests, kept for reuse; None unless use_prefix_cache was called
    """

    def __enter__(self) -> Model:
        super().__enter__()
        return self

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, *, max_tokens: int | None = None,
                 stop: str | Iterable[str] = (), state: State | None = None, logprobs: bool = False,
                 timeout: float = 0.0, tools: Sequence[Mapping[str, Any]] | None = None,
                 documents: Sequence[Mapping[str, Any]] | None = None, continue_last: bool | str = False,
                 template_args: Mapping[str, Any] | None = None) -> Generation:
        """Iterator of Chunk: the continuation of prompt, one chunk per token. See pantheon.generate.generate."""
        with whole_imports:
            from pantheon.generate import generate

        return generate(self, prompt, params, max_tokens=max_tokens, stop=stop, state=state, logprobs=logprobs,
                        timeout=timeout, tools=tools, documents=documents, continue_last=continue_last,
                        template_args=template_args)

    def __repr__(self) -> str:
        return "<Model, closed>" if self.closed else f"<Model {self.arch}, {self.path!r}>"
