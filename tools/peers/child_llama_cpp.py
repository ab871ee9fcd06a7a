"""Measures llama.cpp once: load, one prefill, single-token decodes, memory."""
from __future__ import annotations

from time import perf_counter

import measure
from llama_c import VERSION, Peer


def main() -> None:
    job = measure.job()
    start = perf_counter()
    peer = Peer(job["model"], plain=job["peer_plain"])
    loaded = perf_counter()
    prompt = measure.tokens(peer.n_vocab, job["n_prefill"])
    following = measure.tokens(peer.n_vocab, job["n_decode"])
    peer.start(job["n_prefill"] + job["n_decode"], job["n_prefill"], job["threads"])
    if not job["cold"]:
        peer.decode(prompt)
        peer.decode(following[:1])
        peer.forget()
    ready = perf_counter()
    peer.decode(prompt)
    prefilled = perf_counter()
    for token in following:
        peer.decode([token])
    done = perf_counter()
    measure.answer(engine=f"llama-cpp-python {VERSION}{' plain' if job['peer_plain'] else ''}", load_s=loaded - start,
                   prefill_s=prefilled - ready, decode_s=done - prefilled, **measure.memory())


if __name__ == "__main__":
    main()
