"""Chat formats that a vocabulary gives away, for files without a template: the one table of the engine and the text."""
from collections.abc import Set

NAMES = ("none", "template", "chatml", "llama3", "mistral", "phi3", "rwkv")      # by pn_chat_style

# Control tokens that a format cannot do without, most telling first. (RWKV's has words for them.)
MARKERS = {
    "chatml": (b"<|im_start|>", b"<|im_end|>"),
    "llama3": (b"<|start_header_id|>", b"<|end_header_id|>", b"<|eot_id|>"),
    "phi3": (b"<|user|>", b"<|assistant|>", b"<|end|>"),
    "mistral": (b"[INST]", b"[/INST]"),
}


def shown_style(tokens: Set[bytes]) -> str | None:
    """The format all of whose markers are among these texts."""
    return next((style for style, markers in MARKERS.items() if tokens >= set(markers)), None)
