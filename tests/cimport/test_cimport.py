"""The C API from another Cython extension, built in a temporary folder against the installed package."""
import pytest
from support import rwkv_models
from support.fixture_paths import TINY


def test_fields_of_the_structs(probe, llama):
    facts = probe.facts(str(llama))
    assert facts.pop("n_embd") == 64
    assert facts.pop("path") == str(llama)
    assert "token 4294967295" in facts.pop("refused")
    assert facts == {"pos": 0, "config": True, "arena": True, "tokenizer": True, "vision": True, "dies": 0,
                     "override": True, "forward": True, "no such arch": True, "begin": 1, "poll": -1}


def test_which_states_have_an_arena(probe, tmp_path):
    """Qwen3.5-MoE and RWKV-X keep their scratch elsewhere; RWKV-X has no vocabulary in its file."""
    path = tmp_path / "rwkv7.safetensors"
    rwkv_models.write(rwkv_models.RECIPES["rwkv7"], path)
    assert [(facts["arena"], facts["tokenizer"]) for facts in (
        probe.facts(str(TINY / "mixtral.gguf")), probe.facts(str(TINY / "phi2.gguf")),
        probe.facts(str(TINY / "qwen35moe.gguf")), probe.facts(str(path)))] == [
            (True, True), (True, True), (False, True), (False, False)]


def test_dies_are_recorded(probe, llama):
    assert probe.placed(str(llama), [3, 0, 1]) == [3, 0, 1]


def test_admission(probe, llama, monkeypatch):
    monkeypatch.delenv("QWEN35_KV_Q4", raising=False)
    facts = probe.admission(str(llama), 100)
    need = facts.pop("need")
    assert need > 0 and facts.pop("held") == need
    assert facts == {"unchecked": 0, "status": 0, "fit": 100, "after": 0, "window": 128, "resident": False,
                     "worst die": -1, "kv_q4": True}
    capped = probe.admission(str(llama), 1000)
    assert (capped["unchecked"], capped["status"], capped["fit"]) == (0, 1, 128)
    nonsense = probe.admission(str(llama), -5)
    assert (nonsense["status"], nonsense["fit"], nonsense["held"]) == (2, 0, 0)
    for value, expected in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("QWEN35_KV_Q4", value)
        assert probe.admission(str(llama), 1)["kv_q4"] is expected


@pytest.mark.parametrize(("numbers", "text"), [
    ((-1, 5, 0, 0), "-1 prompt tokens and 5 new ones: not in 0..2147483647"), ((0, 0, 0, 0), "one of them at least 1"),
    ((5, -1, 0, 0), "5 prompt tokens and -1 new ones"), ((2**31 - 1, 1, 0, 0), "2147483647 prompt tokens"),
    ((5, 5, 129, 0), "n_ctx is 129, not in 0..128"), ((5, 5, -1, 0), "n_ctx is -1, not in 0..128"),
    ((5, 5, 0, -1), "a window of -1 tokens"),
])
def test_numbers_that_no_request_can_have(probe, llama, numbers, text):
    assert text in probe.refused(str(llama), *numbers)
    assert probe.refused(str(llama), 5, 5, 128, 7) == ""


def test_errors_are_exceptions(probe, llama, tmp_path):
    with pytest.raises(FileNotFoundError):
        probe.load_with(str(tmp_path / "none.gguf"))
    with pytest.raises(ValueError, match="quantize"):
        probe.load_with(str(llama), quantize=True)
    with pytest.raises(ValueError, match="config_path"):
        probe.load_with(str(llama), config_path="config.json")
    probe.load_with(str(llama))


