from typing import Any

CLASSES: dict[str, tuple[str, dict[str, Any]]]
MODEL_TYPES: dict[str, str]
ACTIVATIONS: dict[str, str]
RULES: dict[int, str]

def standard_config(config: Any, path: str) -> dict[str, Any]: ...
def optional_parts(config: dict[str, Any], path: str) -> frozenset[str]: ...
def ternary_rule(config: dict[str, Any], path: str) -> str: ...
