"""What careless C callers do is an error with a text: no pointers, numbers out of range, the wrong order or state.

The probe calls, and checks that model and states are as good as new afterwards.
"""
import pytest
from support import every_architecture

pytestmark = pytest.mark.hostile

MARK = "architecture -7 is not in 0.."       # the text that the probe leaves before each call


@pytest.mark.parametrize("name", every_architecture.NAMES)
def test_states_and_runs(probe, name, llama, tmp_path, monkeypatch):
    path = every_architecture.model_path(name, tmp_path, monkeypatch)
    seen = probe.careless_states(str(path), str(llama))
    texts = {call: text for call, _, text in seen}
    assert len(texts) == len(seen) > 45
    unexplained = [call for call, text in texts.items() if text.startswith(MARK)]
    assert unexplained == []
    zero = ("name of none", "forward of no architecture", "forward, ", "a position of -4", "snapshot bytes of none",
            "kv_type of none", "bytes of none")
    for call, result, _ in seen:
        assert result == (0 if call.startswith(zero) else -1), call
    assert texts["free the model first"] == "1 states of the model were not freed: it stays"
    assert texts["batch, twice"] == "states 0 and 1 are the same: a state takes one token of a batch"
    assert {texts[call] for call in texts if "another's" in call} == {"the state belongs to another model"}
    assert texts["prefill, -1 tokens"] == "-1 tokens: there must be at least 1"
    assert "257, not in 1..256" in texts["257 threads"]


def test_admission(probe, llama, tiny):
    seen = probe.careless_admission(str(tiny), str(llama if tiny != llama else tiny.with_name("qwen2.gguf")))
    assert [call for call, _, text in seen if text.startswith(MARK)] == []
    texts = {call: text for call, _, text in seen}
    denied = ("admit", "ask", "reserve", "another's", "kv_type 9", "a batch", "-1 checkpoints")
    for call, result, _ in seen:
        if call.startswith(denied):
            assert result == 2, call
        elif call.startswith(("cost, ", "window of", "worst die", "interval", "a limit")):
            assert result == -1, call
    assert texts["admit -5"] == "0 prompt tokens and -5 new ones: not in 0..2147483647, one of them at least 1"
    assert texts["cost, kv_type 9"] == "kv_type is 9, not in 0..4"


def test_sampling(probe):
    seen = probe.careless_sampling()
    assert [call for call, _, text in seen if text.startswith(MARK)] == []
    assert {result for call, result, _ in seen[2:]} == {0xFFFFFFFF} and {result for _, result, _ in seen[:2]} == {-1}
    texts = {call: text for call, _, text in seen}
    assert texts["a NaN"] == "the logit of token 2 is not a number"
    assert texts["mirostat 7"] == "mirostat is 7, not in 0..2"
    assert texts["a bias of token 4"] == "logit_bias: token 4 is outside the vocabulary"


def test_loading(probe, tiny):
    texts = probe.careless_loading(str(tiny))
    assert texts[:3] == ["path is NULL", "path is NULL", "dies is NULL"]
    assert texts[3:5] == [f"dies: {n} given, at most 16 are possible" for n in (17, -1)]
    assert texts[5:8] == ["model is NULL", "kv_type is 9, not in 0..4", "kv_type is -1, not in 0..4"]
    assert all("not in 1.." in text for text in texts[8:])
