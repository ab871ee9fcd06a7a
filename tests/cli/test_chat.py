"""`pantheon chat`, over a fake engine."""
import time

import pytest

from pantheon.cli import main


@pytest.fixture
def talk(model, stdin):
    """talk(lines, *options): one conversation from a script on stdin."""
    def run(lines, *options):
        stdin("".join(line + "\n" for line in lines).encode())
        return main(["chat", *options, model.path])

    return run


def fed(model):
    return [prompt.decode() for prompt, _, _, _ in model.calls]


def test_each_turn_feeds_only_what_is_new(capsys, model, talk):
    assert talk(["one", "", "two"]) == 0
    assert fed(model) == ["<user>one</><assistant>", "</><user>two</><assistant>"]
    out, err = capsys.readouterr()
    assert out == "Paris.\nParis.\n"
    assert "29 cached" in err
    assert bytes(model.states[0].tokens).decode() == "<user>one</><assistant>Paris.</><user>two</><assistant>Paris."
    assert len(model.states) == 1 and model.states[0].closed and model.closed


def test_answer_that_reads_back_differently(model, talk):
    """A template that rewrites history, here by capitals: the state is cut back to what is still shared."""
    encode = model.tokenizer.encode
    model.tokenizer.encode = lambda text: encode(text.replace("Paris", "PARIS"))
    assert talk(["one", "two"]) == 0
    assert fed(model)[1] == "ARIS.</><user>two</><assistant>"
    assert bytes(model.states[0].tokens).decode() == "<user>one</><assistant>PARIS.</><user>two</><assistant>Paris."


def test_system_message_and_reset(model, talk):
    assert talk(["one", "/reset", "two"], "--system", "S") == 0
    assert fed(model) == ["<system>S</><user>one</><assistant>", "<system>S</><user>two</><assistant>"]


def test_arguments_of_the_template_in_every_turn(capsys, model, talk):
    model.tokenizer.chat_templates = {"default": (
        "{{ x }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}")}
    assert talk(["one", "two"], "--template-arg", "x=[1]", "--answer-start", "So: ") == 0
    assert fed(model) == ["[1]<user>one</><assistant>So: ", "</><user>two</><assistant>So: "]
    assert capsys.readouterr().out == "So: Paris.\nSo: Paris.\n"


def test_commands(capsys, model, talk):
    assert talk(["/help", "/nonsense", "/etc/passwd, what is it?", "/exit", "never"]) == 0
    assert fed(model) == ["<user>/etc/passwd, what is it?</><assistant>"]
    err = capsys.readouterr().err
    assert "/reset" in err and "no such command: /nonsense" in err


def test_interrupt_stops_the_answer_only(capsys, model, talk):
    model.interrupt_after = 3
    assert talk(["one", "two"]) == 0
    # The second turn holds the part of the first answer that was shown, and all of it was in the state already.
    assert fed(model) == ["<user>one</><assistant>", "</><user>two</><assistant>"]
    out, err = capsys.readouterr()
    assert out == "Par\nPar\n"
    assert err.count("stopped") == 2
    assert bytes(model.states[0].tokens).decode() == "<user>one</><assistant>Par</><user>two</><assistant>Par"


def test_turn_that_does_not_fit_is_refused_and_forgotten(capsys, model, talk):
    assert talk(["one", "x" * 100, "two"], "--ctx", "80") == 0
    assert fed(model) == ["<user>one</><assistant>", "</><user>two</><assistant>"]
    assert "--ctx" in capsys.readouterr().err


def test_stop_texts_of_the_chat_style(model, talk):
    model.tokenizer.chat_stops = ("\n\nUser:",)
    assert talk(["one"], "--stop", "END") == 0
    assert list(model.calls[0][3]) == ["END", "\n\nUser:"]


def test_a_turn_that_the_template_refuses(capsys, model, talk):
    model.tokenizer.chat_templates = {"default": (
        "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not that') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>")}
    assert talk(["one", "no", "two"]) == 0
    assert fed(model) == ["<user>one</><assistant>", "</><user>two</><assistant>"]
    assert "error: not that" in capsys.readouterr().err


def test_one_sampler_for_the_conversation(model, talk):
    """The random numbers go on; they do not begin again with every turn."""
    assert talk(["one", "two"], "--seed", "1") == 0
    assert model.calls[0][1] is model.calls[1][1]


def test_model_without_template(capsys, model, talk):
    model.tokenizer.chat_templates = {}
    assert talk(["one"]) == 2
    assert "no chat template" in capsys.readouterr().err


def test_error_ends_the_program(capsys, model, talk):
    model.error = RuntimeError("lost")
    assert talk(["one", "two"]) == 1
    assert capsys.readouterr().err.endswith("pantheon: error: lost\n")
    assert len(model.calls) == 1


def test_a_second_interrupt_while_the_first_is_handled(capsys, model, talk, monkeypatch):
    """The next turn's state is still cut back to what it holds, wherever the second one came."""
    model.interrupt_after = 3
    perf_counter = time.perf_counter

    def interrupted():
        monkeypatch.setattr(time, "perf_counter", perf_counter)
        raise KeyboardInterrupt

    def stop(*args):
        monkeypatch.setattr(time, "perf_counter", interrupted)     # what measures the time of the answer that ends
        raise KeyboardInterrupt

    chunks = model._chunks

    def once(*args, **more):
        model._chunks = chunks
        for chunk in chunks(*args, **more):
            yield chunk
            if len(bytes(model.states[0].tokens)) > 25:
                stop()

    model._chunks = once
    assert talk(["one", "two"]) == 0
    assert fed(model)[1] == "</><user>two</><assistant>"
    assert bytes(model.states[0].tokens).decode().endswith("</><user>two</><assistant>Par")
