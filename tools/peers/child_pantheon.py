"""Measures Pantheon once: load, one prefill, single-token decodes, memory."""
from __future__ import annotations

from time import perf_counter

import measure

import pantheon


def main() -> None:
    job = measure.job()
    start = perf_counter()
    model = pantheon.load(job["model"], threads=job["threads"])
    loaded = perf_counter()
    prompt = measure.tokens(model.n_vocab, job["n_prefill"])
    following = measure.tokens(model.n_vocab, job["n_decode"])
    state = model.new_state(n_ctx=job["n_prefill"] + job["n_decode"], kv_type="f16")
    if not job["cold"]:
        model.prefill(prompt, state)
        model.forward(following[0], state)
        state.reset()
    ready = perf_counter()
    model.prefill(prompt, state)
    prefilled = perf_counter()
    for token in following:
        model.forward(token, state)
    done = perf_counter()
    measure.answer(engine=f"pantheon {pantheon.__version__}, level {pantheon.cpu_info()['level']}",
                   load_s=loaded - start, prefill_s=prefilled - ready, decode_s=done - prefilled, **measure.memory())


if __name__ == "__main__":
    main()
