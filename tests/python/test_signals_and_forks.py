"""Signal handlers that run in the middle of a call, and children that are forked there."""
import subprocess
import sys
import textwrap

import pytest

SETUP = """
    import os, signal, sys, threading, time
    import pantheon
    model = pantheon.load(sys.argv[1], threads=int(sys.argv[2]))
    tokens = [100] * 1100                # a window and more
    state = model.new_state(min(1104, model.n_ctx_train))

    def during(deed):
        \"\"\"The main thread's prefill, with deed run by a signal handler in the middle of it.\"\"\"
        def handler(*_):
            deed()
        def send():
            while state.pos == 0:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGALRM)
        signal.signal(signal.SIGALRM, handler)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            return model.prefill(tokens, state)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def in_child(deed):
        \"\"\"What deed returns in a forked child; "hangs" when it never does.\"\"\"
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(120)            # which ends a child that hangs
            try:
                answer = str(deed())
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(write, answer.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            answer = f.read()
        return answer if os.waitpid(pid, 0)[1] == 0 else "hangs"
"""


def child(code, *arguments, timeout=300):
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(SETUP) + textwrap.dedent(code),
                             *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request):
    return request.param


def test_a_handler_closes_the_model(default_model, threads):
    """close() under the lock that the interrupted call holds: it returns, and the call ends."""
    assert child("""
        print(during(model.close))
        print(model.closed, state.closed)
        try:
            model.new_state()
        except ValueError as error:
            print(error)
    """, default_model, threads) == ["ValueError: the model is closed", "True True", "the model is closed"]


BUSY = ("state.reset()", "state.checkpoint()", "model.forward(1, state)", "model.forward(1, model.new_state(8))",
        "setattr(model, 'threads', 1)")
FREE = ("model.admit(3)", "model.reserve(3).release()", "model.tokenizer.encode('hi')", "model.new_state(8).close()",
        "model.cost(8)", "other.prefill([1, 2, 3], other.new_state(8))",
        "list(other.generate([1, 2, 3], max_tokens=2))")


def test_a_handler_uses_the_model(default_model, threads):
    """Nothing hangs: what would need the running call's turn is a BusyError, all else works, and the call goes on."""
    assert child(f"""
        other = pantheon.load(sys.argv[1], threads=int(sys.argv[2]))

        def deed():
            for one in {BUSY + FREE}:
                try:
                    exec(one)
                    print("done", one)
                except pantheon.BusyError:
                    print("busy", one)

        print(len(during(deed)), state.pos)
    """, default_model, threads) == [*(f"busy {one}" for one in BUSY), *(f"done {one}" for one in FREE), "49152 1100"]


def test_a_handler_forks(default_model, threads):
    """In the child the ranks of the interrupted call are gone: it ends, and the model works."""
    assert child("""
        other, answers = pantheon.load(sys.argv[1], threads=int(sys.argv[2])), []

        def deed():
            answers.append(in_child(lambda: other.prefill([1, 2, 3], other.new_state(8)).shape))

        print(len(during(deed)), state.pos, answers)
    """, default_model, threads) == ["49152 1100 ['(49152,)']"]


def test_a_handler_forks_and_the_child_returns_from_it(default_model, threads):
    assert child("""
        pids = []

        def deed():
            pids.append(os.fork())
            if pids[-1] == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(120)

        outcome = during(deed)
        if pids[0] == 0:
            whole = not isinstance(outcome, str)         # alone, a rank misses nobody
            good = whole if sys.argv[2] == "1" else outcome == "RuntimeError: interrupted"
            state.reset()
            good = good and len(model.prefill([1, 2, 3], state)) == model.n_vocab
            os._exit(0 if good else 1)
        print(len(outcome), os.waitpid(pids[0], 0)[1])
    """, default_model, threads) == ["49152 0"]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("deed", ["None", "use()", "in_thread(use)"])
def test_a_handler_forks_while_its_thread_waits_for_a_lock(llama, deed, reentrant):
    """Who holds it is no thread of the child, which must not wait for it whatever the handler did there before."""
    assert child(f"""
        from pantheon._core.base.turn import TurnLock

        lock, held, done = TurnLock(reentrant={reentrant}), threading.Event(), threading.Event()

        def hold():
            with lock:
                held.set()
                done.wait()

        def use():
            with lock:
                pass

        def in_thread(work):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        def handler(*_):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                {deed}
            else:
                print(os.waitpid(pid, 0)[1])
                done.set()

        parent = os.getpid()
        signal.signal(signal.SIGALRM, handler)
        threading.Thread(target=hold).start()
        held.wait()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with lock:
            if os.getpid() != parent:
                os._exit(0)
        print(done.is_set())
    """, llama, 1) == ["0", "True"]


def test_a_handler_forks_while_a_request_waits_for_others_to_end(llama):
    """Other threads end theirs all the time, which wakes who waits; what they hold for that is free in the child."""
    assert child("""
        from pantheon import admission

        class Hold:
            def release(self):
                pass

        sys.setswitchinterval(1e-6)
        ending, stop, pids = admission.Reservation(None, Hold()), False, []

        def end_requests():
            while not stop:
                ending.release()

        def handler(*_):
            pids.append(os.fork())
            if pids[-1] == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)

        threads = [threading.Thread(target=end_requests) for _ in range(2)]
        for thread in threads:
            thread.start()
        signal.signal(signal.SIGALRM, handler)
        for n in range(1, 11):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            while len(pids) < n:
                admission._wait_for_release(0.25)
            if pids[-1] == 0:
                os._exit(0)
        stop = True
        for thread in threads:
            thread.join()
        print({os.waitpid(pid, 0)[1] for pid in pids})
    """, llama, 1) == ["{0}"]


DEEDS = ("model.prefill([1, 2, 3], model.new_state(8)).shape", "model.forward(1, model.new_state(8)).shape",
         "setattr(model, 'threads', 1)", "len(model.tokenizer.encode('hello there'))", "state.reset()",
         "len(list(model.generate([1] * 40, max_tokens=2)))", "model.admit(3).status",
         "model.reserve(3).verdict.status", "model.prefix_cache.nbytes >= 0", "model.chat_template is not None",
         "model.prefix_cache.clear()", "state.close()", "model.close()")


def test_a_child_of_a_process_whose_other_threads_run_the_model(default_model):
    """Every lock that a running thread holds is free in the child."""
    assert child(f"""
        model.use_prefix_cache(1 << 28)
        stop = False

        def run():
            while not stop:
                own = model.new_state(208)
                model.prefill([100] * 200, own)
                list(model.generate([7] * 40, max_tokens=2))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for deed in {DEEDS}:
            for _ in range(3):
                time.sleep(0.02)
                print(deed, in_child(lambda: eval(deed)))
        stop = True
        for thread in threads:
            thread.join()
    """, default_model, 2) == [
        f"{deed} {answer}" for deed, answer in zip(DEEDS, (
            "(49152,)", "(49152,)", "None", "2", "None", "2", "FIT", "FIT", "True", "True", "None", "None", "None"),
            strict=True) for _ in range(3)]


def test_a_child_while_another_thread_builds_the_tokenizer(default_model):
    assert child("""
        for _ in range(3):
            fresh = pantheon.load(sys.argv[1])
            builder = threading.Thread(target=lambda: fresh.tokenizer)
            builder.start()
            time.sleep(0.01)
            print(in_child(lambda: len(fresh.tokenizer.encode("hello there")) > 0))
            builder.join()
    """, default_model, 1) == ["True"] * 3


def test_a_child_while_another_thread_imports_the_engine(llama):
    """Its names are imported when they are first used, which may be in a thread."""
    code = f"""
        import os, signal, threading, time
        import pantheon
        thread = threading.Thread(target=lambda: pantheon.load({str(llama)!r}).generate([1, 2], max_tokens=1))
        thread.start()
        time.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            signal.alarm(120)
            os._exit(0 if len(list(pantheon.load({str(llama)!r}).generate([1, 2], max_tokens=1))) == 1 else 1)
        thread.join()
        print(os.waitpid(pid, 0)[1])
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


def test_ctrl_c_in_a_log_handler(default_model):
    """A handler of the logger that raises KeyboardInterrupt: the engine's call ends with it; other exceptions do not
    reach it."""
    assert child("""
        import logging
        from pantheon._core.base import logging_bridge

        class Handler(logging.Handler):
            def emit(self, record):
                raise KeyboardInterrupt

        logger = logging.getLogger("pantheon")
        logger.propagate = False
        logger.addHandler(Handler())
        try:
            logging_bridge.emit(logging.WARNING, "a line")
        except KeyboardInterrupt:
            print("stopped")
        print(len(model.prefill([1, 2, 3], state)))
    """, default_model, 1) == ["stopped", "49152"]


def test_ctrl_c_in_a_log_handler_of_a_call_that_fails(llama, tmp_path):
    """It ends that call, and not whatever comes next: here the cache's type is warned of, and then it has no room."""
    data = bytearray(llama.read_bytes())
    key = b"llama.context_length" + (4).to_bytes(4, "little")
    at = data.index(key) + len(key)
    data[at:at + 4] = (2**30).to_bytes(4, "little")
    path = tmp_path / "long.gguf"
    path.write_bytes(data)
    assert child("""
        import logging, resource

        class Handler(logging.Handler):
            def emit(self, record):
                raise KeyboardInterrupt

        logger = logging.getLogger("pantheon")
        logger.propagate = False
        logger.addHandler(Handler())
        room = 1 << 34
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        try:
            model.new_state(2**30, "q8_0")
        except BaseException as error:
            print(type(error).__name__, type(error.__context__).__name__)
        print(len(model.prefill([1, 2, 3], state)) == model.n_vocab)
    """, path, 1) == ["KeyboardInterrupt MemoryError", "True"]
