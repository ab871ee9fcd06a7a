from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

INDEX_SUFFIX: str
DTYPES: dict[str, tuple[int, int]]
DTYPE_NAMES: dict[int, str]

class TensorInfo(NamedTuple):
    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int

class SafetensorsFile:
    def __init__(self, path: str | bytes | PathLike[Any]) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> SafetensorsFile: ...
    def __exit__(self, *error: object) -> None: ...
    @property
    def paths(self) -> list[str]: ...
    @property
    def tensors(self) -> list[TensorInfo]: ...
    def tensor(self, name: str) -> NDArray[np.uint8]: ...
