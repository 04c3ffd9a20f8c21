"""The definition of the quantiser in numpy: it encodes rows as b-bit codes, each row on a grid of its own.

    q_k = whole(y_k) + [w_k < frac(y_k) 2^32],   y_k = (h_k - z) / S,   h^_k = z + q_k S

with w_k uniform over 32 bits. Sender and receiver use the same grid: a narrow header holds z and S as bfloat16, and z is
rounded down, S up, before any number is encoded. csrc/quantise_row.h is the same for one row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import DataError
from ..rng import counters, philox

LARGEST = np.float32(2.0**126)  # numbers of a row that is rounded to codes must be smaller
NEAREST = np.uint32(1 << 31)  # this word rounds to the nearest code, ties down
_CONSTANT = np.uint32(0x8000)  # the sign bit of the step, which is never negative
_LOW, _16 = np.uint32(0xFFFF), np.uint32(16)


class Noise(NamedTuple):
    """The counter of the random words for stochastic rounding, apart from the row and the column."""

    seed: int
    tag: int
    receiver: int = 0


def quantise(rows: np.ndarray, bits: int, wide: bool, names: np.ndarray, noise: Noise | None) -> np.ndarray:
    """Encode rows as `Backend.quantise` defines; the caller has checked that all numbers are below `LARGEST` in size."""
    most = np.float32(np.inf if rows.shape[1] else 0)
    lo, hi = rows.min(1, initial=most) + np.float32(0), rows.max(1, initial=-most) + np.float32(0)  # no negative zero
    zero, step = header(lo, hi, bits, wide)
    codes = _codes(rows, *grid(zero, step, wide), 2**bits - 1, _words(rows.shape, names, noise))
    constant = _constant(step, wide)
    codes[constant] = 0
    codes[constant, :1] = (lo.view(np.uint32)[constant, None] & np.uint32(1)).astype(np.uint8)
    size = np.dtype("<u4" if wide else "<u2")
    return np.hstack([_packed(codes, bits), np.stack([zero, step], 1).astype(size).view(np.uint8)])


def dequantise(records: np.ndarray, width: int, bits: int, wide: bool) -> np.ndarray:
    """Decode records as `Backend.dequantise` defines."""
    packed = -(-width * bits // 8)
    size = np.dtype("<u4" if wide else "<u2")
    zero, step = np.ascontiguousarray(records[:, packed:]).view(size).astype(np.uint32).T
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (records[:, :packed, None] >> shifts & np.uint8(2**bits - 1)).reshape(len(records), packed * len(shifts))[:, :width]
    low, apart = grid(zero, step, wide)
    rows: np.ndarray = (low[:, None] + codes * apart[:, None]).astype(np.float32)
    constant = _constant(step, wide)
    if width:
        value = zero << _16 | (step & np.uint32(0x7FFF)) << np.uint32(1) | (codes[:, 0] & np.uint8(1))
        rows[constant] = value.view(np.float32)[constant, None]
    return rows


def header(lo: np.ndarray, hi: np.ndarray, bits: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Compute the header that travels beside the codes, z and S: uint32 words of float32, or their upper halves.

    For a row of one repeated value, a narrow header holds 31 bits of that value instead of z and S, and the first code the last bit.
    """
    low, top = lo.view(np.uint32), 2**bits - 1
    if wide:
        return low, _float_up((hi.astype(np.float64) - lo) / top).view(np.uint32)
    zero = (low >> _16) + ((lo < 0) & ((low & _LOW) > 0))
    above = hi - (zero << _16).view(np.float32).astype(np.float64)
    step = (_float_up(above / top).view(np.uint32) + _LOW) >> _16
    constant = lo == hi
    return np.where(constant, low >> _16, zero), np.where(constant, _CONSTANT | (low & _LOW) >> np.uint32(1), step)


def grid(zero: np.ndarray, step: np.ndarray, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Decode z and S of a header: float64; S is 0 for a constant row."""
    shift, moves = np.uint32(0 if wide else 16), np.where(_constant(step, wide), np.uint32(0), step)
    return (zero << shift).view(np.float32).astype(np.float64), (moves << shift).view(np.float32).astype(np.float64)


def refuse_row(rows: np.ndarray, name: int, row: int) -> DataError:
    """Return the error for a row that cannot be rounded."""
    worst = rows[row][np.argmax(~(np.abs(rows[row]) < LARGEST))]
    return DataError(f"row {name} holds {worst}: rows are rounded to codes where all numbers are below 2**126 in size")


def _constant(step: np.ndarray, wide: bool) -> np.ndarray:
    """Return a mask of the constant rows, those whose narrow header holds the row's value instead of z and S: bool."""
    return np.zeros(step.shape, bool) if wide else (step & _CONSTANT) > 0


def _float_up(x: np.ndarray) -> np.ndarray:
    """Round x >= 0 up to float32."""
    near = x.astype(np.float32)
    return np.where(near < x, (near.view(np.uint32) + np.uint32(1)).view(np.float32), near)


def _codes(rows: np.ndarray, zero: np.ndarray, step: np.ndarray, top: int, words: np.ndarray) -> np.ndarray:
    """Encode rows: uint8, of their shape. A quotient that was rounded above the highest code becomes that code."""
    moves = step > 0
    place = np.where(moves[:, None], rows - zero[:, None], 0.0) / np.where(moves, step, 1.0)[:, None]
    whole = np.floor(place)
    codes: np.ndarray = np.minimum(whole + (words < (place - whole) * 2.0**32), top)
    return codes.astype(np.uint8)


def _words(shape: tuple[int, ...], names: np.ndarray, noise: Noise | None) -> np.ndarray:
    """Return the random word of every entry, a function of (name of the row, receiver, column): uint32."""
    if noise is None:
        return np.full(shape, NEAREST)
    blocks = -(-shape[1] // 4)
    words = philox(counters(np.arange(blocks), names[:, None], noise.receiver, noise.tag), noise.seed)
    return words.reshape(shape[0], 4 * blocks)[:, : shape[1]]


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Pack codes: code k of a row takes its bits k b .. k b + b - 1, the lowest first."""
    (m, f), together = codes.shape, 8 // bits
    packed = -(-f // together)
    padded = np.zeros((m, packed * together), np.uint8)
    padded[:, :f] = codes
    parts = padded.reshape(m, packed, together) << np.arange(0, 8, bits, dtype=np.uint8)
    joined: np.ndarray = np.bitwise_or.reduce(parts, axis=2)
    return joined
