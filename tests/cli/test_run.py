"""`pantheon run`, over a fake engine; the last test runs the real one."""
import pytest
from support import rwkv_models

from pantheon import hub
from pantheon.cli import main
from pantheon.text.dry import default_breaker_ids


def fed(model):
    (prompt, _, _, _), = model.calls
    return prompt.decode()


def test_answer_on_stdout_statistics_on_stderr(capsys, model):
    assert main(["run", model.path, "capital of France?"]) == 0
    out, err = capsys.readouterr()
    assert out == "Paris.\n"
    assert err.startswith("prompt tokens 38 in ") and "answer tokens 6 in " in err and err.count("\n") == 1
    assert fed(model) == "<user>capital of France?</><assistant>"
    assert model.loads == [(model.path, None)]
    assert model.closed and model.states[0].closed


def test_quiet(capsys, model):
    assert main(["run", "-q", model.path, "x"]) == 0
    assert capsys.readouterr().err == ""


def test_options_may_stand_anywhere(model):
    assert main(["run", "-n", "3", model.path, "--ctx", "512", "hello there", "--kv", "q8_0", "-t", "2"]) == 0
    assert model.calls[0][2] == 3
    assert (model.states[0].n_ctx, model.states[0].kv_type) == (512, "q8_0")
    assert model.loads == [(model.path, 2)]
    assert "hello there" in fed(model)


def test_prompt_that_looks_like_an_option(model):
    assert main(["run", model.path, "--", "-5 + 3 ="]) == 0
    assert "-5 + 3 =" in fed(model)


def test_raw_and_system(model):
    assert main(["run", "--raw", model.path, "The capital of France is"]) == 0
    assert fed(model) == "The capital of France is"
    model.calls.clear()
    assert main(["run", "--system", "Be brief.", model.path, "Hi"]) == 0
    assert fed(model) == "<system>Be brief.</><user>Hi</><assistant>"


ARGUED = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if not (loop.last and m.role == 'assistant') %}</>"
          "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
          "|{{ enable_thinking }}|{{ tools }}|{{ documents }}")


def test_arguments_of_the_template(capsys, model, tmp_path):
    model.tokenizer.chat_templates = {"default": ARGUED, "tool_use": "T" + ARGUED, "rag": "R" + ARGUED}
    tools, documents = tmp_path / "tools.json", tmp_path / "documents.json"
    tools.write_text('[{"name": "f"}]')
    documents.write_text('[{"title": "t"}]')
    end = "<user>Hi</><assistant>"
    for options, prompt in (
        (["--template-arg", "enable_thinking=false"], end + "|False|None|None"),
        (["--tools", str(tools)], "T" + end + "||[{'name': 'f'}]|None"),
        (["--documents", str(documents), "--template-arg", 'template="rag"'], "R" + end + "||None|[{'title': 't'}]"),
        (["--template-arg", 'tools=[]', "--template-arg", 'enable_thinking="é"'], "T" + end + "|é|[]|None"),
    ):
        model.calls.clear()
        assert main(["run", *options, model.path, "Hi"]) == 0
        assert fed(model) == prompt
    capsys.readouterr()


def test_the_answer_goes_on_from_its_start(capsys, model):
    model.tokenizer.chat_templates = {"default": ARGUED}
    assert main(["run", "--answer-start", "In one word: ", model.path, "Hi"]) == 0
    assert fed(model) == "<user>Hi</><assistant>In one word: "
    assert capsys.readouterr().out == "In one word: Paris.\n"


@pytest.mark.parametrize(("options", "message"), [
    (["--template-arg", "x"], "'x' is not NAME=JSON"),
    (["--template-arg", "x=high"], "a text needs quotes"),
    (["--template-arg", "x=" + "[" * 100000], "not JSON"),
    (["--template-arg", "messages=[]"], "messages is given otherwise"),
    (["--template-arg", "x=1", "--template-arg", "x=2"], "x is given otherwise"),
    (["--tools", "nothing.json"], "nothing.json"),
    (["--tools", "object.json"], "object.json: not a JSON list"),
    (["--documents", "broken.json"], "broken.json: not JSON"),
    (["--tools", "missing/tools.json"], "argument --tools: missing/tools.json: No such file or directory"),
    (["--tools", "latin.json"], "argument --tools: latin.json: not valid UTF-8 (byte 2)"),
    (["--template-arg", "template=[1]"], "--template-arg: template is the name of a template"),
    (["--answer-start", "a", "--template-arg", "add_generation_prompt=true"],
     "--template-arg: add_generation_prompt and --answer-start exclude each other"),
    (["--raw", "--tools", "tools.json"], "--tools belongs to the chat template"),
    (["--raw", "--answer-start", "x"], "--answer-start belongs to the chat template"),
])
def test_wrong_arguments_of_the_template(capsys, model, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    for name, text in (("object", "{}"), ("broken", "["), ("tools", "[]")):
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "latin.json").write_bytes(b'["\xe9"]')
    assert main(["run", *options, model.path, "Hi"]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_default_model_gets_its_own_system_message(model, monkeypatch):
    monkeypatch.setattr(hub, "cached", lambda name=None: model.path)
    assert main(["run", "Hi"]) == 0
    assert main(["run", hub.DEFAULT_MODEL, "Hi"]) == 0
    assert main(["run", "--system", "S", "Hi"]) == 0
    assert main(["run", model.path, "Hi"]) == 0
    system = f"<system>{hub.KNOWN[hub.DEFAULT_MODEL].system}</>"
    assert [call[0].decode() for call in model.calls] == [
        f"{system}<user>Hi</><assistant>", f"{system}<user>Hi</><assistant>",
        "<system>S</><user>Hi</><assistant>", "<user>Hi</><assistant>"]


def test_model_without_template(capsys, model):
    model.tokenizer.chat_templates = {}
    assert main(["run", model.path, "Once"]) == 0
    assert fed(model) == "Once"
    capsys.readouterr()
    assert main(["run", "--system", "s", model.path, "Once"]) == 2
    assert "no chat template" in capsys.readouterr().err


def test_prompt_from_stdin(capsys, model, stdin):
    stdin("zwei\nZeilen ü".encode())
    assert main(["run", model.path, "-"]) == 0
    assert "zwei\nZeilen ü" in fed(model)
    stdin(b"bad \xff")
    capsys.readouterr()
    assert main(["run", model.path, "-"]) == 2
    assert "stdin is not valid UTF-8 (byte 4)" in capsys.readouterr().err


@pytest.mark.parametrize("argv, fields", [
    ([], {"temperature": 0.0}),
    (["--temp", "0.5"], {"temperature": 0.5}),
    (["--temp", "0", "--top-k", "5"], {"temperature": 0.0, "top_k": 5}),
    (["--top-p", "0.9", "--min-p", "0.1"], {"top_p": 0.9, "min_p": 0.1}),
    (["--seed", "7"], {"seed": 7}),
    (["--mirostat", "2", "--mirostat-tau", "3"], {"mirostat": 2, "mirostat_tau": 3.0}),
    (["--repeat-penalty", "1.1"], {"temperature": 0.0, "repeat_penalty": 1.1}),
    (["--dry-multiplier", "0.8", "--dry-base", "2", "--dry-allowed-length", "3"],
     {"temperature": 0.0, "dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 3}),
    (["--presence-penalty", "-1", "--repeat-last-n", "8"],
     {"temperature": 0.0, "presence_penalty": -1.0, "repeat_last_n": 8}),
])
def test_sampling_options(model, argv, fields):
    assert main(["run", *argv, model.path, "x"]) == 0
    assert model.calls[0][1] == fields


def test_dry_has_its_usual_breakers(capsys, llama, monkeypatch):
    asked = []
    monkeypatch.setattr("pantheon.generate.default_breaker_ids",
                        lambda tokenizer: asked.append(tokenizer) or default_breaker_ids(tokenizer))
    for options, n in (([], 0), (["--dry-multiplier", "0"], 0), (["--dry-multiplier", "0.8"], 1)):
        assert main(["run", "-q", "-n", "2", "--raw", *options, str(llama), "x"]) == 0
        assert len(asked) == n
    capsys.readouterr()


def test_stop_texts(model):
    assert main(["run", "--stop", "\n", "--stop", "END", model.path, "x"]) == 0
    assert model.calls[0][3] == ["\n", "END"]


def test_stop_texts_of_the_chat_style(model):
    model.tokenizer.chat_stops = ("\n\nUser:",)
    for options, stop in ((["--stop", "END"], ["END", "\n\nUser:"]), (["--stop", "END", "--raw"], ["END"])):
        model.calls.clear()
        assert main(["run", *options, model.path, "x"]) == 0
        assert list(model.calls[0][3]) == stop


def test_cut_answer_says_so(capsys, model):
    assert main(["run", "-n", "2", model.path, "x"]) == 0
    out, err = capsys.readouterr()
    assert out == "Pa\n"
    assert "cut at 2 tokens" in err


def test_answer_never_exceeds_the_context(model):
    assert main(["run", "--raw", "--ctx", "16", model.path, "twelve bytes"]) == 0
    assert model.calls[0][2] == 4


def test_prompt_longer_than_the_context(capsys, model):
    assert main(["run", "--raw", "--ctx", "8", model.path, "twelve bytes"]) == 2
    assert "12 tokens" in capsys.readouterr().err
    assert model.calls == []


def test_control_characters_reach_a_pipe_but_no_terminal(capsys, model, monkeypatch):
    model.answer = "\x1b[2J[bold]x"
    assert main(["run", "-q", model.path, "x"]) == 0
    assert capsys.readouterr().out == "\x1b[2J[bold]x\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["run", "-q", model.path, "x"]) == 0
    assert capsys.readouterr().out == "�[2J[bold]x\n"


def test_real_model(capsys):
    """The README's first command."""
    assert main(["run", "-q", "-n", "16", "What is the capital of France?"]) == 0
    assert "Paris" in capsys.readouterr().out
    assert hub.cached() is not None


def test_rwkv_needs_its_vocabulary(capsys, tmp_path):
    """A safetensors file has none; `info` does without."""
    path, vocab = tmp_path / "m.safetensors", tmp_path / "vocab.txt"
    rwkv_models.write(rwkv_models.RECIPES["rwkvx"], path)
    vocab.write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    assert main(["run", "-q", "-n", "3", "--vocab", str(vocab), str(path), "hi"]) == 0
    assert capsys.readouterr().out
    for argv in (["info", "--json"], ["info", "--json", "--vocab", str(vocab)]):
        assert main([*argv, str(path)]) == 0
        assert '"rwkvx"' in capsys.readouterr().out
    assert main(["run", str(path), "hi"]) == 1
    assert "--vocab" in capsys.readouterr().err
    assert main(["chat", "--vocab", str(tmp_path / "missing"), str(path)]) == 1
    assert "missing: No such file" in capsys.readouterr().err
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for argv in (["run", str(tmp_path), "hi"], ["chat", str(tmp_path / "m.gguf")], ["bench", str(tmp_path)],
                 ["info", str(tmp_path / "m.gguf")]):
        assert main([*argv, "--vocab", str(vocab)]) == 2
        err = capsys.readouterr().err
        assert "--vocab is for an RWKV-X model in a safetensors file" in err and err.count("\n") == 1
    assert main(["run", str(path)]) == 2
    assert "prompt is missing" in capsys.readouterr().err
