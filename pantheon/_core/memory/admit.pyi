from collections.abc import Sequence

def request(
    n_tokens: int,
    max_window: int,
    *,
    total: int,
    avail: int,
    reserved: int = 0,
    group_bytes: int = 64,
    areas: int = 1,
    state_bytes: int = 0,
    scratch_bytes: int = 0,
    window: int = 1,
    logits_bytes: int = 0,
    held_bytes: int = 0,
    scratch_held: int = 0,
    dies: Sequence[tuple[int, int, int, int, int]] = (),
) -> tuple[str, int, int]: ...
