"""How signals end a command: with 128 + their number, and without a word."""
import os
import pty
import select
import signal
import subprocess
import sys
import termios

import pytest

from pantheon.cli import main, signals


def environment(*folders):
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *(p for p in sys.path if p)])}


def ended(words, cwd, *folders):
    """How Python ends with these arguments: its status, and what it wrote to stdout and to stderr."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=environment(*folders))
    return done.returncode, done.stdout, done.stderr


# A module that is found before the real one and signals its own process while it is imported: as often as it says.
SIGNALLING = """
import os, signal
for _ in range({times}):
    try:
        os.kill(os.getpid(), signal.{name})
        sum(range(1000))
    except BaseException:
        raise ImportError("hidden")         # as what imports numpy from C does
"""


@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("module", ["pantheon.cli.doctor", "numpy", "rich"])
def test_while_starting(tmp_path, name, status, module):
    text = SIGNALLING.format(times=2, name=name)
    if module.startswith("pantheon."):      # a package that is there cannot be hidden: its finder is
        text = ("import sys\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n"
                f"        if name == {module!r}:\n" + text.replace("\n", "\n            ") + "\n"
                "sys.meta_path.insert(0, Finder())\n")
        (tmp_path / "sitecustomize.py").write_text(text)
    else:
        (tmp_path / f"{module}.py").write_text(text)
    assert ended(["-m", "pantheon.cli", "doctor"], tmp_path, tmp_path) == (status, "", "")


def test_where_nothing_can_be_raised(tmp_path):
    """In a destructor an exception ends with a traceback, and the program would go on."""
    program = ("import os, signal\nfrom pantheon.cli import signals\n"
               "class Thing:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n        sum([1])\n"
               "with signals.as_exceptions(True):\n    thing = Thing()\n    del thing\n    print('on')\n")
    assert ended(["-c", program], tmp_path) == (130, "", "")


def test_hidden_by_what_cleans_up():
    try:
        try:
            raise SystemExit(143)
        finally:
            raise AttributeError("save_nargs")
    except AttributeError as e:
        assert signals.ended_with(e) == 143
    assert signals.ended_with(AttributeError()) is None


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_an_answer_is_written(capsys, model, monkeypatch, number, status):
    write = signal.raise_signal
    monkeypatch.setattr(type(model.tokenizer), "encode", lambda self, text: (write(number), list(text.encode()))[1])
    before = signal.getsignal(number)
    assert main(["run", model.path, "x"]) == status
    assert capsys.readouterr() == ("", "")
    assert model.closed and signal.getsignal(number) is before


def test_ignored_signals_stay_ignored(capsys, model):
    """As `nohup` wants it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals.as_exceptions(False):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words, **more):
        self.fd, inner = pty.openpty()
        self.seen, self.at = b"", 0
        self.process = subprocess.Popen([sys.executable, "-m", "pantheon.cli", *words], stdin=inner, stdout=inner,
                                        stderr=inner, env={**environment(), "TERM": "dumb", **more},
                                        start_new_session=True, cwd="/")
        self.inner = inner

    def wait_for(self, text):
        """Reads on until text comes, after what was waited for before."""
        while text not in self.seen[self.at:]:
            ready, _, _ = select.select([self.fd], [], [], 60)
            assert ready, (text, self.seen)
            self.seen += os.read(self.fd, 4096)
        self.at = self.seen.index(text, self.at) + len(text)

    def type(self, data):
        os.write(self.fd, data)

    def end(self):
        status = self.process.wait(60)
        while select.select([self.fd], [], [], 0)[0]:
            self.seen += os.read(self.fd, 4096)
        return status


@pytest.fixture
def chat(llama):
    """A conversation on a terminal, at its prompt."""
    terminal = Terminal(["chat", "-n", "100", str(llama)])
    terminal.wait_for(b"> ")
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.fd)
    os.close(terminal.inner)


def test_interrupts_and_the_end_of_input_at_the_prompt(chat):
    for _ in range(2):
        # Python notices one that comes just before it waits for a key only with the next key: it is sent until heard.
        chat.process.send_signal(signal.SIGINT)
        while not select.select([chat.fd], [], [], 0.5)[0]:
            chat.process.send_signal(signal.SIGINT)
        chat.wait_for(b"leaves")
        chat.wait_for(b"> ")
    chat.type(b"\x04")
    assert chat.end() == 0
    assert b"Traceback" not in chat.seen and chat.seen.endswith(b"\n")


def test_termination_at_the_prompt_leaves_a_usable_terminal(chat):
    while chat.process.poll() is None:
        chat.process.send_signal(signal.SIGTERM)
        select.select([], [], [], 0.5)
    # On a slow machine the second may find an interpreter that is gone. A shell says 143 of either end.
    assert chat.end() in (143, -signal.SIGTERM)
    assert b"Traceback" not in chat.seen
    assert termios.tcgetattr(chat.inner)[3] & termios.ECHO


def test_typed_bytes_that_are_no_characters(chat):
    chat.type(b"caf\xff\n")
    chat.wait_for(b"not valid UTF-8")
    chat.wait_for(b"> ")
    chat.type(b"/exit\n")
    assert chat.end() == 0


def test_a_signal_that_comes_when_the_command_has_ended(tmp_path):
    """Between the last work and the end of the process; it may have come and not been noticed yet."""
    program = ("import os, signal, sys\nfrom pantheon.cli import signals\n"
               "with signals.as_exceptions(True):\n    pass\nprint('done', flush=True)\n"
               "os.kill(os.getpid(), signal.SIGINT)\n"
               "sum([1])\nprint('never')\n")
    assert ended(["-c", program], tmp_path) == (130, "done\n", "")
