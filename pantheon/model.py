"""pantheon.load and Model: a model file in memory, its tokenizer, and text out of it."""

import threading

from pantheon._core.binding import ModelBase
from pantheon.config import Config


def load(path, config_path=None, vocab_path=None, quantize=False, dies=None, threads=None, device="auto"):
    """Loads a model file by mapping it: weights are read when they are first used.

    path           a GGUF file; of a split set any part
    config_path    config.json of a safetensors model
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

    def __init__(self, path, **options):
        self.config = Config(self.config_fields())
        self.arch = self.metadata["general.architecture"]
        self._tokenizer = None
        self._template = None
        self._text_lock = threading.Lock()

    @property
    def metadata(self):
        """GGUF metadata, a read-only mapping whose values are converted when asked for."""
        return self.gguf().metadata

    @property
    def tokenizer(self):
        """The file's tokenizer; ValueError when the file has none or it cannot be built."""
        from pantheon.text.tokenizer import Tokenizer

        with self._text_lock:
            if self._tokenizer is None:
                self._tokenizer = Tokenizer(self.metadata, self.n_vocab)
            return self._tokenizer

    @property
    def chat_template(self):
        """The compiled chat template, the file's or that of the style its vocabulary shows; TemplateError without
        one."""
        from pantheon.text.chat import ChatTemplate

        tokenizer = self.tokenizer
        with self._text_lock:
            if self._template is None:
                self._template = ChatTemplate.for_tokenizer(tokenizer)
            return self._template

    def generate(self, prompt, params=None, *, max_tokens=None, stop=(), state=None, logprobs=False):
        """Iterator of Chunk: the continuation of prompt, one chunk per token. See pantheon.generate.generate."""
        from pantheon.generate import generate

        return generate(self, prompt, params, max_tokens=max_tokens, stop=stop, state=state, logprobs=logprobs)

    def __repr__(self):
        return "<Model, closed>" if self.closed else f"<Model {self.arch}, {self.path!r}>"
