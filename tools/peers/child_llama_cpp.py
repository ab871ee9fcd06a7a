"""Measures llama.cpp once, by the C calls under llama-cpp-python so that its Python layer costs nothing."""
from __future__ import annotations

import ctypes
from importlib.metadata import version
from time import perf_counter

import llama_cpp
import measure


@llama_cpp.llama_log_callback
def silent(level, text, user_data) -> None:
    """llama.cpp's own lines would mix with the answer."""


def decode(context, tokens: list[int]) -> None:
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens)))
    if status:
        raise RuntimeError(f"llama_decode returned {status}")
    logits = llama_cpp.llama_get_logits_ith(context, -1)  # waits for the result
    if not logits:
        raise RuntimeError("llama_decode gave no logits")


def main() -> None:
    job = measure.job()
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    start = perf_counter()
    model = llama_cpp.llama_model_load_from_file(job["model"].encode(), model_params)
    loaded = perf_counter()
    if not model:
        raise RuntimeError(f"llama.cpp does not load {job['model']}")
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    prompt = measure.tokens(n_vocab, job["n_prefill"])
    following = measure.tokens(n_vocab, job["n_decode"])
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = job["n_prefill"] + job["n_decode"]
    params.n_batch = job["n_prefill"]
    params.n_threads = params.n_threads_batch = job["threads"]
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    ready = perf_counter()
    decode(context, prompt)
    prefilled = perf_counter()
    for token in following:
        decode(context, [token])
    done = perf_counter()
    measure.answer(engine=f"llama-cpp-python {version('llama-cpp-python')}", load_s=loaded - start,
                   prefill_s=prefilled - ready, decode_s=done - prefilled, **measure.memory())


if __name__ == "__main__":
    main()
