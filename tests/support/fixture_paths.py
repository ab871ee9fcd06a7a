"""Where the models in fixtures/ lie."""
import shutil
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TINY, HF = FIXTURES / "tiny", FIXTURES / "hf"
HF_MODELS = sorted(path.parent for path in HF.glob("*/config.json"))
TINY_MODELS = sorted(path.stem for path in TINY.glob("*.gguf"))
# One folder has a tokenizer; its vocabulary is that of all of them.
TOKENIZER = [HF / "llama-sharded" / name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                                      "generation_config.json")]


def with_tokenizer(name, where):
    """A copy of the Hugging Face folder called so, in the folder where, that has the tokenizer's files too."""
    folder = shutil.copytree(HF / name, where / name)
    for file in TOKENIZER:
        shutil.copy(file, folder)
    return folder
