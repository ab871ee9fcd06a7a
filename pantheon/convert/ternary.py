"""Ternary matrices of a model folder: -1, 0 and 1 times one factor per matrix, as BitNet b1.58 stores them."""

from __future__ import annotations

import math

import numpy as np

from pantheon.convert.pieces import SLAB_BYTES, Indices, Piece, SourceTensor, Values, widened


def packed_rows(rows: int) -> int:
    """Rows of the packed form: byte r of a column holds in bit pair k the code of row k * packed_rows + r."""
    return (rows + 3) // 4


def is_packed(tensor: SourceTensor) -> bool:
    return tensor.dtype in ("U8", "I8")


class Ternary(Piece):
    """n_rows rows of a matrix; folder: for messages; scale: the weight_scale, None for the online rule."""

    def __init__(self, tensor: SourceTensor, n_rows: int, rows: Indices | None, rule: str, scale: SourceTensor | None,
                 folder: str):
        super().__init__(tensor, np.arange(n_rows) if rows is None else rows)
        self._name = f"{folder}: tensor {tensor.name}"
        self._groups = packed_rows(n_rows) if is_packed(tensor) else 0
        self._exact = scale is not None
        if scale is None:
            self._factor = self._mean_magnitude()
            return
        value = float(widened(scale.matrix())[0, 0])
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{self._name}_scale is {value}, not a finite number above 0")
        self._factor = 1 / value if rule == "divide" else value

    def _mean_magnitude(self) -> float:
        step = max(1, SLAB_BYTES // (4 * self._matrix.shape[1]))
        total = sum(float(np.abs(widened(self._matrix[i : i + step])).sum(dtype=np.float64))
                    for i in range(0, len(self._matrix), step))
        if not math.isfinite(total):
            raise ValueError(f"{self._name} holds weights that are not finite")
        return max(total / self._matrix.size, 1e-5)

    def _take(self, start: int, stop: int) -> Values:
        assert self.rows is not None
        rows = self.rows[start:stop]
        if self._groups:
            shift = (2 * (rows // self._groups)).astype(np.uint8)
            codes = (self._matrix[rows % self._groups] >> shift[:, None]) & 3
            if np.any(codes == 3):
                raise ValueError(f"{self._name} holds code 3, which is no ternary weight")
            weights = codes.astype(np.float32) - 1
        else:
            weights = widened(self._matrix[rows])
            if not self._exact:
                weights = np.rint(weights * np.float32(1 / self._factor)).clip(-1, 1)
            elif not np.isin(weights, (-1, 0, 1)).all():
                raise ValueError(f"{self._name} holds weights that are not -1, 0 or 1")
        return weights * np.float32(self._factor)
