"""What a request costs, and the answer that it gets before any work."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """What one sequence takes, in bytes: exactly what is allocated for it."""

    n_ctx: int                   # positions, a multiple of 8
    kv_type: str | None          # type of the KV cache; None where there is none
    window: int                  # tokens of one pass over the weights
    kv_bytes: int                # grows with n_ctx
    state_bytes: int             # fixed per sequence: scratch of a forward, recurrent state
    scratch_bytes: int           # work buffers of prompts and batches, one set for all sequences of a model
    logits_bytes: int            # of all rows that one call gives
    per_die: tuple[int, ...]     # of GPU memory; () on the CPU
    checkpoint_bytes: int        # of each checkpoint of a recurrent state, not in total; 0: there is nothing to copy

    @property
    def total(self) -> int:
        """Bytes of host memory for a single sequence."""
        return self.kv_bytes + self.state_bytes + self.scratch_bytes + self.logits_bytes


class Verdict(NamedTuple):
    """The answer before the work."""

    status: str                  # "FIT"; "CAPPED": the prompt fits, not all of the answer; "DENIED"
    n_tokens: int                # tokens asked for, prompt and answer
    fit_tokens: int              # how many of them fit
    need_bytes: int              # what n_tokens take beyond what is held already
    have_bytes: int              # what new work may take
    kv_type: str | None          # type of the KV cache
    prefill_window: int          # most tokens of one prefill call
    steps: tuple[str, ...]       # what the ladder did for this request, in order
    reason: str                  # "" for a checked FIT
