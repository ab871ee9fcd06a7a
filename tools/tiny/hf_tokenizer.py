"""The vocabulary of the tiny models as the tokenizer files of a Hugging Face folder."""
from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from . import vocabulary


def save_tokenizer(folder: Path) -> None:
    """The byte-level vocabulary of the GGUF fixtures as tokenizer.json, with a post-processor that adds BOS."""
    texts = vocabulary.tokens()
    n = len(vocabulary.CONTROL)
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(texts) if i >= n},
                                     [tuple(m.split(" ")) for m in vocabulary.MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos = vocabulary.CONTROL[vocabulary.BOS]
    tokenizer.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=[(bos, vocabulary.BOS)])
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i, text in enumerate(vocabulary.CONTROL)]
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": bos, "eos_token": {"content": vocabulary.CONTROL[vocabulary.EOS], "special": True}}))
    (folder / "chat_template.jinja").write_text(vocabulary.CHAT_TEMPLATE)
