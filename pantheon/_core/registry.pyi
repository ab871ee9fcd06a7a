from pantheon._core.load.facts import ModelClass

HF_CLASSES: dict[str, ModelClass]

def architectures() -> list[str]: ...
