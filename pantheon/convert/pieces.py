"""Tensors of a model folder, and the tensors of the file as rows taken from them, a slab at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pantheon._core.files.safetensors import SafetensorsFile

SLAB_BYTES = 32 << 20  # of float32 values in memory at a time

_FLOATS: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_PACKED: dict[str, Any] = {"U8": np.uint8, "I8": np.uint8}

Indices = NDArray[np.intp]
Values = NDArray[np.float32]


@dataclass(frozen=True)
class SourceTensor:
    """shape: slowest dimension first, without leading ones; data: the bytes, borrowed from the mapped file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def matrix(self) -> NDArray[Any]:
        """(rows, columns) view of the bytes; a vector is a matrix of one column."""
        kind = _FLOATS.get(self.dtype) or _PACKED[self.dtype]
        columns = self.shape[-1] if len(self.shape) > 1 else 1
        return self.data.view(kind).reshape(-1, columns)


Source = Mapping[str, SourceTensor]


def read_source(file: SafetensorsFile) -> dict[str, SourceTensor]:
    """Every tensor of an open file or set; the data stays valid when the file is closed."""
    return {info.name: SourceTensor(info.name, info.type, info.shape, file.tensor(info.name)) for info in file.tensors}


def widened(values: NDArray[Any]) -> Values:
    """float32 of values in a stored type; uint16 holds the bits of bfloat16."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


class Piece:
    """Rows of one tensor as float32.

    rows, columns: which, in the order of the file (None: all as they are); change: applied to the values.
    """

    def __init__(self, tensor: SourceTensor, rows: Indices | None = None, columns: Indices | None = None,
                 change: Callable[[Values], Values] | None = None):
        self.source = tensor.name
        self._matrix = tensor.matrix()
        self.rows = rows
        self.columns = columns
        self._change = change
        self.n_rows = len(self._matrix) if rows is None else len(rows)

    def read(self, start: int, stop: int) -> Values:
        """(stop - start, columns) float32."""
        values = self._take(start, stop)
        if self.columns is not None:
            values = values[:, self.columns]
        return values if self._change is None else self._change(values)

    def _take(self, start: int, stop: int) -> Values:
        return widened(self._matrix[start:stop] if self.rows is None else self._matrix[self.rows[start:stop]])


class Whole:
    """A piece that is computed, not stored: (n,) float32."""

    source = "config.json"
    rows = None

    def __init__(self, values: Values):
        self._values = values.reshape(-1, 1)
        self.n_rows = len(self._values)

    def read(self, start: int, stop: int) -> Values:
        return self._values[start:stop]


@dataclass(frozen=True)
class Output:
    """A tensor of the file. shape: NumPy's order; pieces: one below the other they are its rows.

    kind: "matrix" has the type that the user asked for, "small" the same or F16 for q8_0, "float" is always F32,
    "ternary" holds -1, 0 and 1 times a factor.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    pieces: tuple[Piece | Whole, ...]

    def slabs(self) -> Iterator[tuple[str, Values]]:
        """The rows in order, (some, shape[-1]) float32 each, of a vector (some, 1), and the tensor they come from."""
        columns = self.shape[-1] if len(self.shape) > 1 else 1
        step = max(1, SLAB_BYTES // (4 * columns))
        for piece in self.pieces:
            for start in range(0, piece.n_rows, step):
                yield piece.source, piece.read(start, min(start + step, piece.n_rows))

    def values(self) -> Values:
        """The whole tensor, float32."""
        return np.concatenate([values for _, values in self.slabs()]).reshape(self.shape)
