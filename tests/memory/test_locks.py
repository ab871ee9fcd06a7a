"""Nothing that may need Python runs under a lock that a fork takes: os.fork holds the GIL while it waits for the lock.

So handlers of log lines, and whoever answers for the GPU dies, may call memwatch themselves. Where one of them ran
under the lock, these child processes would never end.
"""
import os
import subprocess
import sys
import textwrap

import pytest
from support.fixture_paths import TINY

HANDLER = """
    import logging, os, sys
    import pantheon
    from pantheon._core.memory import ladder, memwatch

    seen = []

    class Curious(logging.Handler):
        curious = True

        def emit(self, record):
            seen.append(record.getMessage())
            if self.curious:                         # not of what it causes itself
                self.curious = False
                memwatch.sample()
                memwatch.start(250)
                other.reserve(1, 1).release()
                self.curious = True

    other = pantheon.load(sys.argv[2], threads=1)
    logging.getLogger("pantheon").addHandler(Curious())
    logging.getLogger("pantheon").propagate = False
"""


def child(code, *arguments, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PANTHEON_MEM")}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**clean, **environment})
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize("name", ["llama3", "qwen35", "qwen35moe"])
def test_log_lines_are_written_without_the_lock(name):
    out = child(textwrap.dedent(HANDLER) + textwrap.dedent("""
        ladder.configure(watch=0.999, tight=0.998, critical=0.997, window=64, window_tight=32, window_critical=16)
        with pantheon.load(sys.argv[1], threads=1) as model:
            model.reserve(40, 4, window=64).release()
            model.admit(40, 4, window=64)
            model.new_state(model.n_ctx_train).close()
            list(model.generate([5] * 40, max_tokens=2))
        print(len([line for line in seen if "QWEN35_MAX_SEQ is not" in line]),
              len([line for line in seen if "QWEN35_KV_Q4 is neither" in line]),
              len([line for line in seen if "clamped 64 ->" in line]))
    """), TINY / f"{name}.gguf", TINY / "llama3.gguf", QWEN35_MAX_SEQ="many", QWEN35_KV_Q4="maybe")
    assert out == "1 1 2\n"


def test_forks_while_others_reserve():
    """Every reservation logs, in a thread that needs the GIL for it, while the main thread forks."""
    assert child(textwrap.dedent(HANDLER) + textwrap.dedent("""
        import threading
        ladder.configure(watch=0.999, tight=0.998, critical=0.997, window=64, window_tight=32, window_critical=16)
        model = pantheon.load(sys.argv[1], threads=1)
        stop = threading.Event()

        def reserve():
            while not stop.is_set():
                model.reserve(40, 4, window=64).release()

        threads = [threading.Thread(target=reserve) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                memwatch.sample()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        print(len([line for line in seen if "QWEN35" in line]), any("[ladder]" in line for line in seen))
    """), TINY / "qwen35moe.gguf", TINY / "llama3.gguf", QWEN35_MAX_SEQ="many") == "1 True\n"
