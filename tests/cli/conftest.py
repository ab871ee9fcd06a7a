"""A stand-in for the engine under the command line: its API without its arithmetic.

The fake model has one token per byte of UTF-8 and answers every prompt with a text that the test sets. It keeps what it
was fed, so that a test can see that a turn feeds only what is new.
"""
import io
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

import pantheon
from pantheon._core.files.gguf_reader import GGUFFile


@dataclass
class Chunk:
    text: str
    token: int | None = None
    logprob: float | None = None
    finish_reason: str | None = None


class Tokenizer:
    chat_templates = {"default": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"}
    special_tokens = {}
    chat_stops = ()
    bos_id = eos_id = None
    vocab = SimpleNamespace(model="gpt2", texts=[])

    def encode(self, text):
        return list(text.encode())

    def encode_chat(self, segments):
        return self.encode("".join(text for text, _ in segments))


class State:
    def __init__(self, model, n_ctx, kv_type):
        self.model = model
        self.n_ctx, self.kv_type, self.tokens, self.closed = n_ctx or 4096, kv_type or "f16", [], False

    pos = property(lambda self: len(self.tokens))

    def truncate(self, pos):
        assert 0 <= pos <= self.pos
        del self.tokens[pos:]

    def reset(self):
        self.tokens = []

    def set_reach(self, reach):
        assert self.pos < reach <= self.n_ctx

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Generation:
    verdict = SimpleNamespace(status="FIT", reason="")

    def __init__(self, chunks):
        self.chunks, self.close = chunks, chunks.close

    def __iter__(self):
        return self.chunks


@dataclass
class Model:
    path: str = "fake.gguf"
    arch: str = "llama"
    container: str = "gguf"
    answer: str = "Paris."
    interrupt_after: int | None = None      # tokens of the answer, then KeyboardInterrupt
    error: Exception | None = None
    calls: list = field(default_factory=list)       # (fed tokens, params, max_tokens, stop) of every generate
    states: list = field(default_factory=list)
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    config: dict = field(default_factory=lambda: {"n_vocab": 256, "n_layer": 2, "rope_base": 10000.0})
    closed: bool = False
    mapped: bool = True
    whole_prompts: bool = False

    def gguf(self):
        return GGUFFile(self.path)

    def new_state(self, n_ctx=None, kv_type=None):
        self.states.append(State(self, n_ctx, kv_type))
        return self.states[-1]

    def cost(self, n_ctx=None, kv_type=None):
        n_ctx = n_ctx or 4096
        kv = n_ctx * {"f32": 8, "f16": 4, "q8_0": 2, "q4_0": 1}[kv_type]
        return SimpleNamespace(n_ctx=n_ctx, kv_type=kv_type, kv_bytes=kv, state_bytes=100, scratch_bytes=20,
                               logits_bytes=3, total=kv + 123)

    def generate(self, *prompt, **options):
        return Generation(self._chunks(*prompt, **options))

    def _chunks(self, prompt, params=None, max_tokens=None, stop=(), state=None):
        self.calls.append((bytes(prompt), params, max_tokens, stop))
        if self.error:
            raise self.error
        state.tokens += prompt
        assert state.pos <= state.n_ctx
        for i, token in enumerate(self.answer.encode()):
            if i == self.interrupt_after:
                raise KeyboardInterrupt
            if i == max_tokens:
                yield Chunk("", finish_reason="length")
                return
            yield Chunk(chr(token), token)
            state.tokens.append(token)
        yield Chunk("", finish_reason="stop")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.closed = True


@pytest.fixture
def model(monkeypatch, tmp_path):
    """The model that every path loads; its file exists."""
    fake = Model(path=str(tmp_path / "fake.gguf"))
    (tmp_path / "fake.gguf").write_bytes(b"GGUF")
    loads = []

    def load(path, vocab_path=None, threads=None):
        loads.append((path, threads))
        fake.vocab_path = vocab_path
        return fake

    fake.loads = loads
    monkeypatch.setattr(pantheon, "load", load, raising=False)
    monkeypatch.setattr(pantheon, "SamplingParams", lambda **fields: fields, raising=False)
    return fake


@pytest.fixture
def stdin(monkeypatch):
    """stdin(data): what the command finds there, bytes from a pipe."""
    def give(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))

    return give


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("PANTHEON_TRACEBACK", raising=False)
