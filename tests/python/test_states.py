"""Models and states from Python: arguments, lifecycle, errors."""
import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from support.fixture_paths import TINY

import pantheon


@pytest.fixture
def model(llama):
    with pantheon.load(llama) as model:
        yield model


def test_what_a_model_says_of_itself(model, llama):
    assert model.arch == "llama"
    assert model.path == str(llama)
    assert model.n_vocab == model.config.n_vocab == model.config["n_vocab"] > 0
    assert model.n_ctx_train == model.config.n_ctx
    with pytest.raises(TypeError):
        model.config["n_vocab"] = 1
    with pytest.raises(TypeError):
        model.config.n_vocab = 1
    with pytest.raises(AttributeError):
        _ = model.config.no_such_field


def test_what_a_state_says_of_itself():
    model = pantheon.load(TINY / "llama-blocks32.gguf")
    state = model.new_state(n_ctx=33, kv_type="q8_0")
    assert (state.n_ctx, state.kv_type, state.pos) == (40, "q8_0", 0)
    assert model.new_state().n_ctx == min(model.n_ctx_train, 4096)
    assert model.new_state().kv_type == "f16"
    sizes = [model.new_state(n_ctx=64, kv_type=kind).nbytes for kind in ("f32", "f16", "q8_0", "q4_0")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_a_quantised_cache_needs_head_dim_in_blocks(model, caplog):
    """head_dim is 16 here: f16 with a notice."""
    assert model.new_state(kv_type="q8_0").kv_type == "f16"
    assert "head_dim 16" in caplog.text


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({"n_ctx": 0}, ValueError, "n_ctx is 0"),
    ({"n_ctx": -1}, ValueError, "n_ctx is -1"),
    ({"n_ctx": 2**40}, ValueError, "n_ctx"),
    ({"kv_type": "q3_0"}, ValueError, "f16, f32, q8_0, q4_0"),
])
def test_bad_state_arguments(model, arguments, error, text):
    with pytest.raises(error, match=text):
        model.new_state(**arguments)


@pytest.mark.parametrize(("token", "error", "text"), [
    (-1, ValueError, "token is -1, not in 0"), (2**31, ValueError, "token is 2147483648, not in 0"),
    (2**32, ValueError, "token is 4294967296, not in 0"), (2**62, ValueError, "token is 4611686018427387904, not in 0"),
    (2**70, ValueError, "token is beyond 2.63, not in 0"), (-2**70, ValueError, "token is beyond"),
    ("1", TypeError, "not str"), (1.5, TypeError, "not float"),
    (None, TypeError, "not NoneType"), (True, TypeError, "not bool"),
])
def test_bad_tokens(model, token, error, text):
    state = model.new_state()
    with pytest.raises(error, match=text):
        model.forward(token, state)
    assert state.pos == 0
    model.forward(1, state)


@pytest.mark.parametrize(("tokens", "error", "text"), [
    ([], ValueError, "tokens must not be empty"), ([[1]], ValueError, "tokens must be a sequence of ids"),
    (None, ValueError, "tokens must be a sequence of ids"), ([1.0], TypeError, "not float64"),
    (["a"], TypeError, "integers"), ([True], TypeError, "not bool"), ([2**70, 1.5], TypeError, "integers"),
    ([-1], ValueError, "token is -1, not in 0"), ([2**32], ValueError, "token is 4294967296, not in 0"),
    ([10**6], ValueError, "token is 1000000, not in 0"), ([1, 2**70], ValueError, "token is beyond 2.63, not in 0"),
    ([2**63, -1], ValueError, "token is -1, not in 0"), ([-2**70], ValueError, "token is beyond"),
])
def test_bad_prompts(model, tokens, error, text):
    state = model.new_state()
    for call in (lambda: model.prefill(tokens, state), lambda: model.forward_batch(tokens, [state])):
        with pytest.raises(error, match=text):
            call()
    assert state.pos == 0


def test_the_context_fills_up(model):
    state = model.new_state(n_ctx=8)
    model.prefill([1, 2, 3, 4, 5, 6, 7], state)
    with pytest.raises(pantheon.ContextFullError, match="n_ctx 8"):
        model.prefill([1, 2], state)
    assert state.pos == 7
    model.forward(8, state)
    with pytest.raises(pantheon.ContextFullError):
        model.forward(9, state)
    state.truncate(6)
    model.forward(9, state)


def test_truncate_and_checkpoint_errors(model):
    state, other = model.new_state(), model.new_state()
    model.prefill([1, 2, 3, 4], state)
    for pos in (-1, 5, 2**31 - 1, 2**31, -2**31 - 1, 2**63, -2**70):
        with pytest.raises(ValueError, match="cannot truncate"):
            state.truncate(pos)
    checkpoint = state.checkpoint()
    assert checkpoint.valid
    with pytest.raises(ValueError, match="another state"):
        other.restore(checkpoint)
    state.truncate(2)
    assert not checkpoint.valid
    with pytest.raises(ValueError, match="reset or truncated"):
        state.restore(checkpoint)
    checkpoint = state.checkpoint()
    state.reset()
    with pytest.raises(ValueError, match="reset or truncated"):
        state.restore(checkpoint)


def test_embedding_override_is_checked_and_copied(model):
    state = model.new_state()
    with pytest.raises(ValueError, match="shape"):
        state.embd_override = np.zeros(3, np.float32)
    row = np.ones(model.config.n_embd, np.float32)
    state.embd_override = row
    row[:] = 7
    assert (state.embd_override == 1).all()
    with pytest.raises(ValueError):
        state.embd_override[0] = 2


def test_batch_arguments(model):
    a, b = model.new_state(), model.new_state()
    with pytest.raises(ValueError, match="twice"):
        model.forward_batch([1, 2], [a, a])
    with pytest.raises(ValueError, match="2 tokens for 1 states"):
        model.forward_batch([1, 2], [a])
    full = model.new_state(n_ctx=8)
    model.prefill(range(1, 9), full)
    with pytest.raises(pantheon.ContextFullError):
        model.forward_batch([1, 2], [a, full])
    assert a.pos == 0
    model.forward_batch([1, 2], [a, b])
    assert (a.pos, b.pos) == (1, 1)


def test_steps_are_unsupported_on_the_cpu(model):
    state = model.new_state()
    assert model.step_begin(1, state) == 1
    assert model.step_poll(state) == (-1, None)
    assert state.pos == 0


def test_states_of_another_model(model, llama):
    with pantheon.load(llama) as other:
        state = other.new_state()
        with pytest.raises(ValueError, match="another model"):
            model.forward(1, state)


def test_use_after_close(model):
    state = model.new_state()
    state.close()
    state.close()
    for use in (lambda: state.pos, lambda: state.reset(), lambda: model.forward(1, state), lambda: state.checkpoint()):
        with pytest.raises(ValueError, match="closed"):
            use()
    state = model.new_state()
    model.close()
    model.close()
    for use in (lambda: state.pos, lambda: model.new_state(), lambda: model.n_vocab, lambda: model.path):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_logits_and_tensors_outlive_the_model(llama):
    model = pantheon.load(llama)
    logits = model.forward(1, model.new_state())
    table = model.gguf().tensor("token_embd.weight")
    copy, first = logits.copy(), float(table[0, 0])
    model.close()
    del model
    gc.collect()
    assert (logits == copy).all()
    assert float(table[0, 0]) == first


def test_a_busy_state_refuses_a_second_thread(model):
    """One thread is inside a long prefill while the other tries."""
    tokens = np.ones(model.n_ctx_train - 8, np.uint32)
    state = model.new_state(n_ctx=model.n_ctx_train)
    refused = []
    started = threading.Event()

    def long_call():
        started.set()
        for _ in range(20):
            model.prefill(tokens, state)
            while True:
                try:
                    state.reset()
                    break
                except pantheon.BusyError:
                    continue

    thread = threading.Thread(target=long_call)
    thread.start()
    started.wait()
    while thread.is_alive():
        try:
            state.checkpoint()
        except pantheon.BusyError as error:
            refused.append(error)
    thread.join()
    assert refused


def test_load_arguments(llama):
    with pytest.raises(ValueError, match="quantize"):
        pantheon.load(llama, quantize=True)
    with pytest.raises(ValueError, match="config_path"):
        pantheon.load(llama, config_path="config.json")
    for threads in (0, -1, 1000):
        with pytest.raises(ValueError, match="threads"):
            pantheon.load(llama, threads=threads)
    for device in ("cuda", "tpu"):
        with pytest.raises(ValueError, match="device"):
            pantheon.load(llama, device=device)
    with pytest.raises(ValueError, match="dies"):
        pantheon.load(llama, dies=range(17))
    for dies in ([-1], [1, 1]):
        with pytest.raises(ValueError, match="dies"):
            pantheon.load(llama, dies=dies)
    with pantheon.load(llama, dies=[2, 0], threads=1) as model:
        assert model.dies == (2, 0)
        assert model.threads == 1
    with pytest.raises(FileNotFoundError):
        pantheon.load("no/such/file.gguf")


def test_paths_that_are_not_ascii(llama, tmp_path):
    path = tmp_path / "mod\u00e8le \u6a21\u578b.gguf"
    path.write_bytes(llama.read_bytes())
    with pantheon.load(path) as model:
        assert model.path == str(path)


def test_reset_leaves_untouched_memory_untouched(default_model):
    """A state of the whole context costs what its used part costs, before and after a reset."""
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with pantheon.load(default_model) as model:
        model.forward(1, model.new_state(n_ctx=8))           # what a first run touches of the file
        before = resident()
        states = [model.new_state(n_ctx=8192, kv_type="f32") for _ in range(4)]
        for state in states:
            model.forward(1, state)
            state.reset()
        grown = resident() - before
        assert sum(state.nbytes for state in states) > 20 * grown


def test_the_end_of_a_process_is_silent(llama):
    code = f"""
        import pantheon
        model = pantheon.load({str(llama)!r}, threads=2)
        state = model.new_state()
        model.prefill([1, 2, 3], state)
        chunks = model.generate([1, 2, 3], max_tokens=3)
        next(chunks)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_forked_child_runs_the_model(llama):
    code = f"""
        import os, pantheon
        model = pantheon.load({str(llama)!r}, threads=2)
        state = model.new_state()
        expected = model.prefill([1, 2, 3], state)
        pid = os.fork()
        state.reset()
        same = (model.prefill([1, 2, 3], state) == expected).all()
        if pid == 0:
            os._exit(0 if same else 1)
        assert same and os.waitpid(pid, 0)[1] == 0
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_ctrl_c_stops_a_prefill(default_model):
    """The interrupt arrives inside one long call; the state stands at a whole position and goes on from there."""
    code = f"""
        import os, signal, threading, time
        import numpy as np
        import pantheon
        model = pantheon.load({str(default_model)!r})
        state = model.new_state(n_ctx=8192)
        tokens = np.arange(100, 8000, dtype=np.uint32)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            model.prefill(tokens, state)
        except KeyboardInterrupt:
            print("stopped")
        pos = state.pos
        assert pos < len(tokens), pos
        rest = model.prefill(tokens[pos:pos + 8], state)
        fresh = model.new_state(n_ctx=8192)
        assert (rest == model.prefill(tokens[:pos + 8], fresh)).all()
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "stopped\n", "")
