"""Requests that run while something else happens to their model: on demand, for builds with sanitizers too.

    python tests/python/stress.py [--seconds 10] [close fork signals threads generation ...]

Every scenario keeps three threads busy with requests on a tiny model and disturbs them for so many seconds. Errors that
the disturbance explains are counted by their text; anything else, and a child of a fork that does not end well, is a
failure. Prints the counts; exits with 1 after a failure.
"""
import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pantheon

MODEL = Path(__file__).resolve().parents[1] / "fixtures/tiny/llama3.gguf"
EXPECTED = (ValueError, pantheon.BusyError, pantheon.AdmissionError, StopIteration)


def requests(model, rng):
    """One of what a program does with a model."""
    kind = rng.randrange(6)
    if kind == 0:
        list(model.generate([1, 2, 3] * rng.randrange(1, 12), max_tokens=rng.randrange(1, 8)))
    elif kind == 1:
        with model.reserve(rng.randrange(1, 60), 4) as reservation:
            reservation.progress(3)
    elif kind == 2:
        model.admit(rng.randrange(1, 60), 4)
    elif kind == 3:
        state = model.new_state(64)
        model.prefill([1] * rng.randrange(1, 60), state)
        checkpoint = state.checkpoint()
        model.forward(1, state)
        state.restore(checkpoint)
        state.truncate(1)
    elif kind == 4:
        states = [model.new_state(16) for _ in range(3)]
        for _ in range(4):
            model.forward_batch([1, 2, 3], states)
    else:
        model.tokenizer.decode(model.tokenizer.encode("ab"))


class Crowd:
    """Threads that run requests on `self.model`, whatever that is at the moment."""

    def __init__(self, n=3):
        self.model = fresh()
        self.stopping = False
        self.seen = Counter()
        self.failures = []
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(n)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stopping = True
        for thread in self.threads:
            thread.join(120)
        if any(thread.is_alive() for thread in self.threads):
            self.failures.append("a thread hangs")
        self.model.close()

    def run(self, seed):
        rng = random.Random(seed)
        while not self.stopping:
            self.attempt(lambda: requests(self.model, rng))

    def attempt(self, deed):
        try:
            deed()
            self.seen["done"] += 1
        except EXPECTED as error:
            self.seen[f"{type(error).__name__}: {error}"[:60]] += 1
        except BaseException as error:
            self.failures.append(repr(error))


def fresh():
    model = pantheon.load(MODEL, threads=2)
    model.use_prefix_cache(1 << 20)
    return model


def close(crowd, until):
    """Models are closed under the requests, and others take their place."""
    while time.monotonic() < until:
        old, crowd.model = crowd.model, fresh()
        old.close()


def fork(crowd, until):
    """Children run the model that threads of their parent were running."""
    while time.monotonic() < until:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            try:
                for seed in range(3):
                    requests(crowd.model, random.Random(seed))
                crowd.model.threads = 1
                crowd.model.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        if (status := os.waitpid(pid, 0)[1]) != 0:
            crowd.failures.append(f"a child ended with {status}")
        crowd.seen["children"] += 1


def signals(crowd, until):
    """Handlers do something with the model wherever the main thread is."""
    rng = random.Random(7)
    inside = []

    def handler(*_):
        if inside:                       # one below the other, on a slow machine without end
            return
        inside.append(True)
        other = fresh() if rng.randrange(20) == 0 else None
        if other is not None:
            old, crowd.model = crowd.model, other
            old.close()
        crowd.attempt(lambda: requests(crowd.model, rng))
        inside.clear()

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    while time.monotonic() < until:
        crowd.attempt(lambda: requests(crowd.model, random.Random(time.monotonic())))
    signal.setitimer(signal.ITIMER_REAL, 0)


def threads(crowd, until):
    """The number of threads changes between the tokens of sequences that are there already."""
    rng = random.Random(8)
    state = crowd.model.new_state(128)
    while time.monotonic() < until:
        crowd.model.threads = rng.randrange(1, 9)
        if state.pos > 120:
            state.reset()
        crowd.attempt(lambda: crowd.model.forward(1, state))


def generation(crowd, until):
    """Four threads take chunks of one generation, and one of them ends it."""
    while time.monotonic() < until:
        shared = crowd.model.generate([1, 2, 3] * 8, max_tokens=60)

        def take(n, shared=shared):
            for _ in range(n):
                crowd.attempt(lambda: next(shared))
            shared.close()

        takers = [threading.Thread(target=take, args=(n,)) for n in (10, 30, 30, 30)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join(120)
        if any(taker.is_alive() for taker in takers):
            crowd.failures.append("a taker hangs")
            return
        del shared, take


SCENARIOS = {deed.__name__: deed for deed in (close, fork, signals, threads, generation)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    failed = False
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario is called {min(unknown)}")
    for name in options.scenarios or SCENARIOS:
        with Crowd() as crowd:
            SCENARIOS[name](crowd, time.monotonic() + options.seconds)
        failed |= bool(crowd.failures)
        print(f"{name}: {sum(crowd.seen.values())} calls, {dict(crowd.seen.most_common(6))}", flush=True)
        for failure in sorted(set(crowd.failures)):
            print(f"  FAILURE {failure}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
