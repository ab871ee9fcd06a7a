from numpy.typing import ArrayLike

def route(
    logits: ArrayLike, n_used: int, renormalise: bool = True, scale: float = 1.0
) -> tuple[list[int], list[float]]: ...
