"""Record llama.cpp's token ids for the golden tests of pantheon.text.

    python tools/record_token_ids.py MODEL.gguf tests/fixtures/text/NAME.json

Needs llama-cpp-python. Only the vocabulary is loaded. Written are, for every text below, the ids as plain text and the
ids with special tokens parsed, and the versions they come from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = {
    "empty": "",
    "plain": "The capital of France is Paris.",
    "emoji": "smile 😀 family 👨‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽 heart ❤️!",
    "accents": "Ça déjà-vu, naïve Übermensch; piñata — “façade” … ÀÉÎÕÜ ß ſ İ ı",
    "combining": "e\u0301 a\u0308 n\u0303 o\u0302\u0323 \u0301\u0301 x\u0336y\u0336 हिन्दी ตัวอย่าง עִבְרִית",
    "cjk": "日本語のテキスト。中文字符，测试！한국어 문장 ㄱㄴㄷ ｆｕｌｌ　ｗｉｄｔｈ",
    "digits": "0 12 345 6789 1234567890 3.14159 1,000,000 ٣٤٥ ① ½ Ⅷ 2^10 1e-5",
    "spaces": "a b  c   d    e        f                 g ",
    "leading spaces": "   three before",
    "only spaces": "       ",
    "tabs": "\tone\t\ttwo\t \tmixed \t end\t",
    "newlines": "a\nb\n\nc\n\n\nd\r\ne\r\rf \n g\n  h\n\n",
    "other spaces": "nb\u00a0sp em\u2003sp zw\u200bsp ls\u2028x bom\ufeff",
    "contractions": "I'm you're he'll they've we'd it's don't I'M YOU'RE IT'S ’s o'clock",
    "punctuation": '!!! ?!? ... --- ===> <= >= != && || :: -> => #!/bin/sh $x @y ~/z {[()]} "q" `b`',
    "code": 'def f(x: int) -> str:\n    """Doc."""\n    if x >= 10:\n\t\treturn f"{x:>8}"  # ok\n    return \'\'\n',
    "c code": '#include <stdio.h>\nint main(void){\n\tprintf("%d\\n", 0xFF & ~1);\n\treturn 0;\n}\n',
    "json": '{"a": [1, 2.5, null, true], "b": {"c": "d\\u00e9"}}',
    "url": "https://example.org/a/b?c=d&e=f%20g#h mailto:x.y@z.co",
    "case changes": "camelCaseWord PascalCase SCREAMING_CASE snake_case XMLHttpRequest iOS",
    "long word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "cyrillic greek": "Привет, мир! Ελληνικά κείμενα. Ёлка ёж",
    "markup": "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><tool_call>{}</tool_call><|fim_prefix|><s>[INST]",
    "control": "nul\u0000bel\u0007esc\u001b[0m del\u007f c1\u0085",
    "private": "\ue000 \U000f0000 \U0010ffff \ufffd",
}


def main() -> None:
    import llama_cpp

    model, out = sys.argv[1:]
    llama = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    record = {
        "model": Path(model).name,
        "llama_cpp_python": llama_cpp.__version__,
        "texts": [
            {
                "name": name,
                "text": text,
                "plain": llama.tokenize(text.encode(), add_bos=False, special=False),
                "parsed": llama.tokenize(text.encode(), add_bos=False, special=True),
            }
            for name, text in TEXTS.items()
        ],
    }
    Path(out).write_text(json.dumps(record, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
