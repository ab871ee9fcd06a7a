from collections.abc import Iterable
from typing import final

from pantheon._core.python.model import ModelBase
from pantheon._core.python.state import State
from pantheon.verdict import Cost, Verdict

STATUS: tuple[str, ...]

@final
class Decision:
    @property
    def granted(self) -> bool: ...
    def release(self) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def progress(self, pos: int, n_checkpoints: int = 0) -> None: ...
    @property
    def level(self) -> str: ...
    @property
    def short(self) -> int: ...
    def wanted(self, rung: int) -> int: ...
    def verdict(self, steps: Iterable[str] = ()) -> Verdict: ...

def decide(
    model: ModelBase,
    n_prompt: int,
    max_tokens: int,
    n_ctx: int | None = None,
    kv_type: str | None = None,
    window: int | None = None,
    state: State | None = None,
    n_checkpoints: int = 0,
    batch: int = 1,
    all_logits: bool = False,
    *,
    hold: bool = False,
    quiet: bool = False,
    reclaimable: int = 0,
) -> Decision: ...
def cost(
    model: ModelBase,
    n_ctx: int | None,
    kv_type: str | None,
    window: int | None,
    batch: int = 1,
    all_logits: bool = False,
) -> Cost: ...
def touched_bytes(state: State) -> int: ...
def set_gpu_resident(model: ModelBase | None) -> None: ...
def work_bytes(model: ModelBase) -> int: ...
