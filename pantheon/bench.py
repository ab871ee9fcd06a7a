"""What a model does per second on this machine, and how near that is to what the machine can do.

measure() runs in the calling process and reads its peak memory: call measure_apart(), which gives it a process of its
own. Token ids are fed directly and drawn from a fixed seed; every figure is the median of several repeats after a
warm-up.
"""
import math
import os
import pickle
import random
import re
import resource
import signal
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import NamedTuple

import pantheon
from pantheon._core.base import phases
from pantheon._core.base.threads import default_threads
from pantheon._core.files.bounded_json import read_json
from pantheon._core.load.config_hf import read_config, ternary_rule
from pantheon._core.probes import rates
from pantheon._core.registry import HF_CLASSES

READ_PROBE_BYTES = 1 << 30          # far more than caches hold, where memory allows
BATCH_PROMPT = 32                   # tokens in each state of a batch before it is timed

# Names in GGUF files, RWKV's own, and in folders of Hugging Face models.
EMBEDDING = re.compile(r"token_embd\.weight|(rwkv\.)?emb\.weight|(.*\.)?embed_tokens\.weight")
HEAD = re.compile(r"output\.weight|(rwkv\.)?head\.weight|(.*\.)?lm_head\.weight")
EXPERTS = re.compile(r".*(_exps|\.experts)\.")
UNREAD = re.compile(r"mtp\.|(.*\.)?(visual|vision_tower|multi_modal_projector)\.")    # drafting block, eyes

# Kinds of work of a decode step: key -> what it is for a reader. The first two are what a step is for.
BREAKDOWN = {
    "products": "matrix products",
    "attention": "attention",
    "waiting": "waiting for other threads",
    "vectors": "norms, rotation, quantising, activations",
    "sampling": "sampling",
    "python": "Python",
}


class Job(NamedTuple):
    """What to measure."""

    path: str
    n_prompt: int = 512             # tokens of the prefill
    n_decode: int = 64              # single tokens after it
    threads: int | None = None      # None: as many as load() takes
    repeats: int = 5
    batches: tuple[int, ...] = ()   # sizes of forward_batch
    vocab_path: str | None = None   # as for load()


class Active(NamedTuple):
    """What one token of a model reads and multiplies. Experts count as far as they are used."""

    nbytes: int                     # weights read for a token with logits
    layer_products: int             # multiply-adds of a token in the layers' matrices
    head_products: int              # and in the LM head, where logits are wanted


def active(tensors: Iterable, n_experts: int, n_experts_used: int, ternary: bool = False) -> Active:
    """Counts over the tensors of a file, each with name, type, shape (slowest dimension first) and nbytes.

    Of the token embedding one row is read, and all of it where it is the LM head too. ternary: matrices of the layers
    were packed when they were loaded, four weights to a byte, where the file has them as floats.
    """
    tensors = [t for t in tensors if not UNREAD.match(t.name)]
    tied = not any(HEAD.fullmatch(t.name) for t in tensors)
    nbytes = layers = head = 0.0
    for t in tensors:
        share = n_experts_used / n_experts if n_experts and EXPERTS.match(t.name) else 1
        elements = math.prod(t.shape) * (4 if t.type == "U8" else 1)      # bytes hold four ternary weights each
        embedding = EMBEDDING.fullmatch(t.name)
        if embedding and not tied:
            nbytes += t.nbytes // t.shape[0]
            continue
        packed = ternary and t.type != "U8" and len(t.shape) > 1 and not embedding and not HEAD.fullmatch(t.name)
        nbytes += share * (-(-t.shape[0] // 4) * t.shape[1] if packed else t.nbytes)
        if embedding or HEAD.fullmatch(t.name):
            head += elements
        elif len(t.shape) > 1:
            layers += elements * share
    return Active(round(nbytes), round(layers), round(head))


def active_bytes(model: "pantheon.Model") -> int:
    """Bytes of weights that one decoded token reads."""
    return _active_of(model).nbytes


def measure_apart(job: Job) -> dict:
    """measure() in a fresh process, so that peak memory is the model's. Errors are those of measure(), RuntimeError
    when the process was ended; it ends with the caller, whatever ends that."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measuring_process, args=(job, theirs), daemon=True)
    # A terminal sends Ctrl-C to both processes: it is for the caller. What is blocked here stays blocked in the child.
    # The tracker of multiprocessing comes first: starting it unblocks.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the measuring process ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if error is not None:
        raise error
    return result


def _measuring_process(job: Job, answer: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer.send((measure(job), None))
    except Exception as e:
        answer.send((None, _portable(e)))


def _portable(error: Exception) -> Exception:
    """error, or one of the same text where it does not survive the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


def measure(job: Job) -> dict:
    """Measures one model: plain JSON values; names end in their unit: _s, _bytes, _per_s.

    The fractions compare with a probe that ran right before and after each repeat. Raises what load() raises, and
    ValueError where the context has no room for the job.
    """
    threads = job.threads or default_threads()
    load_s = [_load_seconds(job, threads)]
    with ExitStack() as stack:
        model = stack.enter_context(pantheon.load(job.path, vocab_path=job.vocab_path, threads=threads))
        _check(job, model)
        state = stack.enter_context(model.new_state(n_ctx=job.n_prompt + job.n_decode))
        prompt, following = _tokens(model.n_vocab, job.n_prompt), _tokens(model.n_vocab, job.n_decode)
        _prefill(model, state, prompt)
        _decode(model, state, following)
        peak_rss = peak_rss_bytes()
        load_s += [_load_seconds(job, threads) for _ in range(job.repeats - 1)]
        counts = _active_of(model)
        result = {
            "model": model.path, "arch": model.arch, "level": pantheon.cpu_info()["level"], "threads": threads,
            "n_prompt": job.n_prompt, "n_decode": job.n_decode, "repeats": job.repeats,
            "load_s": median(load_s), "peak_rss_bytes": peak_rss, "state_bytes": state.nbytes,
            "active_bytes": counts.nbytes,
        }
        result |= _speed(job, model, state, prompt, following, counts)
        result["breakdown_s"] = _breakdown(model, state, prompt, following)
        result["batch_per_s"] = {str(n): _batch(model, n, job) for n in job.batches}
    return result


def peak_rss_bytes() -> int:
    """Most memory of this process so far. getrusage() would include the parent that started it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- parts of a measurement ------------------------------------------------------------------------------------------


def _active_of(model: "pantheon.Model") -> Active:
    with model.gguf() if model.container == "gguf" else model.safetensors() as file:
        return active(file.tensors, model.config["n_experts"], model.config["n_experts_used"], _ternary(model))


def _ternary(model: "pantheon.Model") -> bool:
    path = os.path.join(model.path, "config.json")
    if not os.path.exists(path):
        return False
    config = read_json(path, max_depth=64, max_items=1 << 20, max_bytes=16 << 20)
    return ternary_rule(read_config(config, path, HF_CLASSES)) != "none"


def _check(job: Job, model: "pantheon.Model") -> None:
    longest = max(job.n_prompt, BATCH_PROMPT if job.batches else 0) + job.n_decode
    if longest > model.n_ctx_train:
        raise ValueError(f"{longest} positions are more than the model's context of {model.n_ctx_train}")
    if not job.batches:
        return
    n = max(job.batches)
    cost = model.cost(BATCH_PROMPT + job.n_decode, window=BATCH_PROMPT, batch=n)
    need = n * (cost.kv_bytes + cost.state_bytes + cost.checkpoint_bytes) + cost.scratch_bytes + cost.logits_bytes
    have = model.admit(job.n_prompt, job.n_decode).have_bytes
    if need > have > 0:
        raise ValueError(f"a batch of {n} takes {need} bytes, and {have} can be had")


def _tokens(n_vocab: int, n: int) -> list[int]:
    """n ids, always the same ones; low ids are left out where there are others: control tokens live there."""
    rng = random.Random(7)
    return [rng.randrange(min(1000, n_vocab // 2), n_vocab) for _ in range(n)]


def _load_seconds(job: Job, threads: int) -> float:
    start = perf_counter()
    model = pantheon.load(job.path, vocab_path=job.vocab_path, threads=threads)
    seconds = perf_counter() - start
    model.close()
    return seconds


def _prefill(model: "pantheon.Model", state: "pantheon.State", prompt: list[int]) -> float:
    state.reset()
    start = perf_counter()
    model.prefill(prompt, state)
    return perf_counter() - start


def _decode(model: "pantheon.Model", state: "pantheon.State", following: list[int]) -> float:
    start = perf_counter()
    for token in following:
        model.forward(token, state)
    return perf_counter() - start


def _speed(job: Job, model: "pantheon.Model", state: "pantheon.State", prompt: list[int], following: list[int],
           counts: Active) -> dict:
    """Prefill and decode, each repeat between two probes of what bounds it."""
    level, threads = pantheon.cpu_info()["level"], model.threads
    floats = counts.nbytes >= 2 * (counts.layer_products + counts.head_products)
    reads = rates.ReadProbe(_probe_bytes())
    prefill_macs = job.n_prompt * counts.layer_products + counts.head_products
    decode_bytes = job.n_decode * counts.nbytes

    def peak() -> float:
        return rates.multiply_peak(level, threads, floats) or math.nan

    def bandwidth() -> float:
        return reads.bandwidth(threads)

    rows = []
    for _ in range(job.repeats):
        peaks = [peak()]
        prefill = _prefill(model, state, prompt)
        peaks.append(peak())
        widths = [bandwidth()]
        decode = _decode(model, state, following)
        widths.append(bandwidth())
        rows.append((prefill, decode, max(peaks), max(widths)))
    prefill_s, decode_s, peaks, widths = (median(column) for column in zip(*rows, strict=True))
    return {
        "prefill_s": prefill_s, "prefill_tokens_per_s": job.n_prompt / prefill_s,
        "prefill_multiply_adds_per_s": prefill_macs / prefill_s,
        "peak_multiply_adds_per_s": None if math.isnan(peaks) else peaks,
        "prefill_of_peak": None if math.isnan(peaks) else median(prefill_macs / p / top for p, _, top, _ in rows),
        "decode_s": decode_s, "decode_tokens_per_s": job.n_decode / decode_s,
        "decode_read_bytes_per_s": decode_bytes / decode_s,
        "probe_read_bytes_per_s": widths,
        "decode_of_probe": median(decode_bytes / d / width for _, d, _, width in rows),
    }


def _probe_bytes() -> int:
    """READ_PROBE_BYTES, or a quarter of the free memory where that is less."""
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            free = next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return READ_PROBE_BYTES
    return max(1 << 24, min(READ_PROBE_BYTES, free // 4))


def _breakdown(model: "pantheon.Model", state: "pantheon.State", prompt: list[int], following: list[int]) -> dict:
    """Seconds of one decode step by kind of work, on the calling thread; they add up to the whole step.

    The tokens fed are the given ones, but every step's logits are sampled with the default parameters.
    """
    params = pantheon.SamplingParams(seed=1)
    _prefill(model, state, prompt)
    sampling = 0.0
    phases.start()
    for token in following:
        logits = model.forward(token, state)
        start = perf_counter()
        pantheon.sample(logits, params, following)
        sampling += perf_counter() - start
    seconds = phases.stop()
    outside = seconds.pop("outside")
    seconds |= {"sampling": sampling, "python": outside - sampling}
    return {kind: seconds[kind] / len(following) for kind in BREAKDOWN}


def _batch(model: "pantheon.Model", n: int, job: Job) -> float:
    """Tokens a second of n sequences that run together; those of one are run alone."""
    prompt, following = _tokens(model.n_vocab, BATCH_PROMPT), _tokens(model.n_vocab, job.n_decode)
    seconds = []
    with ExitStack() as stack:
        states = [stack.enter_context(model.new_state(n_ctx=BATCH_PROMPT + job.n_decode)) for _ in range(n)]
        for state in states:
            model.prefill(prompt, state)
        begins = [state.checkpoint() for state in states]
        for repeat in range(job.repeats + 1):
            for state, begin in zip(states, begins, strict=True):
                state.restore(begin)
            start = perf_counter()
            for token in following:
                if n == 1:
                    model.forward(token, states[0])
                else:
                    model.forward_batch([token] * n, states)
            if repeat:              # the first one warms up
                seconds.append(perf_counter() - start)
    return n * job.n_decode / median(seconds)
