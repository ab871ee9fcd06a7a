"""Tokenizers of Hugging Face folders: tokenizer.json in its usual shapes, and tokenizer.model."""
import io
import json

import pytest
import sentencepiece
from sentencepiece import SentencePieceProcessor
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pantheon.text import hf
from pantheon.text.chat import ChatTemplate
from pantheon.text.hf import load_tokenizer
from pantheon.text.stream import DetokenizeStream

CORPUS = ["the quick brown fox jumps over the lazy dog", "a cat and a dog and the fox went there then",
          "this is the text that the model was trained on, again and again", "numbers 1 2 3 10 200 and words"] * 20
TEXTS = ["", " ", "the fox", " the fox", "the  fox\n\nand\tthe dog ", "naïve café 😀 日本", "</s> and <s> here",
         "x<s>y", "<|im_end|> in text", "tailing   "]
BYTE_BOS, BYTE_END = "<|begin|>", "<|im_end|>"


def added(i, content, special=True, **flags):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special, **flags}


def write(folder, data, **files):
    folder.mkdir(exist_ok=True)
    if data is not None:
        (folder / "tokenizer.json").write_text(data if isinstance(data, str) else json.dumps(data))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def byte_level(pair_merges=False):
    """tokenizer.json of Llama-3's shape: specials only among the added tokens, BOS by the post-processor."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a"), ("o", "g")]
    vocab = {c: i for i, c in enumerate(alphabet + ["".join(m) for m in merges])}
    n = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    data = json.loads(tokenizer.to_str())
    if not pair_merges:
        data["model"]["merges"] = [" ".join(m) for m in merges]
    data["added_tokens"] = [added(n, BYTE_BOS), added(n + 1, BYTE_END), added(n + 2, "<tool>", special=False)]
    data["post_processor"] = {
        "type": "TemplateProcessing", "pair": [], "special_tokens": {
            BYTE_BOS: {"id": BYTE_BOS, "ids": [n], "tokens": [BYTE_BOS]}},
        "single": [{"SpecialToken": {"id": BYTE_BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}
    return data


@pytest.fixture(scope="module")
def spm_model():
    """Bytes of a small SentencePiece BPE model with byte fallback, as Llama 2 has."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=360, model_type="bpe", byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    return out.getvalue()


def spm_json(spm_model, style):
    """The same as tokenizer.json. style: "prepend" (normalizer), "first" or "always" (Metaspace)."""
    sp = SentencePieceProcessor(model_proto=spm_model)
    pieces = [sp.id_to_piece(i) for i in range(len(sp))]
    ids = {piece: i for i, piece in enumerate(pieces)}
    normal = [i for i in range(len(sp)) if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i))]
    usable = {pieces[i] for i in normal}
    found = [(-sp.get_score(i), i, pieces[i][:k], pieces[i][k:]) for i in normal for k in range(1, len(pieces[i]))
             if pieces[i][:k] in usable and pieces[i][k:] in usable]
    tokenizer = Tokenizer(models.BPE(ids, [(left, right) for _, _, left, right in sorted(found)], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    if style == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=style, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    return data


def reference(data):
    """The tokenizers package on its own."""
    return Tokenizer.from_str(json.dumps(data))


# ---- byte level ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pairs", [False, True], ids=["strings", "pairs"])
def test_byte_level_is_the_package_s(tmp_path, pairs):
    data = byte_level(pairs)
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    expected = reference(data)
    for text in TEXTS:
        assert tokenizer.encode(text, parse_special=True) == expected.encode(text).ids
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not set(ids[1:]) & tokenizer._special_ids
    assert tokenizer.encode("the <tool>")[-1] == expected.token_to_id("<tool>")
    assert tokenizer.piece(expected.token_to_id("<tool>")) == b"<tool>"


def test_bos_comes_from_the_post_processor_or_the_settings(tmp_path):
    data = byte_level()
    n = data["added_tokens"][0]["id"]
    tokenizer = load_tokenizer(write(tmp_path / "a", data), 300)
    assert (tokenizer.bos_id, tokenizer.add_bos, tokenizer.encode("a")[0]) == (n, True, n)
    assert tokenizer.encode("a", add_bos=False)[0] != n
    off = write(tmp_path / "b", data, tokenizer_config={"add_bos_token": False, "bos_token": BYTE_BOS})
    assert load_tokenizer(off, 300).encode("a")[0] != n
    data["post_processor"] = None
    assert not load_tokenizer(write(tmp_path / "c", data), 300).add_bos
    on = write(tmp_path / "d", data, tokenizer_config={"add_bos_token": True, "bos_token": {"content": BYTE_BOS},
                                                       "add_eos_token": True, "eos_token": BYTE_END})
    assert [load_tokenizer(on, 300).encode("")[i] for i in (0, -1)] == [n, n + 1]


@pytest.mark.parametrize(("files", "eos", "ends"), [
    ({}, None, {1}), ({"config": {"eos_token_id": 5}}, 5, {1, 5}), ({"config": {"eos_token_id": [5, 6]}}, 5, {1, 5, 6}),
    ({"config": {"eos_token_id": 5}, "generation_config": {"eos_token_id": [7]}}, 7, {1, 7}),
    ({"config": {"eos_token_id": 5}, "tokenizer_config": {"eos_token": BYTE_BOS}}, 0, {0, 1, 5}),
    ({"config": {"eos_token_id": [10**9, None, True, "x", 5]}}, None, {1, 5}),
])
def test_ends_of_a_generation(tmp_path, files, eos, ends):
    """Numbers below 2 stand for the added tokens: <|begin|>, and <|im_end|>, which always ends one."""
    data = byte_level()
    n = data["added_tokens"][0]["id"]
    real = lambda i: n + i if i is not None and i < 2 else i  # noqa: E731
    tokenizer = load_tokenizer(write(tmp_path / "m", data, **files), 300)
    assert tokenizer.eog_ids == {real(i) for i in ends}
    assert tokenizer.eos_id == real(eos)


def test_chat_with_hostile_content(tmp_path):
    template = "{% for m in messages %}" + BYTE_BOS + "{{ m.content }}" + BYTE_END + "{% endfor %}"
    data = byte_level()
    n = data["added_tokens"][0]["id"]
    folder = write(tmp_path / "m", data, tokenizer_config={"chat_template": [
        {"name": "tool_use", "template": "x"}, {"name": "default", "template": template}]})
    for with_file in (False, True):
        if with_file:
            (folder / "chat_template.jinja").write_text(template + "!")
        tokenizer = load_tokenizer(folder, 300)
        messages = [{"role": "user", "content": f"a{BYTE_END}b{BYTE_BOS}"}]
        segments = ChatTemplate.for_tokenizer(tokenizer).render(messages)
        ids = tokenizer.encode_chat(segments)
        assert [i for i in ids if i >= n] == [n, n + 1]
        assert (tokenizer.decode(ids[-1:]) == "!") == with_file


def test_templates_by_name_and_special_tokens_of_a_folder(tmp_path):
    folder = write(tmp_path / "m", byte_level(), tokenizer_config={
        "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
        "bos_token": {"content": BYTE_BOS}, "pad_token": "<pad>", "unk_token": "<unk>", "image_token": "<img>",
        "eos_token": None, "add_bos_token": True})
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text(
        "{{ pad_token }}|{{ unk_token }}|{{ bos_token }}|{{ image_token }}|{{ eos_token is defined }}")
    template = ChatTemplate.for_tokenizer(load_tokenizer(folder, 300))

    def text(**arguments):
        return "".join(s.text for s in template.render([], **arguments))

    assert (text(), text(tools=[]), text(tools=[], template="default")) == ("D", "T", "D")
    assert text(template="rag") == f"<pad>|<unk>|{BYTE_BOS}|<img>|False"


def test_white_space_that_added_tokens_swallow(tmp_path):
    data = byte_level()
    data["added_tokens"][1] |= {"lstrip": True, "rstrip": True}
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    text = f"the {BYTE_END}  a{BYTE_END} \n{BYTE_END}"
    assert tokenizer.encode(text, parse_special=True) == reference(data).encode(text).ids


def test_a_control_token_among_ordinary_entries_is_spelt_out(tmp_path):
    """ignore_merges makes a token of any whole piece that is an entry of the vocabulary."""
    data = byte_level()
    n = data["added_tokens"][0]["id"]
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"] |= {"end": n + 3}
    data["added_tokens"].append(added(n + 3, "end"))
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    assert n + 3 not in tokenizer.encode("end end")
    assert tokenizer.decode(tokenizer.encode("end end")) == "end end"
    assert n + 3 in tokenizer.encode("end", parse_special=True)


def test_streams_are_whole_characters(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path / "m", byte_level()), 300)
    stream = DetokenizeStream(tokenizer)
    text = "é日本😀"
    assert "".join(stream.step(i) for i in tokenizer.encode(text, add_bos=False)) + stream.flush() == text


# ---- SentencePiece ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("style", ["prepend", "first", "always"])
def test_sentencepiece_json_is_the_package_s(tmp_path, spm_model, style):
    data = spm_json(spm_model, style)
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 400)
    expected = reference(data)
    for text in [*TEXTS, "the<s>fox</s> dog", "<s> the", "日本<s>日本"]:
        assert tokenizer.encode(text, parse_special=True) == expected.encode(text, add_special_tokens=False).ids, text
        ids = tokenizer.encode(text)
        assert not set(ids) & {0, 1, 2}
        if style == "prepend" or not text.startswith(" "):      # Metaspace takes a leading space for its own
            assert tokenizer.decode(ids) == text


def test_tokenizer_model_is_sentencepiece_s(tmp_path, spm_model):
    folder = write(tmp_path / "m", None, tokenizer_config={"add_bos_token": True, "added_tokens_decoder": {
        "360": {"content": "<|im_end|>", "special": True}, "361": {"content": "<tool>", "special": False}}})
    (folder / "tokenizer.model").write_bytes(spm_model)
    sp = SentencePieceProcessor(model_proto=spm_model)
    tokenizer = load_tokenizer(folder, 400)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.n_tokens) == (1, 2, 362)
    assert tokenizer.eog_ids == {2, 360}
    for text in TEXTS[1:6]:
        ids = tokenizer.encode(text)
        assert ids == [1, *sp.encode(text)]
        assert tokenizer.decode(ids) == text
    assert 360 not in tokenizer.encode("x<|im_end|>") and 360 in tokenizer.encode("x<|im_end|>", parse_special=True)
    assert 361 in tokenizer.encode("a<tool>b")


def test_tokenizer_json_goes_first(tmp_path, spm_model):
    folder = write(tmp_path / "m", byte_level())
    (folder / "tokenizer.model").write_bytes(spm_model)
    assert isinstance(load_tokenizer(folder, 300), hf.HFTokenizer)


# ---- hostile files ---------------------------------------------------------------------------------------------------

def changed(**parts):
    return {**byte_level(), **parts}


def deep(n):
    return '{"model":' + "[" * n + "]" * n + "}"


@pytest.mark.parametrize("data", [
    "", "[]", "{}", "x", deep(100), '{"model":{}}', changed(model=None), changed(model={"type": "BPE"}),
    changed(model={**byte_level()["model"], "merges": ["no such"]}),
    changed(model={**byte_level()["model"], "vocab": {}}),
    changed(decoder=None), changed(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
    changed(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}),
    changed(added_tokens=[added(2**40, "x")]), changed(added_tokens=[added(10**7, "x")]),
    changed(added_tokens=[{"id": None, "content": "x"}]), changed(added_tokens=[added(-1, "x")]),
    changed(added_tokens=[added(399, "x")]),
], ids=lambda d: (d if isinstance(d, str) else json.dumps(d))[-40:])
def test_files_that_are_no_tokenizer(tmp_path, data):
    with pytest.raises(ValueError, match="tokenizer.json"):
        load_tokenizer(write(tmp_path / "m", data), 300)


def test_other_files_that_are_none(tmp_path, spm_model):
    with pytest.raises(ValueError, match="no tokenizer.json and no tokenizer.model"):
        load_tokenizer(tmp_path, 300)
    with pytest.raises(ValueError, match="tokenizer_config.json"):
        load_tokenizer(write(tmp_path / "a", byte_level(), tokenizer_config=[1]), 300)
    folder = write(tmp_path / "b", None)
    unigram = spm_model.replace(b"\x18\x02", b"\x18\x01")
    for data in (b"", b"x", b"\xff" * 100, spm_model[:-5], unigram, b"\x0a\xff\xff\xff\xff\x0f"):
        (folder / "tokenizer.model").write_bytes(data)
        with pytest.raises(ValueError, match="tokenizer.model"):
            load_tokenizer(folder, 400)
    for n in range(0, len(spm_model), 211):
        (folder / "tokenizer.model").write_bytes(spm_model[:n])
        with pytest.raises(ValueError, match="tokenizer.model"):
            load_tokenizer(folder, 400)
