from collections.abc import Sequence
from typing import Any

def probe(path: str, dies: Sequence[int] = ()) -> dict[str, Any]: ...
