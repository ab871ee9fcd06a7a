"""A complete byte-level BPE vocabulary of 288 tokens, so that the tiny models read and write any text.

Ids 0-2 are control tokens, 3-258 the 256 bytes (in GPT-2's printable spelling, by byte value), the rest the merges in
rank order.
"""
from __future__ import annotations

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BOS, EOS = 1, 2

MERGES = [
    "Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "o u", "Ġ c", "n d", "i s", "o r",
    "e s", "Ġ o", "Ġ b", "Ġ f", "e d", "in g", "Ġ p", "Ġa nd", "Ġo f", "a l", "l l", "Ġt o", "Ġ Ġ",
]

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def printable_bytes() -> list[str]:
    """GPT-2's spelling of each byte value: printable Latin-1 stands for itself, the rest for U+0100 upwards."""
    spelling, spare = [], 0x100
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            spelling.append(chr(byte))
        else:
            spelling.append(chr(spare))
            spare += 1
    return spelling


def tokens() -> list[str]:
    """Texts of all 288 tokens, by id."""
    texts = CONTROL + printable_bytes()
    for merge in MERGES:
        left, right = merge.split(" ")
        if left not in texts or right not in texts:
            raise ValueError(f"merge {merge!r} uses a token that no earlier merge makes")
        texts.append(left + right)
    if len(set(texts)) != len(texts):
        raise ValueError("two merges make the same token")
    return texts


def write(writer, pre: str) -> None:
    """Adds the vocabulary to a gguf.GGUFWriter; `pre` names the pre-tokenizer."""
    texts = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(texts) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
