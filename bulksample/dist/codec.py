"""How a row of numbers looks while it travels: a table of codecs from float32 to fewer bytes and back.

A codec costs a line in `CODECS`. Rows that stay on their rank pass through it too, so that what is fetched is a function
of the matrix and the codec, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import DataError, UsageError

_PIECE = 2**16  # rows looked at together


@dataclass(frozen=True)
class Codec:
    """Row by row, entry by entry: float32 (or float16) of shape (m, f) to `dtype` of shape (m, f), and back to float32.

    `encode` and `decode` are exact, or round to nearest, ties to even. Not-a-number stays not-a-number.
    """

    name: str
    dtype: np.dtype
    _encode: Callable[[np.ndarray], np.ndarray]
    _decode: Callable[[np.ndarray], np.ndarray]

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """What travels; raises `DataError` where a finite number becomes infinite."""
        out = np.empty(rows.shape, self.dtype)
        for first in range(0, len(rows), _PIECE):
            piece = rows[first : first + _PIECE]
            out[first : first + _PIECE] = self._encode(piece)
            if self.dtype.itemsize < piece.itemsize:
                self._refuse_overflow(piece, out[first : first + _PIECE])
        return out

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """float32, of the same shape."""
        return self._decode(rows)

    def row_bytes(self, width: int) -> int:
        return width * self.dtype.itemsize

    def _refuse_overflow(self, before: np.ndarray, after: np.ndarray) -> None:
        lost = np.isinf(self._decode(after)) & np.isfinite(before)
        if lost.any():
            raise DataError(f"codec {self.name} cannot hold {before[lost][0]}: it becomes infinite; codec fp32 would fit")


def codec_named(name: str) -> Codec:
    """The codec of a name; raises `UsageError` for an unknown one."""
    if name not in CODECS:
        raise UsageError(f"there is no codec {name!r}; {', '.join(CODECS)} would fit")
    return CODECS[name]


def _to_half(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # looked for afterwards
        return rows.astype(np.float16)


def _to_bfloat16(rows: np.ndarray) -> np.ndarray:
    """The upper 16 bits of float32, rounded: adding 0x7fff and the last bit that stays carries exactly when it should."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    upper = bits >> np.uint32(16)
    rounded = (bits + (np.uint32(0x7FFF) + (upper & np.uint32(1)))) >> np.uint32(16)
    quiet = upper | np.uint32(0x40)  # a carry would turn some of not-a-number into infinity or zero
    return np.where(np.isnan(rows), quiet, rounded).astype(np.uint16)


def _from_bfloat16(rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_single(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float32, copy=False)


CODECS = {
    codec.name: codec
    for codec in (
        Codec("fp32", np.dtype(np.float32), _to_single, _to_single),
        Codec("fp16", np.dtype(np.float16), _to_half, _to_single),
        Codec("bf16", np.dtype(np.uint16), _to_bfloat16, _from_bfloat16),
    )
}
