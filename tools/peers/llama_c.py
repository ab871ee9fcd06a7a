"""llama.cpp by the C calls under llama-cpp-python, so that its Python layer costs nothing and settings are all in view.

A `Peer` is one model; `start` makes its context. Both live until the process ends.
"""
from __future__ import annotations

import ctypes
from importlib.metadata import version

import llama_cpp
import numpy as np

VERSION = version("llama-cpp-python")


@llama_cpp.llama_log_callback
def _silent(level, text, user_data) -> None:
    """llama.cpp's own lines would mix with a program's output."""


class Peer:
    def __init__(self, path: str, plain: bool = False):
        """Loads the file. `plain` keeps weights as they are in it: no repacking, no AMX."""
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = not plain
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.context = None

    def start(self, n_ctx: int, n_batch: int, threads: int, exact: bool = False) -> None:
        """Makes the context; the cache is f16. `exact`: it is f32, and attention has no kernel that rounds to f16."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_threads = params.n_threads_batch = threads
        if exact:
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {n_ctx} positions")

    def forget(self) -> None:
        """Empties the cache."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def decode(self, tokens: list[int]) -> np.ndarray:
        """Runs the tokens, at most n_batch; logits of the last one, (n_vocab,), a view until the next call."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        status = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens)))
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)  # waits for the result
        if not logits:
            raise RuntimeError("llama_decode gave no logits")
        return np.ctypeslib.as_array(logits, shape=(self.n_vocab,))

    def tokenise(self, text: str) -> list[int]:
        """Token ids without BOS; control tokens in the text are recognised."""
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        n = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), room, len(room), False, True)
        if n < 0:
            raise RuntimeError(f"llama_tokenize returned {n}")
        return list(room[:n])

    def text_of(self, tokens: list[int]) -> str:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        room = ctypes.create_string_buffer(64 * len(tokens))
        n = llama_cpp.llama_detokenize(self.vocab, array, len(tokens), room, len(room), False, True)
        return room.raw[: max(n, 0)].decode(errors="replace")
