"""What README and docs/cython.md show: the very text is compiled against the installed package and run."""
import re
from pathlib import Path

import pytest
from support.extensions import build, load, shown

import pantheon

PROMPT = [5, 17, 99, 4, 4, 120]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Paths of the two modules, by page."""
    pages = {"README.md": "readme", "docs/cython.md": "example"}
    return {page: build(tmp_path_factory.mktemp(name), name, shown(page)) for page, name in pages.items()}


@pytest.fixture(scope="module")
def greedy(built):
    return load(built["README.md"], "readme").greedy


@pytest.fixture(scope="module")
def generate(built):
    return load(built["docs/cython.md"], "example").generate


def expected(path, n):
    with pantheon.load(path) as model, model.new_state() as state:
        tokens = [int(model.prefill(PROMPT, state).argmax())]
        while len(tokens) < n:
            tokens.append(int(model.forward(tokens[-1], state).argmax()))
    return tokens


def test_greedy_tokens_equal_those_of_python(greedy, tiny):
    assert greedy(str(tiny), PROMPT, 8) == expected(tiny, 8)
    assert greedy(tiny, PROMPT, 1) == expected(tiny, 1)


def test_sampled_tokens_equal_those_of_python(generate, tiny):
    with pantheon.load(tiny) as model, model.new_state(len(PROMPT) + 8) as state:
        params, tokens, logits = pantheon.SamplingParams(seed=3), [], model.prefill(PROMPT, state)
        while len(tokens) < 8:
            tokens.append(pantheon.sample(logits, params))
            logits = model.forward(tokens[-1], state)
    assert generate(tiny, PROMPT, 8, 3) == tokens


@pytest.mark.parametrize("n", [0, -3])
def test_no_tokens(greedy, llama, n):
    assert greedy(llama, PROMPT, n) == []


def test_nothing_to_do(generate, llama):
    assert generate(llama, PROMPT, 0) == []
    with pytest.raises(ValueError, match="6 prompt tokens and -3 new ones"):
        generate(llama, PROMPT, -3)


def test_an_empty_prompt(greedy, generate, llama):
    assert greedy(llama, [], 4) == []
    with pytest.raises(RuntimeError, match="0 tokens: there must be at least 1"):
        generate(llama, [], 4)
    with pytest.raises(ValueError, match="one of them at least 1"):
        generate(llama, [], 0)


def test_a_token_that_is_none(greedy, generate, llama):
    for run in (greedy, generate):
        with pytest.raises(RuntimeError, match="token 4000000000 is not below n_vocab"):
            run(llama, [5, 4000000000], 3)
        with pytest.raises(OverflowError):
            run(llama, [5, -1], 3)
        with pytest.raises(TypeError):
            run(llama, [5, "x"], 3)


def test_more_than_the_context(greedy, generate, llama):
    with pytest.raises(RuntimeError, match="1 more positions do not fit: n_ctx is 128"):
        greedy(llama, [5] * 120, 100)
    with pytest.raises(MemoryError, match="128 of 220 tokens fit"):
        generate(llama, [5] * 120, 100)
    with pytest.raises(MemoryError, match="128 of 203 tokens fit"):
        generate(llama, [5] * 200, 3)


def test_a_file_that_is_no_model(greedy, generate, tmp_path):
    (tmp_path / "none.gguf").write_bytes(b"GGUF")
    for run in (greedy, generate):
        with pytest.raises(FileNotFoundError):
            run(tmp_path / "missing.gguf", PROMPT, 3)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / "none.gguf"))):
            run(tmp_path / "none.gguf", PROMPT, 3)


def unmangled(name):
    """What Cython calls module_struct: the module's parts with their lengths, then the struct."""
    while part := re.match(r"(\d+)", name):
        name = name[part.end() + int(part[1]) + 1:]
    return name


def test_consumers_see_public_structs_only(built):
    """The C code of an extension knows the structs that pantheon/__init__.pxd names, and no other of Pantheon's."""
    header = Path(pantheon.__file__).with_name("__init__.pxd").read_text()
    public = set(re.findall(r"^    (\w+),$", header, re.M))
    for path in built.values():
        code = next(path.parent.glob("*.c")).read_text()
        structs = {unmangled(name) for name in re.findall(r"^struct __pyx_t_(8pantheon_\w+) \{", code, re.M)}
        assert {"pn_model", "pn_cost"} <= structs <= public, structs - public
        objects = re.findall(r"^struct (__pyx_obj_8pantheon_\w+) \{", code, re.M)
        assert objects == []             # AbiVersion has a name of its own
