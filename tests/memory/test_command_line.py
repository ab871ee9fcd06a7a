"""Admission as users of `pantheon run`, `chat`, `info` and `doctor` see it, on a made-up machine."""
import io
import json
import re

import pytest

from pantheon._core.base import threads
from pantheon._core.memory import ladder
from pantheon.cli import main

GIB = 1 << 30


def leave(machine, nbytes, total=64 * GIB):
    machine.memory(total, (nbytes + int(ladder.DEFAULTS["keep"] * total) + 1023) // 1024 * 1024)


class LastMessage:
    """In place of a chat template: a turn is its last message."""

    has_template = True
    chat_stops = ()

    def __init__(self, model, arguments):
        self.chat = lambda messages, answer_start=None: model.tokenizer.encode(messages[-1]["content"])


def run(wide, prompt, *options):
    return main(["run", "--raw", "--ctx", "4096", *options, str(wide), prompt])


def test_a_prompt_that_does_not_fit_is_refused_with_numbers_and_hints(machine, wide, capsys):
    leave(machine, 70 << 20)                             # f16: 32 KiB a token, q8_0: 17 KiB, and the work buffers
    assert run(wide, "x" * 2000, "-n", "5", "--kv", "f16") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert re.search(r"does not fit into memory: \d{8} bytes are needed .*, 7340\d{4} can be had", err)
    assert "with a q8_0 cache 2009 tokens fit" in err and "a smaller context" in err
    assert run(wide, "x" * 2000, "-n", "5", "--kv", "q8_0") == 0
    assert capsys.readouterr().out != ""


def test_an_answer_that_does_not_fit_is_cut_for_all_to_see(machine, wide, capsys, caplog):
    leave(machine, 4 << 20)
    assert run(wide, "x" * 20, "-n", "3000", "--kv", "f16", "--stop", "never") == 0
    err = capsys.readouterr().err
    if "cut at" in err:                                  # the model may also have ended by itself
        assert "tokens; memory: " in err and "-n and --ctx" not in err
    assert "max_tokens capped 3000 -> " in caplog.text


def test_a_conversation_survives_a_refusal(machine, wide, capsys, monkeypatch):
    leave(machine, 40 << 20)
    monkeypatch.setattr("pantheon.cli.prompt.PromptEncoder", LastMessage)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 2000 + b"\nhello\n")))
    assert main(["chat", "-n", "3", "--ctx", "4096", "--kv", "f16", str(wide)]) == 0
    err = capsys.readouterr().err
    assert "error: the prompt of 2004 tokens does not fit into memory" in err
    assert "answer tokens" in err.split("fit into memory")[1]


def test_doctor_says_why_there_are_so_many_threads(capsys, monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda: 1.5)
    monkeypatch.setattr(threads, "physical_cores", lambda: 8)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert main(["doctor", "--json"]) == 0
    processor = json.loads(capsys.readouterr().out)["processor"]
    assert (processor["threads"], processor["threads_because_of"]) == (1, "CPU quota of the container")
    monkeypatch.setattr(threads, "cgroup_quota", lambda: None)
    assert main(["doctor", "--json"]) == 0
    processor = json.loads(capsys.readouterr().out)["processor"]
    assert (processor["threads"], processor["threads_because_of"]) == (8, "physical cores")


@pytest.mark.parametrize("text", ["0", "-5", "lots"])
def test_a_budget_of_nothing(text, llama, capsys, monkeypatch):
    from pantheon._core.memory import memwatch

    memwatch.stop()
    try:
        monkeypatch.setenv("PANTHEON_MEMORY_LIMIT", text)
        assert main(["info", str(llama)]) == 1
        assert f"PANTHEON_MEMORY_LIMIT is '{text}', not in 1..4611686018427387904 bytes" in capsys.readouterr().err
    finally:
        monkeypatch.undo()
        memwatch.start()
