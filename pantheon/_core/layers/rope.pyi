from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SCALINGS: dict[str, int]

def rope_table(
    dims: int,
    base: float,
    scaling: str = "none",
    factor: float = 1.0,
    orig_ctx: int = 2048,
    attn_factor: float | None = None,
    ext_factor: float = 1.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    low_freq: float = 1.0,
    high_freq: float = 4.0,
    factors: ArrayLike | None = None,
    truncate: bool = True,
) -> tuple[NDArray[np.float64], float]: ...
def mrope_table(dims: int, base: float, sections: Sequence[int], pos: Sequence[int]) -> NDArray[np.float32]: ...
