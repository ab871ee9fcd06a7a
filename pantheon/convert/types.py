"""The types that matrices are written in, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pantheon.convert.pieces import Output, Values

TYPES = ("f32", "f16", "bf16", "q8_0")

_MAX_F16 = 65504.0


def gguf_package() -> Any:
    """The gguf package; ImportError saying how to get it."""
    try:
        import gguf
        import gguf.quants
    except ImportError as e:
        raise ImportError(f"writing GGUF files needs the gguf package: pip install 'pantheon[convert]' ({e})") from None
    return gguf


@dataclass(frozen=True)
class Plan:
    """A tensor of the file with its type (a gguf.GGMLQuantizationType) and its size in the file."""

    output: Output
    kind: Any
    nbytes: int


def planned(output: Output, wanted: str) -> Plan:
    """What a tensor is written as. wanted: one of TYPES.

    Blocks do not cross rows: matrices whose rows are no multiple of a block are F16 in place of q8_0, and of the wanted
    type in place of TQ2_0.
    """
    gguf = gguf_package()
    q = gguf.GGMLQuantizationType
    columns = output.shape[-1]
    kind = q.F32
    if output.kind != "float":
        kind = {"f32": q.F32, "f16": q.F16, "bf16": q.BF16, "q8_0": q.Q8_0 if columns % 32 == 0 else q.F16}[wanted]
    if output.kind == "small" and kind == q.Q8_0:
        kind = q.F16
    if output.kind == "ternary" and columns % 256 == 0:
        kind = q.TQ2_0
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    n = 1
    for size in output.shape:
        n *= size
    return Plan(output, kind, n // block * block_bytes)


def encoded(values: Values, kind: Any, what: str) -> NDArray[Any]:
    """The bytes of rows in a type; what: names the tensor. ValueError for values that the type cannot hold."""
    gguf = gguf_package()
    q = gguf.GGMLQuantizationType
    largest = float(np.abs(values).max(initial=0))
    if not np.isfinite(largest):
        raise ValueError(f"{what} holds values that are not finite")
    # a block's scale is an f16 too
    if largest > {q.F16: _MAX_F16, q.Q8_0: 127 * _MAX_F16, q.TQ2_0: _MAX_F16}.get(kind, np.inf):
        raise ValueError(f"{what} holds {largest:.6g}, too much for {kind.name}; --type bf16 or f32 holds it")
    values = np.ascontiguousarray(values)
    if kind in (q.F32, q.F16):
        return values.astype(np.float32 if kind == q.F32 else np.float16, copy=False)
    return np.ascontiguousarray(gguf.quants.quantize(values, kind))


def file_type(kinds: list[Any], wanted: str) -> int:
    """general.file_type: what most of the weights are, for those who read it."""
    gguf = gguf_package()
    ftype = gguf.LlamaFileType
    if gguf.GGMLQuantizationType.TQ2_0 in kinds:
        return int(ftype.MOSTLY_TQ2_0)
    return int({"f32": ftype.ALL_F32, "f16": ftype.MOSTLY_F16, "bf16": ftype.MOSTLY_BF16,
                "q8_0": ftype.MOSTLY_Q8_0}[wanted])
