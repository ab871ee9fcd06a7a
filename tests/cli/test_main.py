"""Finding the command, and what its failures look like."""
import os
import subprocess
import sys

import pytest

from pantheon import hub
from pantheon.cli import COMMANDS, main
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
    (["run", "--temp", "nan", "x"], "nan is not at least 0"),
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
    from importlib.metadata import version
    assert child.stdout == f"pantheon {version('pantheon')}\n"


def test_describe_has_no_line_breaks():
    assert describe(RuntimeError("a\r\n\tb\n")) == "a b"
    assert describe(OSError(28, "No space left on device")) == "No space left on device"


def test_printable():
    assert printable("tab\tnew\nline é 日本 🙂") == "tab\tnew\nline é 日本 🙂"
    assert printable("\x1b]0;title\x07\x9b31m\r\x7f") == "�]0;title��31m��"
