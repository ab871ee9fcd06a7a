"""Tokenizers of Hugging Face folders: tokenizer.json in its usual shapes, and tokenizer.model."""
import io
import itertools
import json

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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


# ---- added tokens ----------------------------------------------------------------------------------------------------

def small(flags, byte_fallback=True, **parts):
    """A SentencePiece-like tokenizer.json of single characters, with added tokens {text: flags}."""
    tokens = [f"<0x{b:02X}>" for b in range(256)] + list("▁abcdstx<>")
    n = len(tokens)
    added_tokens = [added(n + i, text, **{"special": False, **f}) for i, (text, f) in enumerate(flags.items())]
    return {
        "version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None, "post_processor": None,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [], "byte_fallback": True},
        "added_tokens": added_tokens, **parts}


PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}


@pytest.mark.parametrize(("flags", "text", "tokens"), [
    ({"ab": {}, "bcd": {}}, "abcd", ["ab", "c", "d"]),
    ({"<u>": {"rstrip": True}}, "<u>\u3000a", ["<u>", "a"]),
    ({"<u>": {"rstrip": True}}, "<u>\x1fa", ["<u>", "<0x1F>", "a"]),
    ({"<u>": {"lstrip": True}}, "a \u2028<u>", ["a", "<u>"]),
    ({"cat": {"single_word": True}}, "cats cat", ["c", "a", "t", "s", "▁", "cat"]),
    ({"<x>": {"normalized": True}}, "a<x> <x>", ["a", "<x>", "▁", "<x>"]),
    ({"a b": {"normalized": True}, "b<": {}}, "a b<", ["a", "▁", "b<"]),       # those of the raw text go first
    ({"▁▁": {"normalized": True}}, "a  b", ["a", "▁▁", "b"]),
])
def test_added_tokens_are_the_package_s(tmp_path, flags, text, tokens):
    data = small(flags)
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    assert [token.strip() for token in reference(data).encode(text).tokens] == tokens
    assert tokenizer.encode(text) == reference(data).encode(text).ids


def test_a_normalised_token_matches_in_the_normalised_text(tmp_path):
    data = small({"<x>": {"normalized": True}}, normalizer=PREPEND)
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    for text, tokens in (("a<x>", ["▁", "a", "<", "x", ">"]), ("a <x>", ["▁", "a", "▁<x>"]), ("<x>", ["▁<x>"])):
        assert reference(data).encode(text).tokens == tokens
        assert tokenizer.encode(text) == reference(data).encode(text).ids


def test_of_tokens_with_one_normalised_text_the_first_is_meant(tmp_path):
    """The package takes now one, now another."""
    data = small({" ": {"normalized": True}, "▁▁": {"normalized": True}, "  ": {"normalized": True}})
    n = data["added_tokens"][0]["id"]
    folder = write(tmp_path / "m", data)
    assert {tuple(load_tokenizer(folder, 300).encode("a   ")[1:]) for _ in range(8)} == {(n + 1, n)}


NAMES = ["<s>", "<e>", "cat", "ab", "a<", " a", "st", "▁▁"]
FLAGS = st.fixed_dictionaries({name: st.booleans() for name in
                               ("special", "normalized", "lstrip", "rstrip", "single_word")})


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), FLAGS, min_size=1), st.booleans(),
       st.lists(st.sampled_from([*NAMES, "a", " ", "\u3000", "b", "s", "<", "日"]), max_size=12).map("".join))
def test_random_added_tokens_are_the_package_s(tmp_path, flags, prepend, text):
    data = small(flags, **({"normalizer": PREPEND} if prepend else {}))
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    expected = reference(data)
    assert tokenizer.encode(text, parse_special=True) == expected.encode(text).ids
    expected.encode_special_tokens = True
    assert tokenizer.encode(text) == expected.encode(text).ids


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), FLAGS, min_size=1),
       st.lists(st.tuples(st.sampled_from([*NAMES, "a", "<s", ">", " "]), st.booleans()), max_size=8))
def test_no_text_from_outside_becomes_a_control_token(tmp_path, flags, segments):
    """However it is normalised: what is not trusted gives no control token, alone or with what stands beside it."""
    data = small(flags)
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    outside = [(text, False) for text, trusted in segments if not trusted]
    assert not any(map(tokenizer.is_special, tokenizer.encode_chat(outside)))
    mixed = sum(map(tokenizer.is_special, tokenizer.encode_chat(segments)))
    runs = [tokenizer.encode_chat([s]) for s in segments if s[1]]
    if not any(a[1] and b[1] for a, b in itertools.pairwise(segments)):
        flagged = any(f["single_word"] for f in flags.values())
        assert mixed <= sum(map(tokenizer.is_special, itertools.chain(*runs))) or flagged
        assert flagged or mixed == sum(map(tokenizer.is_special, itertools.chain(*runs)))
    everywhere = [(text, True) for text, _ in segments]
    assert tokenizer.encode_chat(everywhere) == tokenizer.encode("".join(t for t, _ in segments), parse_special=True)


def test_what_no_token_spells_is_the_unknown_token(tmp_path):
    """Also where it is a control token, by its type; but not where it ends a text as well."""
    for name, unknown in (("a", "<unk>"), ("b", "</s>")):
        data = small({unknown: {"special": True, "normalized": True}})
        data["model"] |= {"unk_token": unknown, "byte_fallback": False}
        data["model"]["vocab"][unknown] = n = data["added_tokens"][0]["id"]
        tokenizer = load_tokenizer(write(tmp_path / name, data), 300)
        text = f"a日{unknown}"
        expected = reference(data)
        assert tokenizer.encode(text, parse_special=True) == expected.encode(text).ids
        expected.encode_special_tokens = True
        ids = [i for i in expected.encode(text).ids if i != n or name == "a"]
        assert tokenizer.encode(text) == ids and (n in ids) == (name == "a")
        assert tokenizer.encode_chat([("a", True), (f"日{unknown}", False)]) == ids


def test_decoding_an_added_token_with_marks_for_blanks(tmp_path):
    data = small({"▁▁": {}, "<▁s>": {"special": True}})
    tokenizer = load_tokenizer(write(tmp_path / "m", data), 300)
    n = len(data["model"]["vocab"])
    assert tokenizer.decode([n]) == reference(data).decode([n]) == "  "
    assert tokenizer.decode([n + 1], skip_special=False) == reference(data).decode([n + 1], False) == "< s>"


@pytest.mark.parametrize("n_vocab", [262, 261, 258])
def test_a_vocabulary_wider_than_the_logits(tmp_path, n_vocab):
    """byte_level() has entries up to 260: the last merges, <|begin|> (261), <|im_end|> and <tool>."""
    data = byte_level()
    n = data["added_tokens"][0]["id"]
    assert n == 261
    data["added_tokens"].append(added(n + 3, "[PAD]"))
    folder = write(tmp_path / "m", data, tokenizer_config={"pad_token": "[PAD]"})
    tokenizer = load_tokenizer(folder, n_vocab)
    assert tokenizer.n_tokens == tokenizer.n_vocab == n_vocab
    for parse in (False, True):
        ids = tokenizer.encode("the dog [PAD]<tool>", add_bos=False, parse_special=parse)
        assert max(ids) < n_vocab and tokenizer.decode(ids) == "the dog [PAD]<tool>"
    assert tokenizer.special_tokens["pad_token"] == "[PAD]"
    assert tokenizer.encode("the") == load_tokenizer(folder, 300).encode("the", add_bos=tokenizer.add_bos)


# ---- the small files of a folder -------------------------------------------------------------------------------------

def test_all_special_tokens_are_known_by_name(tmp_path):
    names = {"bos_token": {"content": BYTE_BOS}, "pad_token": "<pad>", "unk_token": None, "sep_token": "<sep>",
             "cls_token": "<cls>", "mask_token": "<mask>", "image_token": "<img>", "model_max_length": 5,
             "additional_special_tokens": ["<one>", {"content": "<two>"}]}
    tokenizer = load_tokenizer(write(tmp_path / "m", byte_level(), tokenizer_config=names), 300)
    assert tokenizer.special_tokens == {
        "bos_token": BYTE_BOS, "pad_token": "<pad>", "sep_token": "<sep>", "cls_token": "<cls>", "mask_token": "<mask>",
        "image_token": "<img>", "additional_special_tokens": ["<one>", "<two>"]}
    assert "bos_token" not in load_tokenizer(write(tmp_path / "b", changed(post_processor=None)), 300).special_tokens


@pytest.mark.parametrize("kind", ["json", "model"])
def test_older_folders_name_their_tokens_in_other_files(tmp_path, kind, spm_model):
    """special_tokens_map.json wins over tokenizer_config.json, added_tokens.json adds; but not beside
    added_tokens_decoder, which says it all."""
    older = {"special_tokens_map": {"eos_token": {"content": "<stop>"}, "pad_token": "<pad>",
                                    "additional_special_tokens": ["<extra>"]},
             "added_tokens": {"<stop>": 390, "<extra>": 391, "<plain>": 392}}
    config = {"eos_token": BYTE_END, "pad_token": None, "unk_token": "<unk>"}
    data = byte_level() if kind == "json" else None
    if kind == "model":
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        for name in "ab":
            (tmp_path / name / "tokenizer.model").write_bytes(spm_model)
    tokenizer = load_tokenizer(write(tmp_path / "a", data, tokenizer_config=config, **older), 400)
    assert tokenizer.eos_id == 390 and 390 in tokenizer.eog_ids
    assert tokenizer.special_tokens == {**tokenizer.special_tokens, "eos_token": "<stop>", "pad_token": "<pad>",
                                        "unk_token": "<unk>", "additional_special_tokens": ["<extra>"]}
    ids = tokenizer.encode("<stop><extra><plain>", add_bos=False, parse_special=True)
    assert [i for i in ids if i >= 390] == [390, 391, 392]
    plain = tokenizer.encode("<stop><extra><plain>", add_bos=False)
    assert [i for i in plain if i >= 390] == [392]
    decoder = {"395": {"content": "<new>", "special": True}, "396": {"content": "<word>", "rstrip": True}}
    config = {**config, "added_tokens_decoder": decoder, "eos_token": "<new>"}
    tokenizer = load_tokenizer(write(tmp_path / "b", data, tokenizer_config=config, **older), 400)
    assert tokenizer.eos_id == 395 and 395 in tokenizer.eog_ids and "pad_token" not in tokenizer.special_tokens
    assert tokenizer.encode("<word>", add_bos=False)[-1] == 396 and 395 not in tokenizer.encode("<new>")
    assert 390 not in tokenizer.encode("<stop>", parse_special=True)


def test_a_named_token_that_stands_among_ordinary_ones_is_a_control_token(tmp_path):
    data = byte_level()
    end = data["model"]["vocab"]["og"]
    tokenizer = load_tokenizer(write(tmp_path / "m", data, tokenizer_config={"eos_token": "og"}), 300)
    assert tokenizer.eos_id == end and tokenizer.is_special(end)
    assert end not in tokenizer.encode("dog") and end in tokenizer.encode("dog", parse_special=True)
    assert tokenizer.decode(tokenizer.encode("dog")) == "dog"


@pytest.mark.parametrize(("name", "content"), [
    ("tokenizer_config", {"added_tokens_decoder": []}), ("tokenizer_config", {"added_tokens_decoder": {"x": {}}}),
    ("tokenizer_config", {"added_tokens_decoder": {"9" * 5000: {}}}),
    ("tokenizer_config", {"added_tokens_decoder": {"5": "a"}}),
    ("tokenizer_config", {"added_tokens_decoder": {"5": {"content": "a", "special": "yes"}}}),
    ("added_tokens", {"<x>": "y"}), ("added_tokens", {"<x>": -1}), ("added_tokens", {"<x>": 1.5}),
    ("tokenizer.json", {"added_tokens_decoder": {"999999999": {"content": "<q>"}}}),
])
def test_wrong_small_files_are_named(tmp_path, name, content):
    files = {name if name != "tokenizer.json" else "tokenizer_config": content}
    with pytest.raises(ValueError, match=name):
        load_tokenizer(write(tmp_path / "m", byte_level(), **files), 300)


# ---- tokenizer.model -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [
    {}, {"normalization_rule_name": "nmt_nfkc_cf"}, {"normalization_rule_name": "identity"},
    {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False}, {"treat_whitespace_as_suffix": True},
    {"byte_fallback": True}, {"user_defined_symbols": ["<sep>", "▁▁", "12"]},
    {"user_defined_symbols": ["<sep>", "▁▁"], "normalization_rule_name": "identity",
     "remove_extra_whitespaces": False},
    {"user_defined_symbols": ["<sep>", "▁▁", "▁▁▁", "a▁cat"], "normalization_rule_name": "identity",
     "remove_extra_whitespaces": False, "add_dummy_prefix": False},
], ids=str)
def test_tokenizer_model_is_sentencepiece_s_own(tmp_path, options):
    """The trainer's defaults among them: nmt_nfkc, extra white space removed."""
    out = io.BytesIO()
    options = {"user_defined_symbols": ["<sep>"], **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([*CORPUS, "a 12 b"]), model_writer=out,
                                             vocab_size=350, model_type="bpe", hard_vocab_limit=False, minloglevel=2,
                                             **options)
    folder = write(tmp_path / "m", None)
    (folder / "tokenizer.model").write_bytes(out.getvalue())
    sp = SentencePieceProcessor(model_proto=out.getvalue())
    tokenizer = load_tokenizer(folder, 400)
    more = ["１２ and ｆｏｘ", "a<sep>b", "a <sep>  b", " 12  the\u3000fox ", "ﬁ ㎏", "the\u00adfox", "\u2581 \u2581",
            "the  cat", "a   cat    and a cat", "\u2581\u2581\u2581\u2581\u2581the"]
    for text in TEXTS + more:
        assert tokenizer.encode(text, add_bos=False) == sp.encode(text), text
        ids = sp.encode(text)
        if sp.unk_id() in ids:      # the package shows it as two question marks
            continue
        assert tokenizer.decode(ids) == sp.decode(ids), text
        stream = DetokenizeStream(tokenizer, continues=False)
        assert "".join(map(stream.step, ids)) + stream.flush() == sp.decode(ids), text


def test_blanks_of_tokens_that_were_added_behind_a_tokenizer_model(tmp_path, spm_model):
    """As transformers 5.24 shows them: its decoder replaces the mark in every token."""
    folder = write(tmp_path / "m", None, tokenizer_config={"added_tokens_decoder": {
        "360": {"content": "<x▁y>", "normalized": False}, "361": {"content": "▁▁▁▁", "normalized": False}}})
    (folder / "tokenizer.model").write_bytes(spm_model)
    tokenizer = load_tokenizer(folder, 400)
    the = SentencePieceProcessor(model_proto=spm_model).piece_to_id("▁the")
    assert tokenizer.decode([the, 360, the, 361, the]) == "the<x y> the     the"


def test_pieces_without_a_logit_never_come_from_text(tmp_path, spm_model):
    folder = write(tmp_path / "m", None)
    (folder / "tokenizer.model").write_bytes(spm_model)
    n = SentencePieceProcessor(model_proto=spm_model).piece_to_id("▁") + 1
    tokenizer = load_tokenizer(folder, n)
    ids = tokenizer.encode("the quick fox")
    assert max(ids) < n < 360 and tokenizer.decode(ids) == "the quick fox"


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
    changed(pre_tokenizer={"type": "Split", "pattern": {"Regex": "a"}, "behavior": "two\nlines", "invert": False}),
    changed(added_tokens=[added(2**40, "x")]), changed(added_tokens=[added(10**7, "x")]),
    changed(added_tokens=[{"id": None, "content": "x"}]), changed(added_tokens=[added(-1, "x")]),
    changed(decoder={"type": []}), changed(model={**byte_level()["model"], "unk_token": []}),
    changed(model={**byte_level()["model"], "continuing_subword_prefix": 1.5}),
    changed(added_tokens=[{**added(257, "x"), "lstrip": 1}]), changed(added_tokens={"a": 1}),
    changed(model={**byte_level()["model"], "merges": [["t", "h", "e"]]}),
    changed(model={**byte_level()["model"], "merges": ["t h"] * 8 * 262}),
    changed(model={**byte_level()["model"], "vocab": {"a": True}}),
    changed(normalizer={"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}] * 3}),
], ids=lambda d: (d if isinstance(d, str) else json.dumps(d))[-40:])
def test_files_that_are_no_tokenizer(tmp_path, data):
    with pytest.raises(ValueError, match="tokenizer.json") as caught:
        load_tokenizer(write(tmp_path / "m", data), 300)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("text", [b"\n0x6F>", b"\xff0x6F>"])
def test_a_byte_piece_of_tokenizer_model_that_is_none(tmp_path, spm_model, text):
    """The package's own message holds the piece as it is."""
    folder = write(tmp_path / "m", None)
    (folder / "tokenizer.model").write_bytes(spm_model.replace(b"<0x6F>", text))
    with pytest.raises(ValueError, match="tokenizer.model: no SentencePiece vocabulary") as caught:
        load_tokenizer(folder, 400)
    assert type(caught.value) is ValueError and "\n" not in str(caught.value)
