LAYER_PARTS: dict[str, str]
OLD_PARTS: dict[str, str]
TOP_PARTS: dict[str, str]
