from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pantheon._core.sampling.params import SamplingParams

def sample(
    logits: NDArray[np.float32], params: SamplingParams, recent_tokens: Sequence[int] | NDArray[Any] = (),
) -> int: ...
def candidates(
    logits: NDArray[np.float32], params: SamplingParams, recent_tokens: Sequence[int] | NDArray[Any] = (),
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]: ...
@overload
def logprobs(logits: NDArray[np.float32], ids: Sequence[int] | NDArray[Any]) -> NDArray[np.float64]: ...
@overload
def logprobs(
    logits: NDArray[np.float32], ids: None = None, *, top: int,
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]: ...
def scratch_nbytes() -> int: ...
