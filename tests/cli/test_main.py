"""Finding the command, and what its failures look like."""
import os
import subprocess
import sys

import pytest

from pantheon import __version__, hub
from pantheon.cli import main
from pantheon.cli.dispatch import COMMANDS
from pantheon.cli.errors import describe, printable


def child_environment():
    """For child processes outside the current folder: they import what this process imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def error_line(capsys):
    """The one line on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pantheon: error: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    return err


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_help_names_every_command(capsys, argv):
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for command in COMMANDS:
        assert f"\n  {command} " in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(capsys, command):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: pantheon {command}" in out
    assert "MODEL" in out or command == "doctor"


@pytest.mark.parametrize("argv, says", [
    (["rnu", "x"], "did you mean run?"),
    (["frobnicate"], "commands: run, chat"),
    (["run"], "required"),
    (["run", "--no-such-option", "x"], "--no-such-option"),
    (["run", "--tem", "1", "x"], "--tem"),
    (["run", "-n", "0", "x"], "0 is not in 1.."),
    (["run", "-n", "many", "x"], "many"),
    (["run", "--temp", "nan", "x"], "nan is not in 0..3.4e+38"),
    (["run", "--top-p", "1.5", "x"], "1.5 is not in 0..1"),
    (["run", "--kv", "q2_k", "x"], "q2_k"),
    (["run", ""], "empty"),
    (["run", "a", "b", "c"], "quotes"),
    (["run", "no-such-file.gguf", "x"], "no-such-file.gguf: no such file"),
    (["run", "--raw", "--system", "s", "x"], "--system"),
    (["run", "caf\udce9"], "UTF-8"),
    (["chat", "no-such-file.gguf"], "no-such-file.gguf: no such file"),
    (["info", "no-such-file.gguf"], "no-such-file.gguf: no such file"),
    (["pull", "no-such-model"], hub.DEFAULT_MODEL),
])
def test_usage_errors(capsys, model, argv, says):
    assert main(argv) == 2
    assert says in error_line(capsys)
    assert model.loads == []


def test_model_without_prompt(capsys, model):
    assert main(["run", model.path]) == 2
    assert "prompt is missing" in error_line(capsys)


@pytest.mark.parametrize("error, says", [
    (ValueError("fake.gguf: tensor a\nends behind the file"), "fake.gguf: tensor a ends behind the file"),
    (FileNotFoundError(2, "No such file or directory", "x.gguf"), "x.gguf: No such file or directory"),
    (MemoryError(), "out of memory"),
    (hub.HubError("no network"), "no network"),
    (KeyError("blk.0"), "KeyError: 'blk.0' (a defect"),
    (ValueError("\x1b[2Jgone"), "�[2Jgone"),
])
def test_runtime_errors(capsys, model, error, says):
    model.error = error
    assert main(["run", model.path, "x"]) == 1
    assert says in error_line(capsys)
    assert model.closed and model.states[0].closed


def test_traceback_on_request(model, monkeypatch):
    monkeypatch.setenv("PANTHEON_TRACEBACK", "1")
    model.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        main(["run", model.path, "x"])


def test_interrupt(capsys, model):
    model.interrupt_after = 3
    assert main(["run", model.path, "x"]) == 130
    out, err = capsys.readouterr()
    assert out == "Par\n"
    assert err == ""


def test_reader_that_goes_away(tmp_path):
    """`pantheon ... | head -1` says nothing on stderr."""
    command = [sys.executable, "-m", "pantheon.cli", "run", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                           env=child_environment())
    os.close(writer)
    assert child.stderr == ""
    assert child.returncode == 0


def test_version_is_the_package_s_and_needs_no_terminal_library(tmp_path):
    program = """if True:
        import sys
        from pantheon.cli import main
        status = main(["--version"])
        sys.exit(status or ", ".join({"rich", "pantheon.cli.run", "pantheon.cli.chat"} & set(sys.modules)) or 0)
    """
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path,
                           env=child_environment())
    assert child.returncode == 0, child.stderr
    assert child.stdout == f"pantheon {__version__}\n"


def test_describe_has_no_line_breaks():
    assert describe(RuntimeError("a\r\n\tb\n")) == "a b"
    assert describe(OSError(28, "No space left on device")) == "No space left on device"


def test_printable():
    assert printable("tab\tnew\nline é 日本 🙂") == "tab\tnew\nline é 日本 🙂"
    assert printable("\x1b]0;title\x07\x9b31m\r\x7f") == "�]0;title��31m��"


@pytest.mark.parametrize("argv, says", [
    (["run", "-n", "9" * 5000, "x"], "... is not in 1..2147483647"),
    (["run", "-n", "2147483648", "x"], "2147483648 is not in 1..2147483647"),
    (["run", "--seed", "18446744073709551616", "x"], "is not in 0..18446744073709551615"),
    (["run", "--temp", "1e39", "x"], "1e39 is not in 0..3.4e+38"),
    (["run", "--temp", "inf", "x"], "inf is not in 0..3.4e+38"),
    (["run", "--top-n-sigma=-1", "x"], "-1 is not in 0..3.4e+38"),
    (["run", "-n", "1_0", "x"], "1_0 is not a whole number"),
    (["run", "-n", "\u0663", "x"], "'\u0663' is not a whole number"),
    (["run", "-n", "", "x"], "'' is not a whole number"),
    (["run", "-t", "257", "x"], "257 is not in 1..256"),
    (["bench", "-t", "257"], "257 is not in 1..256"),
    (["info", "--ctx", str(2**63)], "is not in 1..2147483647"),
    (["run", "--stop", "", "x"], "the text is empty"),
    (["info", ""], "MODEL is empty"),
])
def test_values_out_of_range(capsys, model, argv, says):
    assert main(argv) == 2
    assert says in error_line(capsys)
    assert model.loads == []


def test_long_messages_are_shortened():
    text = describe(OSError(36, "File name too long", "x" * 5000))
    assert len(text) < 1100 and text.startswith("xxx") and text.endswith("xxx: File name too long")


@pytest.mark.parametrize("setting", ["PANTHEON_CPU=nonsense", "PANTHEON_MEMORY_LIMIT=much", "PANTHEON_MEMWATCH=2"])
@pytest.mark.parametrize("command", ["doctor", "info"])
def test_settings_that_mean_nothing(tmp_path, llama, setting, command):
    name, value = setting.split("=")
    words = [command] if command == "doctor" else [command, str(llama)]
    child = subprocess.run([sys.executable, "-m", "pantheon.cli", *words], capture_output=True, text=True, cwd=tmp_path,
                           env={**child_environment(), name: value})
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr.startswith(f"pantheon: error: {name}") and child.stderr.count("\n") == 1


@pytest.mark.parametrize("argv", [["--version"], ["run", "--help"]])
def test_help_needs_no_setting(tmp_path, argv):
    child = subprocess.run([sys.executable, "-m", "pantheon.cli", *argv], capture_output=True, text=True, cwd=tmp_path,
                           env={**child_environment(), "PANTHEON_CPU": "nonsense"})
    assert (child.returncode, child.stderr) == (0, "")


def test_an_import_that_fails_is_one_line(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy is broken')")
    child = subprocess.run([sys.executable, "-m", "pantheon.cli", "doctor"], capture_output=True, text=True,
                           cwd=tmp_path, env={**child_environment(), "PYTHONPATH": os.pathsep.join(
                               [str(tmp_path), *(p for p in sys.path if p)])})
    assert (child.returncode, child.stderr) == (1, "pantheon: error: numpy is broken\n")


def test_what_the_engine_warns_of_is_a_note(model, tmp_path, llama):
    """Names in it are a stranger's: nothing in it steers a terminal."""
    program = ("import logging, sys\nfrom pantheon.cli import terminal\nterminal.show_log()\nterminal.show_log()\n"
               "logging.getLogger('pantheon').warning('tensor \\x1b[2J\\nx')\n")
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path,
                           env=child_environment())
    assert (child.stdout, child.stderr) == ("", "tensor \ufffd[2J x\n")
