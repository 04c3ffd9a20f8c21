"""Codecs that turn float32 rows into fewer bytes while they travel, and back.

A new codec takes one line in `CODECS`. Some convert number by number; others round each row to codes on a grid of its own. Rows
that stay on their rank are encoded too, so the fetched rows depend on the matrix and the codec, never on the number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ... import backends
from ...backends.base import Backend
from ...backends.quantiser import Noise
from ...errors import DataError, UsageError
from ...rng import Substream

_PIECE = 2**16  # rows encoded at a time
_BYTE = np.dtype(np.uint8)


class Codec(ABC):
    """A codec between rows of shape (m, f) and their encoded form: `dtype`, shape (m, columns(f))."""

    name: str
    dtype: np.dtype

    @abstractmethod
    def encode(self, rows: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
        """Encode float32 or float16 rows, with rounding noise by `names` (int32, (m,)); raises `DataError` for numbers that do not fit."""

    @abstractmethod
    def decode(self, rows: np.ndarray, width: int | None = None) -> np.ndarray:
        """Decode rows to float32, shape (m, width); `width` defaults to the encoded width."""

    def columns(self, width: int) -> int:
        """Return the number of columns of an encoded row of `width` numbers."""
        return width

    def row_bytes(self, width: int) -> int:
        return self.columns(width) * self.dtype.itemsize


@dataclass(frozen=True)
class Entrywise(Codec):
    """A codec of single numbers: exact, or rounded to nearest with ties to even. NaN stays NaN."""

    name: str
    dtype: np.dtype
    _encode: Callable[[np.ndarray], np.ndarray]
    _decode: Callable[[np.ndarray], np.ndarray]

    def encode(self, rows: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
        out = np.empty(rows.shape, self.dtype)
        for first in range(0, len(rows), _PIECE):
            piece = rows[first : first + _PIECE]
            out[first : first + _PIECE] = self._encode(piece)
            if self.dtype.itemsize < piece.itemsize:
                lost = np.isinf(self._decode(out[first : first + _PIECE])) & np.isfinite(piece)
                if lost.any():
                    raise DataError(f"codec {self.name} cannot hold {piece[lost][0]}: it becomes infinite; use codec fp32")
        return out

    def decode(self, rows: np.ndarray, width: int | None = None) -> np.ndarray:
        return self._decode(rows)


@dataclass(frozen=True)
class Rounded(Codec):
    """A codec of rows as b-bit codes with a header of 4 bytes, by `Backend.quantise`: ceil(f b / 8) + 4 bytes a row.

    Rounding noise is a function of the row's name and the column. So a row is always rounded in the same way, whoever fetches it.
    """

    name: str
    bits: int
    dtype: np.dtype = _BYTE

    def encode(self, rows: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
        assert names is not None
        single = np.ascontiguousarray(rows, np.float32)
        return _backend().quantise(single, self.bits, np.ascontiguousarray(names, np.int32), _FIXED)

    def decode(self, rows: np.ndarray, width: int | None = None) -> np.ndarray:
        assert width is not None
        return _backend().dequantise(rows, width, self.bits)

    def columns(self, width: int) -> int:
        return -(-width * self.bits // 8) + 4


_FIXED = Noise(0, Substream.FEATURE_ROUNDING.tag())


@cache
def _backend() -> Backend:
    return backends.make(threads=1)


def codec_named(name: str) -> Codec:
    """Return the codec of a name; raises `UsageError` for an unknown one."""
    if name not in CODECS:
        raise UsageError(f"there is no codec {name!r}; use one of {', '.join(CODECS)}")
    return CODECS[name]


def _to_half(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # checked afterwards
        return rows.astype(np.float16)


def _to_bfloat16(rows: np.ndarray) -> np.ndarray:
    """Return the upper 16 bits of float32, rounded to nearest even: 0x7fff plus the last kept bit carries exactly when it should."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    upper = bits >> np.uint32(16)
    rounded = (bits + (np.uint32(0x7FFF) + (upper & np.uint32(1)))) >> np.uint32(16)
    quiet = upper | np.uint32(0x40)  # NaN: a carry would turn some into infinity or zero
    return np.where(np.isnan(rows), quiet, rounded).astype(np.uint16)


def _to_single(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float32, copy=False)


CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Entrywise("fp32", np.dtype(np.float32), _to_single, _to_single),
        Entrywise("fp16", np.dtype(np.float16), _to_half, _to_single),
        Entrywise("bf16", np.dtype(np.uint16), _to_bfloat16, lambda rows: (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)),
        Rounded("int8", 8),
        Rounded("int4", 4),
        Rounded("int2", 2),
    )
}
