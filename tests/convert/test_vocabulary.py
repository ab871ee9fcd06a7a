"""The tokenizer of a converted file: the same ids as the folder's, the same special ids, flags and templates."""
import io
import json
import logging
from types import SimpleNamespace

import pytest
import sentencepiece
from sentencepiece import SentencePieceProcessor
from support.safetensors_bytes import CONFIG, hf_folder, tiny_tensors
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import pantheon
from pantheon._core.registry import HF_CLASSES
from pantheon.convert import convert, model_name
from pantheon.convert.pretokenizer import pretokenizer_name
from pantheon.convert.vocabulary import read_vocabulary
from pantheon.text.hf import load_tokenizer
from pantheon.text.pretokenizers import TABLE

FACTS = {facts.arch: facts for facts in HF_CLASSES.values()}
N_VOCAB = 400
CORPUS = ["the quick brown fox jumps over the lazy dog", "a cat and a dog and the fox went there then",
          "this is the text that the model was trained on, again and again", "numbers 1 2 3 10 200 and words"] * 20
TEXTS = ["", " ", "the fox", " the fox", "the  fox\n\nand\tthe dog ", "naïve café 😀 日本", "it's IN the 12345",
         "tailing   ", "</s> and <s> here", "x<tool>y", "a <|tool|> b"]


def split(*rules):
    return [{"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False} for rule in rules]


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = BYTES | {"use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def named(pre_tokenizer, ignore_merges=False, nfc=False):
    return pretokenizer_name({"pre_tokenizer": pre_tokenizer, "model": {"ignore_merges": ignore_merges},
                              "normalizer": {"type": "NFC"} if nfc else None}, "t.json")


# ---- names of pre-tokenizers, by what published files hold -----------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


@pytest.mark.parametrize("pre_tokenizer, ignore_merges, name", [
    (GPT2, False, "gpt-2"),
    (sequence(DIGITS, GPT2), False, "smollm"),
    (sequence(*split(LLAMA3), BYTES), True, "llama-bpe"),
    (sequence(*split(LLAMA3), BYTES), False, "dbrx"),
    (sequence(*split(QWEN2), BYTES), False, "deepseek-r1-qwen"),
    (sequence(*split(QWEN35), BYTES), False, "qwen35"),
    (sequence({"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Removed", "invert": True}, BYTES), False,
     "deepseek-r1-qwen"),
])
def test_names(pre_tokenizer, ignore_merges, name):
    assert named(pre_tokenizer, ignore_merges) == name


@pytest.mark.parametrize("pre_tokenizer, name", [
    (sequence(*split(QWEN2), BYTES), "qwen2"), (sequence(*split(QWEN35), BYTES), "qwen35"),
    (sequence(DIGITS, GPT2), "command-r"), (sequence(*split(LLAMA3), BYTES), "dbrx"),
])
def test_names_of_rules_with_a_normaliser(pre_tokenizer, name):
    """Readers compose text for some names and not for others with the same rules."""
    assert named(pre_tokenizer, nfc=True) == name


def test_every_known_rule_is_found_again():
    for name, rules in TABLE.items():
        if name != "default":
            found = TABLE[named(sequence(*split(*rules.regexes), BYTES), rules.ignore_merges, rules.nfc)]
            expected = (rules.regexes, rules.ignore_merges, rules.nfc)
            assert (found.regexes, found.ignore_merges, found.nfc) == expected, name


@pytest.mark.parametrize("pre_tokenizer, says", [
    (sequence(*split(r"\w+"), BYTES), ["splits by '\\\\w+'", "llama-bpe", "qwen2", "smollm", "gpt-2"]),
    (None, ["splits by nothing"]),
    (BYTES | {"add_prefix_space": True}, ["add_prefix_space"]),
    ({"type": "Whitespace"}, ["'Whitespace' has no GGUF form"]),
    ({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"}, ["Split"]),
])
def test_unknown_rules(pre_tokenizer, says):
    with pytest.raises(ValueError, match=r"t\.json: key pre_tokenizer") as raised:
        named(pre_tokenizer)
    for text in says:
        assert text in str(raised.value)


# ---- byte-level vocabularies -----------------------------------------------------------------------------------------

def byte_level(pre_tokenizer=GPT2, added=()):
    """tokenizer.json with 256 bytes, a few merges, and added tokens behind them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a"), ("o", "g"), ("1", "2")]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet + ["".join(m) for m in merges])}, merges))
    tokenizer.decoder = decoders.ByteLevel()
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = pre_tokenizer
    data["added_tokens"] = [
        {"id": 262 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": special} for i, (text, special) in enumerate(added)]
    return data


ADDED = (("<|begin|>", True), ("<|im_end|>", True), ("<tool>", False), ("<|tool|>", False), ("<end>", True),
         ("<fin>", True))
BEGIN, IM_END, END, FIN = 262, 263, 266, 267


def folder_of(tmp_path, data=None, spm=None, config=None, **files):
    tmp_path.mkdir(exist_ok=True)
    folder = hf_folder(tmp_path / "m", CONFIG | {"vocab_size": N_VOCAB} | (config or {}),
                       tiny_tensors() | {"model.embed_tokens.weight": tiny_tensors()["model.embed_tokens.weight"][
                           [i % 6 for i in range(N_VOCAB)]]})
    if data is not None:
        (folder / "tokenizer.json").write_text(json.dumps(data))
    if spm is not None:
        (folder / "tokenizer.model").write_bytes(spm)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def both(folder):
    """Tokenizers of the folder and of its file, and the file's keys."""
    out = folder.parent / "x.gguf"
    convert(folder, out, "f32", force=True)
    with pantheon.load(out) as model:
        return load_tokenizer(str(folder), N_VOCAB), model.tokenizer, dict(model.metadata)


def agree(ours, theirs, texts=TEXTS):
    for text in texts:
        for special in (False, True):
            assert ours.encode(text, parse_special=special) == theirs.encode(text, parse_special=special), text
        ids = theirs.encode(text)
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("pre_tokenizer", [GPT2, sequence(DIGITS, GPT2), sequence(*split(LLAMA3), BYTES),
                                           sequence(*split(QWEN35), BYTES)])
def test_byte_level(tmp_path, pre_tokenizer):
    folder = folder_of(tmp_path, byte_level(pre_tokenizer, ADDED), tokenizer_config={
        "bos_token": "<|begin|>", "eos_token": {"content": "<|im_end|>"}, "add_bos_token": True})
    theirs, ours, keys = both(folder)
    agree(ours, theirs, [t for t in TEXTS if "<|tool|>" not in t])
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert (ours.bos_id, ours.eos_id, ours.add_bos, ours.add_eos) == (BEGIN, IM_END, True, False)
    types = keys["tokenizer.ggml.token_type"]
    assert [types[i] for i in (0, BEGIN, 264, 265, END)] == [1, 3, 4, 3, 3]      # <|tool|> looks like a control token
    assert len(types) == len(keys["tokenizer.ggml.tokens"]) == N_VOCAB
    assert keys["tokenizer.ggml.tokens"][300] == b"[PAD300]" and types[300] == 5
    assert 265 not in ours.encode("a <|tool|> b") and 265 in ours.encode("a <|tool|> b", parse_special=True)


def test_ends_that_only_the_configuration_names(tmp_path):
    folder = folder_of(tmp_path, byte_level(added=ADDED), tokenizer_config={"eos_token": "<|im_end|>"},
                       generation_config={"eos_token_id": [IM_END, END, FIN]})
    theirs, ours, keys = both(folder)
    assert ours.eog_ids == theirs.eog_ids == {IM_END, END, FIN}
    assert (keys["tokenizer.ggml.eot_token_id"], keys["tokenizer.ggml.eom_token_id"]) == (END, FIN)


def test_ends_that_readers_find_need_no_key(tmp_path):
    folder = folder_of(tmp_path, byte_level(added=ADDED), tokenizer_config={"eos_token": "<end>"},
                       generation_config={"eos_token_id": [END, IM_END]})
    theirs, ours, keys = both(folder)
    assert ours.eog_ids == theirs.eog_ids == {IM_END, END}
    assert "tokenizer.ggml.eot_token_id" not in keys


def test_too_many_ends(tmp_path, caplog):
    added = (*ADDED, ("<stop>", True))
    folder = folder_of(tmp_path, byte_level(added=added), generation_config={"eos_token_id": [BEGIN, END, FIN, 268]})
    with caplog.at_level(logging.WARNING, "pantheon"):
        both(folder)
    assert "[268] are left out" in caplog.text


def test_every_special_id_of_the_folder_has_its_key(tmp_path):
    config = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>", "unk_token": "<tool>", "sep_token": "<end>",
              "pad_token": "<|tool|>", "mask_token": "<fin>"}
    theirs, ours, keys = both(folder_of(tmp_path, byte_level(added=ADDED), tokenizer_config=config))
    names = {"bos": BEGIN, "eos": IM_END, "unknown": 264, "seperator": END, "padding": 265, "mask": FIN}
    assert {name: keys.get(f"tokenizer.ggml.{name}_token_id") for name in names} == names
    assert ours.vocab.ids == theirs.vocab.ids
    assert ours.special_tokens == theirs.special_tokens == config


def test_bos_of_the_configuration_is_not_put_in_front(tmp_path):
    """Qwen's: the tokenizer has none."""
    folder = folder_of(tmp_path, byte_level(added=ADDED), tokenizer_config={"bos_token": None},
                       config={"bos_token_id": END})
    _, ours, keys = both(folder)
    assert keys["tokenizer.ggml.bos_token_id"] == END and not ours.add_bos
    assert ours.encode("the") == ours.encode("the", add_bos=False)


def test_templates(tmp_path):
    folder = folder_of(tmp_path, byte_level(added=ADDED), tokenizer_config={
        "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})
    _, ours, keys = both(folder)
    assert (ours.chat_template, keys["tokenizer.chat_template.tool_use"]) == ("D", "T")
    assert keys["tokenizer.chat_templates"] == ["tool_use"]
    (folder / "chat_template.jinja").write_text("J")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag-1.jinja").write_text("R")
    _, ours, keys = both(folder)
    assert (ours.chat_template, keys["tokenizer.chat_template.rag_1"]) == ("J", "R")
    assert keys["tokenizer.chat_templates"] == ["tool_use", "rag_1"]


def test_more_tokens_than_logits(tmp_path):
    """Those that have none are left out, of the entries and of the merges."""
    folder = folder_of(tmp_path, byte_level(added=[(f"<x{i}>", True) for i in range(200)]))
    _, ours, keys = both(folder)
    assert len(keys["tokenizer.ggml.tokens"]) == ours.n_tokens == 400


def test_without_merges(tmp_path):
    data = byte_level()
    data["model"]["merges"] = []
    with pytest.raises(ValueError, match=r"tokenizer\.json: key model\.merges"):
        convert(folder_of(tmp_path, data), tmp_path / "x.gguf", "f32")


def test_no_tokenizer_on_request(tmp_path):
    convert(folder_of(tmp_path, byte_level()), tmp_path / "x.gguf", "f32", tokenizer=False)
    with pantheon.load(tmp_path / "x.gguf") as model:
        assert len(model.forward(3, model.new_state())) == N_VOCAB
        assert model.metadata["tokenizer.ggml.model"] == "none"


# ---- SentencePiece vocabularies --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def spm():
    """Bytes of a small SentencePiece BPE model with byte fallback, as Llama 2 has."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=360, model_type="bpe", byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    return out.getvalue()


def spm_json(model):
    """The same as tokenizer.json of Llama 2's shape."""
    sp = SentencePieceProcessor(model_proto=model)
    pieces = [sp.id_to_piece(i) for i in range(len(sp))]
    normal = [i for i in range(len(sp)) if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i))]
    usable = {pieces[i] for i in normal}
    found = [(-sp.get_score(i), i, pieces[i][:k], pieces[i][k:]) for i in normal for k in range(1, len(pieces[i]))
             if pieces[i][:k] in usable and pieces[i][k:] in usable]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)},
                                     [(left, right) for _, _, left, right in sorted(found)], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": special} for i, text, special in ((0, "<unk>", True), (1, "<s>", True), (2, "</s>", True),
                                                       (360, "<tool>", False), (361, "a▁b", False))]
    return data


SPM_CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
              "add_eos_token": False}
PLAIN = [t for t in TEXTS if "<" not in t]


@pytest.mark.parametrize("files", ["model", "json", "both"])
def test_sentencepiece(tmp_path, spm, files):
    folder = folder_of(tmp_path, spm_json(spm) if files != "model" else None, spm if files != "json" else None,
                       tokenizer_config=SPM_CONFIG)
    theirs, ours, keys = both(folder)
    sp = SentencePieceProcessor(model_proto=spm)
    for text in PLAIN:
        assert ours.encode(text) == [1, *sp.encode(text)], text
    agree(ours, theirs, PLAIN)
    assert (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]) == ("llama", "default")
    assert keys["tokenizer.ggml.add_space_prefix"] is True
    types, scores = keys["tokenizer.ggml.token_type"], keys["tokenizer.ggml.scores"]
    assert types[:4] == [2, 3, 3, 6] and len(types) == len(scores) == N_VOCAB
    if files != "json":
        normal = [i for i in range(360) if types[i] == 1]
        assert [scores[i] for i in normal] == [pytest.approx(sp.get_score(i)) for i in normal]
    if files != "model":
        assert types[360] == 4 and scores[360] == -1000
        assert 360 in ours.encode("x<tool>y") and keys["tokenizer.ggml.tokens"][361] == b"a b"


def warnings_of(folder, caplog):
    with caplog.at_level(logging.WARNING, "pantheon"):
        convert(folder, folder.parent / "x.gguf", "f32", force=True)
    return [message for record in caplog.records if "no place in a GGUF" in (message := record.getMessage())]


@pytest.mark.parametrize("options, says", [
    ({"normalization_rule_name": "identity", "remove_extra_whitespaces": False}, None),
    ({"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": False}, "(nmt_nfkc)"),
    ({}, "(nmt_nfkc, remove_extra_whitespaces)"),
    ({"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "treat_whitespace_as_suffix": True},
     "(treat_whitespace_as_suffix)"),
])
def test_a_normaliser_that_is_left_out_is_named(tmp_path, caplog, options, says):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=350,
                                             model_type="bpe", hard_vocab_limit=False, minloglevel=2, **options)
    found = warnings_of(folder_of(tmp_path, spm=out.getvalue(), tokenizer_config=SPM_CONFIG), caplog)
    assert len(found) == (says is not None)
    assert says is None or ("tokenizer.model: its normaliser" in found[0] and says in found[0])


def test_a_normaliser_of_tokenizer_json_that_is_left_out_is_named(tmp_path, caplog, spm):
    known = byte_level(sequence(*split(QWEN2), BYTES), ADDED) | {"normalizer": {"type": "NFC"}}
    assert warnings_of(folder_of(tmp_path / "nfc", known), caplog) == []
    assert warnings_of(folder_of(tmp_path / "llama", spm_json(spm)), caplog) == []
    lower = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    found = warnings_of(folder_of(tmp_path / "lower", byte_level(added=ADDED) | {"normalizer": lower}), caplog)
    assert len(found) == 1 and "tokenizer.json: its normaliser (Lowercase)" in found[0]


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_flags_of_added_tokens_that_are_left_out_are_named(tmp_path, caplog, flag):
    data = byte_level(added=ADDED)
    data["added_tokens"][2][flag] = True
    found = warnings_of(folder_of(tmp_path, data), caplog)
    assert len(found) == 1 and f"tokenizer.json: {flag} of added tokens" in found[0]


def test_that_tokens_of_phi3_take_the_space_after_them_is_known(tmp_path, caplog, spm):
    data = spm_json(spm)
    data["added_tokens"][3]["rstrip"] = True
    folder = folder_of(tmp_path, data)
    for arch, n in (("phi3", 0), ("llama", 1)):
        read_vocabulary(folder, SimpleNamespace(facts=FACTS[arch], n_vocab=N_VOCAB))
        assert len(caplog.records) == n


def test_normalized_tokens_count_where_there_is_a_normaliser(tmp_path, caplog, spm):
    plain = byte_level(added=ADDED)
    plain["added_tokens"][2]["normalized"] = True
    assert warnings_of(folder_of(tmp_path / "plain", plain), caplog) == []
    data = spm_json(spm)
    data["added_tokens"][3]["normalized"] = True
    found = warnings_of(folder_of(tmp_path / "llama", data), caplog)
    assert len(found) == 1 and "tokenizer.json: normalized of added tokens" in found[0]


def test_tokens_that_the_older_file_lacks(tmp_path, spm, caplog):
    data = spm_json(spm)
    data["model"]["vocab"] |= {"foxdog": 362}
    data["model"]["merges"].append(["fox", "dog"])
    with caplog.at_level(logging.WARNING, "pantheon"):
        both(folder_of(tmp_path, data, spm, tokenizer_config=SPM_CONFIG))
    assert "tokenizer.model lacks" in caplog.text


@pytest.mark.parametrize("arch, model, folder, name", [
    ("phi3", "llama", "my-tune", "Phi-3 my-tune"), ("phi3", "llama", "Phi-3.5-mini", "Phi-3.5-mini"),
    ("phi3", "gpt2", "phi-4", "phi-4"), ("llama", "llama", "my-tune", "my-tune"),
])
def test_names_by_which_readers_know_phi3(tmp_path, arch, model, folder, name):
    assert model_name(tmp_path / folder, SimpleNamespace(facts=FACTS[arch]), SimpleNamespace(model=model)) == name
