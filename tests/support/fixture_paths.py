"""Where the models in fixtures/ lie."""
from pathlib import Path

TINY = Path(__file__).parents[1] / "fixtures" / "tiny"
HF_MODELS = sorted(path.parent for path in (TINY.parent / "hf").glob("*/config.json"))
TINY_MODELS = sorted(path.stem for path in TINY.glob("*.gguf"))
