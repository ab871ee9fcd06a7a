"""Every key of every JSON file of a folder with values of every other kind: it works, or one error names the file."""
import copy
import json
import shutil
from pathlib import Path

import pytest
from support.fixture_paths import HF

import pantheon
from pantheon.convert import convert

pytestmark = pytest.mark.hostile

FOLDERS = ("llama-sharded", "qwen35", "qwen3-moe", "phi3-longrope", "ternary-llama")
ODD = ("null", "true", "-1", "0", "1e400", str(2**70), "9" * 4400, '""', '"x"', r'"\ud800"', "[]", "[[]]", "[{}]", "{}",
       '{"a": []}', "[[[[[]]]]]", '{"type": "x"}')
# Keys that files may have and the fixtures have not.
MORE = {
    "config.json": ("text_config", "layer_types", "rope_scaling", "rope_parameters", "quantization_config",
                    "sliding_window", "use_sliding_window", "head_dim", "hidden_act", "mlp_only_layers",
                    "tie_word_embeddings", "bos_token_id", "eos_token_id"),
    "tokenizer_config.json": ("chat_template", "added_tokens_decoder", "additional_special_tokens", "eos_token",
                              "add_bos_token", "extra_special_tokens"),
    "generation_config.json": ("bos_token_id", "eos_token_id"),
}
MARK = "the odd value"


def places(value, at=()):
    """Paths of all values below; of a long list or object the first and the last."""
    yield at
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, inner in items if len(items) <= 30 else (items[0], items[-1]):
        yield from places(inner, (*at, key))


def put(value, at, new):
    if not at:
        return new
    value = copy.copy(value)
    value[at[0]] = put(value[at[0]] if len(at) > 1 else None, at[1:], new)
    return value


def files():
    return [(name, path.name) for name in FOLDERS for path in sorted((HF / name).glob("*.json"))]


def use(folder, tokens):
    with pantheon.load(folder) as model:
        model.forward(1, model.new_state(1))
        if tokens:
            model.tokenizer.decode(model.tokenizer.encode("a b <s>\n12", parse_special=True))
            model.tokenizer.encode_chat(model.chat_template.render([{"role": "user", "content": "hi"}]))


@pytest.mark.parametrize(("name", "file"), files(), ids="-".join)
def test_values_of_every_other_kind(tmp_path, name, file):
    folder = Path(shutil.copytree(HF / name, tmp_path / "m"))
    data = json.loads((folder / file).read_text())
    tokens = (folder / "tokenizer.json").exists()
    actions = [lambda: use(folder, tokens)]
    if file != "tokenizer.json" or tokens:
        actions.append(lambda: convert(folder, tmp_path / "x.gguf", "f32", force=True, tokenizer=tokens))
    where = [*places(data), *((key,) for key in MORE.get(file, ()) if key not in data)]
    refused = 0
    # Each place meets some of the values, and each value many places.
    for n, at in enumerate(where):
        for odd in ODD[n % 5 :: 5]:
            (folder / file).write_text(json.dumps(put(data, at, MARK)).replace(f'"{MARK}"', odd))
            for action in actions:
                try:
                    action()
                except (ValueError, OSError, MemoryError) as e:
                    text = str(e)
                    assert not isinstance(e, UnicodeError), (file, at, odd[:40])
                    assert str(folder) in text or isinstance(e, pantheon.ContextFullError), (file, at, odd[:40], text)
                    assert "\n" not in text and len(text) < 2000, (file, at, odd[:40])
                    refused += 1
                except BaseException as e:
                    pytest.fail(f"{file} {at} {odd[:40]}: {e!r}")
    assert refused > 0


@pytest.mark.parametrize(("name", "file", "change", "says"), [
    ("qwen35", "config.json", {"layer_types": [[]] * 5}, "key layer_types"),
    ("qwen35", "config.json", {"layer_types": [{}] * 5}, "key layer_types"),
    ("ternary-llama", "config.json", {"quantization_config": {"quant_method": "bitnet", "modules_to_not_convert": 1}},
     "modules_to_not_convert is 1, not a list"),
    ("llama-sharded", "generation_config.json", {"eos_token_id": "x"}, "key eos_token_id is 'x', not an id"),
    ("llama-sharded", "generation_config.json", {"eos_token_id": [[]]}, "key eos_token_id"),
    ("llama-sharded", "tokenizer_config.json", {"add_bos_token": "yes"}, "key add_bos_token is 'yes', not true or"),
    ("llama-sharded", "tokenizer_config.json", {"eos_token": 5}, "key eos_token is '5', not a string"),
    ("llama-sharded", "tokenizer_config.json", {"chat_template": [{"name": "x"}]}, "key chat_template"),
    ("llama-sharded", "tokenizer.json", {"post_processor": {"type": "Sequence", "processors": [
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<none>", "type_id": 0}}], "pair": [],
         "special_tokens": {}}]}}, "post_processor"),
])
def test_file_and_key_are_named(tmp_path, name, file, change, says):
    folder = Path(shutil.copytree(HF / name, tmp_path / "m"))
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError) as caught:
        use(folder, file != "config.json")
    assert str(path) in str(caught.value) and says in str(caught.value) and "\n" not in str(caught.value)


# ---- messages --------------------------------------------------------------------------------------------------------

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json",
                                  "model.safetensors.index.json",
                                  "model-00002-of-00003.safetensors", "chat_template.jinja"])
def test_pointers_of_git_lfs(tmp_path, file):
    folder = Path(shutil.copytree(HF / "llama-sharded", tmp_path / "m"))
    (folder / file).write_bytes(POINTER)
    with pytest.raises(ValueError, match=f"{file}: this is a Git LFS pointer to a file, not the file"):
        use(folder, True)


@pytest.mark.parametrize("name", ["m.gguf", "m.safetensors", "m"])
def test_a_model_that_is_a_pointer_of_git_lfs(tmp_path, name):
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(ValueError, match=f"{name}: this is a Git LFS pointer"):
        pantheon.load(tmp_path / name)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "m.gguf").symlink_to("/proc/self/mem")   # a regular file, whose first page nobody can read
    with pytest.raises(OSError) as caught:
        pantheon.load(tmp_path / "m.gguf")
    assert caught.value.filename == str(tmp_path / "m.gguf")
