"""The command line with standard streams that are closed, full, without a reader, or in another encoding.

Each test runs the command as a process of its own: no stream that a test can put in their place is any of these.
"""
import os
import subprocess
import sys

import pytest

TINY = "tiny model"
COMMANDS = [["--version"], ["run", "--help"], ["doctor"], ["info", TINY], ["run", "-n", "2", TINY, "hi"],
            ["bench", "-p", "4", "-n", "1", "-r", "1", TINY]]


@pytest.fixture
def shell(llama, tmp_path):
    """shell(words, redirections, **environment): a command line run by sh; "" in the environment is not set."""
    def run(words, redirections="", stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **environment):
        words = [sys.executable, "-m", "pantheon.cli", *(str(llama) if word == TINY else word for word in words)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "",
               **environment}
        return subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *words], stdin=stdin, stdout=stdout,
                              stderr=subprocess.PIPE, cwd=tmp_path, env={k: v for k, v in env.items() if v})

    return run


def names(words):
    return " ".join(words)


@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_closed_stdout(shell, words):
    done = shell(words, ">&-")
    assert (done.returncode, done.stderr) == (1, b"pantheon: error: standard output is closed\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_full_stdout(shell, words, unbuffered):
    done = shell(words, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == b"pantheon: error: standard output: No space left on device"
    assert b"Traceback" not in done.stderr and b"ignored" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_stdout_without_a_reader(shell, words, unbuffered):
    """`pantheon ... | head -1` says nothing on stderr: the reader has seen enough."""
    reader, writer = os.pipe()
    os.close(reader)
    done = shell(words, stdout=writer, PYTHONUNBUFFERED=unbuffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&- 2>&-"])
@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_stderr_that_nobody_hears(shell, words, redirection):
    """The command does its work, and what it would say to stderr goes nowhere else."""
    done = shell(words, redirection)
    assert done.returncode == 0
    assert done.stdout and b"tokens in" not in done.stdout


def test_error_that_nobody_hears(shell):
    done = shell(["frobnicate"], "2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_file_does_not_get_the_number_of_a_closed_stream(shell, tmp_path):
    """A log line of the engine would be written into it."""
    program = tmp_path / "sitecustomize.py"
    program.write_text("import sys\n"
                       "def opened(event, args):\n"
                       "    if event == 'open' and str(args[0]).endswith('.gguf'):\n"
                       "        import os\n"
                       "        links = [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)]\n"
                       "        open('links', 'w').write(' '.join(links))\n"
                       "sys.addaudithook(opened)\n")
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    assert shell(["run", "-n", "1", TINY, "hi"], "<&- 2>&-", PYTHONPATH=path).returncode == 0
    stdin, stdout, stderr = (tmp_path / "links").read_text().split()
    assert (stdin, stderr) == ("/dev/null", "/dev/null") and stdout.startswith("pipe:")


@pytest.mark.parametrize("words", [["chat", TINY], ["run", TINY, "-"]], ids=names)
def test_closed_stdin(shell, words):
    done = shell(words, "<&-")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"pantheon: error: standard input is closed\n")


def test_closed_stdin_that_nobody_reads(shell):
    assert shell(["info", TINY], "<&-").returncode == 0


@pytest.mark.parametrize("words", [["chat", TINY], ["run", TINY, "-"]], ids=names)
@pytest.mark.parametrize("data, says", [(b"a\n\xffb", b"not valid UTF-8 (byte"), (bytes((64 << 20) + 1), b"64 MiB")],
                         ids=["bytes", "endless"])
def test_stdin_that_is_no_text(shell, tmp_path, words, data, says):
    (tmp_path / "in").write_bytes(data)
    done = shell([*words, "-n", "1", "-q"], "<in")
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("environment", [
    {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["ascii", "C", "C without UTF-8"])
def test_characters_that_the_locale_lacks(shell, environment):
    """They are question marks in the output, and themselves in a prompt."""
    done = shell(["info", "caf\u00e9\U0001f600.gguf"], **environment)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    here, there = (shell(["run", "-n", "8", TINY, "caf\u00e9\U0001f600", "-q"], **more) for more in ({}, environment))
    assert (here.returncode, there.returncode) == (0, 0)
    answer = here.stdout.decode()
    assert not answer.isascii()
    assert there.stdout in (answer.encode(), answer.encode("ascii", "replace"))


@pytest.mark.parametrize("option", ["--system", "--stop", "--answer-start"])
def test_option_that_is_no_text(shell, option):
    done = shell(["run", option, b"\xff", TINY, "hi"])
    assert done.returncode == 2 and b"not valid UTF-8" in done.stderr and done.stderr.count(b"\n") == 1
