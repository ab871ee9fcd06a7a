from typing import Any

CLASSES: dict[str, tuple[str, dict[str, Any]]]
ACTIVATIONS: dict[str, str]
RULES: dict[int, str]

def ternary_rule(config: dict[str, Any], path: str) -> str: ...
