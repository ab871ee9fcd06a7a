"""The World tokenizer: a tiny vocabulary in the published text format, and files that are none."""
import pytest

from pantheon.text import ChatTemplate
from pantheon.text.rwkv import WorldTokenizer, parse
from pantheon.text.stream import DetokenizeStream

WORDS = [" the", "the", "then", " then", "he", "\n\n", "\n\nUser", "User", "é", "日本", "日本語", "it's", 'say "no"',
         "  ", "\t\t", "a b c", "\\n", "\u0080"]


def tiny_tokens():
    return [bytes([i]) for i in range(256)] + [word.encode() for word in WORDS] + [b"\xe6\x97", b"\xff\xfe\xfd"]


def line(number, token):
    try:
        return f"{number} {token.decode()!r} {len(token)}"
    except UnicodeDecodeError:
        return f"{number} {token!r} {len(token)}"


def tiny_file():
    return "".join(line(i, token) + "\n" for i, token in enumerate(tiny_tokens(), 1)).encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "vocab.txt"
    path.write_bytes(tiny_file())
    return path


@pytest.fixture(scope="module")
def tokenizer(path):
    return WorldTokenizer.from_file(path, 300)


def slow_encode(data):
    """Longest match by trying everything."""
    ids = {token: i for i, token in enumerate(tiny_tokens(), 1)}
    out = []
    while data:
        best = max((token for token in ids if data.startswith(token)), key=len)
        out.append(ids[best])
        data = data[len(best):]
    return out


def test_the_file_is_read_as_written():
    assert parse(tiny_file(), "v") == tiny_tokens()
    text = tiny_file().decode()
    assert "b'\\xff\\xfe\\xfd' 3" in text and '"it\'s" 4' in text and "'日本語' 9" in text


def test_escapes_and_quotes():
    lines = [r"1 'a\x41' 2", r"2 '\x80' 2", r"3 b'\x80\n\\' 3", r'4 "\u65e5\U0001f600\"" 8', r"5 '\r\t\'' 3",
             "6 '  ' 2"]
    assert parse("\n".join(lines).encode(), "v") == [
        b"aA", b"\xc2\x80", b"\x80\n\\", "日😀\"".encode(), b"\r\t'", b"  "]


@pytest.mark.parametrize("text", [
    "", "the then", "thenn the", "it's", 'say "no" or "yes"', "日本語日本", "日", "\n\nUser: hi\n\n", "\u0080é",
    "tab\t\t\t and   spaces", "a b c\\n", "\x00\x01", "😀",
])
def test_encode_is_the_longest_match_and_decodes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids == slow_encode(text.encode())
    assert tokenizer.decode(ids) == text
    stream = DetokenizeStream(tokenizer)
    assert "".join(stream.step(i) for i in ids) + stream.flush() == text
    assert 0 not in ids


def test_bytes_that_are_no_text(tokenizer):
    ids = tokenizer.encode_bytes(b"\xff\xfe\xfd\xfe")
    assert ids == slow_encode(b"\xff\xfe\xfd\xfe") and len(ids) == 2
    assert tokenizer.decode(ids) == "\ufffd" * 4
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_the_end_of_text(tokenizer):
    assert tokenizer.eog_ids == {0} and tokenizer.eos_id == 0 and tokenizer.bos_id is None
    assert tokenizer.decode([5, 0, 6]) == tokenizer.decode([5, 6])
    assert tokenizer.piece(0) == b"" and tokenizer.is_special(0) and not tokenizer.is_special(1)
    assert tokenizer.n_tokens == len(tiny_tokens()) + 1 and tokenizer.n_vocab == 300
    assert tokenizer.piece(299) == b""
    for bad in (-1, 300):
        with pytest.raises(ValueError, match="outside 0..299"):
            tokenizer.piece(bad)
    with pytest.raises(ValueError, match="BOS"):
        tokenizer.encode("x", add_bos=True)


def test_nothing_in_a_text_is_special(tokenizer):
    assert tokenizer.encode("<|endoftext|>", parse_special=True) == tokenizer.encode("<|endoftext|>")


def test_chats_use_words_and_empty_lines(tokenizer):
    template = ChatTemplate.for_tokenizer(tokenizer)
    segments = template.render([
        {"role": "system", "content": "Be\n\nbrief."}, {"role": "user", "content": " hi\r\n\r\n\r\nthere "},
        {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "bye"},
    ])
    text = "".join(part for part, _ in segments)
    assert text == "System: Be\nbrief.\n\nUser: hi\nthere\n\nAssistant: Hello\n\nUser: bye\n\nAssistant:"
    assert tokenizer.encode_chat(segments) == tokenizer.encode(text)
    assert tokenizer.chat_stops == ("\n\nUser:",)


# ---- hostile files ---------------------------------------------------------------------------------------------------

def changed(number, text):
    lines = tiny_file().decode().splitlines()
    lines[number - 1] = text
    return "\n".join(lines).encode() + b"\n"


HOSTILE = {
    "a wrong length": (changed(300 - 40, "260 'then' 5"), "line 260: length '5', but the token has 4"),
    "no length": (changed(9, "9 b'\\x08'"), "line 9: "),
    "a length with a sign": (changed(260, "260 'then' +4"), "line 260: length"),
    "a repeated id": (changed(9, "8 b'\\x08' 1"), "line 9: id '8', expected 9"),
    "a gap": (changed(9, "10 b'\\x08' 1"), "line 9: id '10', expected 9"),
    "an id with zeros": (changed(9, "09 b'\\x08' 1"), "line 9: id '09'"),
    "an id that is huge": (changed(9, "9" * 5000 + " 'a' 1"), "line 9: id"),
    "a repeated token": (changed(260, "260 'the' 3"), "is token 258 again|is token 260 again"),
    "an empty token": (changed(9, "9 '' 0"), "line 9: a token of 0 bytes"),
    "an empty line": (changed(9, ""), "line 9: not"),
    "code": (changed(9, "9 __import__('os') 1"), "line 9: .* no string or bytes literal"),
    "an open quote": (changed(9, "9 'a 2"), "line 9: "),
    "two literals": (changed(9, "9 'a' 'b' 2"), "line 9: .* no string"),
    "an unknown escape": (changed(9, r"9 '\q' 1"), r"line 9: unknown escape '\\\\q'"),
    "a code point too high": (changed(9, r"9 '\U00110000' 4"), "line 9: unknown escape"),
    "a surrogate": (changed(9, r"9 '\ud800' 3"), "line 9: .* holds a character"),
    "a character above a byte": (changed(9, "9 b'日' 1"), "line 9: .* holds a character"),
    "a unicode escape in bytes": (changed(9, r"9 b'\u0041' 1"), "line 9: unknown escape"),
    "a missing byte": (changed(9, "9 'xy' 2"), "byte 0x08 is no token"),
    "a very long token": (changed(9, "9 '" + "x" * 2000 + "' 2000"), "line 9: a token of 2000 bytes"),
    "a very long line": (changed(9, "9 '" + "x" * 20000 + "' 20000"), "line 9: more than"),
    "no UTF-8": (tiny_file()[:500] + b"\xff" + tiny_file()[500:], "no UTF-8 at byte 500"),
    "nothing": (b"", "holds no tokens"),
    "white space": (b"\n", "line 1: not"),
    "a GGUF file": (b"GGUF\x03\0\0\0" + bytes(100), "line 1: not"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(tmp_path, name):
    data, message = HOSTILE[name]
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as e:
        WorldTokenizer.from_file(path, 300)
    assert str(path) in str(e.value) and len(str(e.value)) < 1000 and "\n" not in str(e.value)


def test_every_prefix_is_read_or_refused():
    data = tiny_file()
    for n in range(0, len(data), 7):
        try:
            assert tiny_tokens()[:1] == parse(data[:n], "cut.txt")[:1]
        except ValueError as e:
            assert "cut.txt" in str(e)


def test_more_tokens_than_logits(path):
    with pytest.raises(ValueError, match="only 276 logits"):
        WorldTokenizer.from_file(path, 276)
    assert WorldTokenizer.from_file(path, 277).n_tokens == 277


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        WorldTokenizer.from_file(tmp_path / "none.txt", 300)
