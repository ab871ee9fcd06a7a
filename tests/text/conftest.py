"""Small vocabularies of both kinds, as GGUF metadata."""

import io
import json

import pytest
import sentencepiece
from tokenizers import Tokenizer as Trained
from tokenizers import models, pre_tokenizers, trainers

CORPUS = (
    "The quick brown fox jumps over the lazy dog. It's a naïve café in 日本語, привет мир! 😀 hello hello world",
    "def f(x):\n    return x + 1234567\n\n\tprint('aaaa aaaaaaaa', f(11))  # user system assistant tools",
    "system\nuser\nassistant\nYou are a helpful assistant. evil end start im tool call think function name",
)
CONTROL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "[INST]", "[/INST]", "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<think>", "</think>",
)  # fmt: skip
USER_DEFINED = ("<tool_call>", "</tool_call>")


@pytest.fixture(scope="session")
def trained_bpe():
    """A byte-level BPE that the tokenizers package trained, with its own GPT-2 splitting."""
    trained = Trained(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        CORPUS * 20, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    )
    return trained


@pytest.fixture(scope="session")
def bpe_metadata(trained_bpe):
    """That BPE as metadata: ordinary tokens first, then CONTROL and USER_DEFINED."""
    model = json.loads(trained_bpe.to_str())["model"]
    texts = sorted(model["vocab"], key=model["vocab"].get)
    tokens = [*texts, *CONTROL, *USER_DEFINED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [t.encode() for t in tokens],
        "tokenizer.ggml.token_type": [1] * len(texts) + [3] * len(CONTROL) + [4] * len(USER_DEFINED),
        "tokenizer.ggml.merges": [" ".join(m).encode() for m in model["merges"]],
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


@pytest.fixture(scope="session")
def trained_spm():
    """A SentencePiece BPE with byte fallback, trained by the package itself."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS * 20 for line in text.splitlines()]),
        model_writer=out,
        model_type="bpe",
        vocab_size=440,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


@pytest.fixture(scope="session")
def spm_metadata(trained_spm):
    sp = trained_spm
    n = sp.get_piece_size()

    def kind(i):
        return 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 1

    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [sp.id_to_piece(i).encode() for i in range(n)] + [b"[INST]", b"[/INST]", b"<tool>"],
        "tokenizer.ggml.scores": [sp.get_score(i) for i in range(n)] + [-1000.0] * 3,
        "tokenizer.ggml.token_type": [kind(i) for i in range(n)] + [3, 3, 4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.fixture(scope="session")
def n_vocab(bpe_metadata):
    return len(bpe_metadata["tokenizer.ggml.tokens"]) + 7


@pytest.fixture(scope="session")
def bpe(bpe_metadata, n_vocab):
    from pantheon.text import Tokenizer

    return Tokenizer(bpe_metadata, n_vocab)


@pytest.fixture(scope="session")
def spm(spm_metadata):
    from pantheon.text import Tokenizer

    return Tokenizer(spm_metadata, len(spm_metadata["tokenizer.ggml.tokens"]))
