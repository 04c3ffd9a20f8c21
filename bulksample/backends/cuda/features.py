"""Dense rows on a device: gather them, convert their type, and sum them over a block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .device import CudaDevice

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # of csrc/features.cu; bfloat16 is kept as uint16
_HELD = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class FloatCSR(NamedTuple):
    """A sparse float32 matrix of D rows and S columns on the device."""

    indptr: Any  # int64, shape (D + 1,)
    indices: Any  # int32, shape (E,)
    weights: Any  # float32, shape (E,), or None: ones
    rows: int  # D
    columns: int  # S


class Cache(NamedTuple):
    """A cache of frequently read rows on the device; all rows may lie in host memory."""

    hot: Any  # rows of the same type and width
    slots: Any  # int32, shape (n,): the place of row v among them, or -1


NO_CACHE = Cache(None, None)


def gather(
    device: CudaDevice, features: Any, width: int, rows: Any, held: str = "float32", wanted: str = "float32", cache: Cache = NO_CACHE
) -> Any:
    """Gather H[rows], shape (len(rows), width), laid out flat.

    Parameters
    ----------
    features : array of n * width numbers
    rows : int32
    held, wanted : {"float32", "float16", "bfloat16"}
        Types before and after; rounding is to nearest, ties to even.
    cache : Cache
    """
    out, count = device.empty(len(rows) * width, _HELD[wanted]), len(rows)
    if held != wanted:
        lanes = _lanes(width)
        device.start("gather_converted", count * lanes, features, *cache, TYPES[held], rows, count, width, lanes, out, TYPES[wanted])
        return out
    bytes_ = width * np.dtype(_HELD[held]).itemsize
    word = next(size for size in (16, 4, 2) if bytes_ % size == 0)
    lanes = _lanes(bytes_ // word)
    device.start("gather_bytes", count * lanes, features, *cache, rows, count, bytes_, word, lanes, out)
    return out


def aggregate(device: CudaDevice, block: FloatCSR, x: Any, width: int, mean: bool) -> Any:
    """Compute A X, or with `mean` the mean over the entries of each row: float32, D * width numbers."""
    y = device.empty(block.rows * width, np.float32)
    work = 32 * block.rows * -(-width // 128)
    device.start("sum_rows", work, block.indptr, block.indices, block.weights, x, block.rows, width, int(mean), y)
    return y


def transposed(device: CudaDevice, block: FloatCSR, mean: bool) -> FloatCSR:
    """Compute A^T, entries of a row ascending; aggregating with it gives the gradient of `aggregate`."""
    entries = len(block.indices)
    keys, counts = device.empty(entries, np.uint64), device.full(block.columns, 0, np.int32)
    device.walk("entry_keys", entries, block.indptr, block.indices, block.rows, keys, counts)
    rows, weights = device.empty(entries, np.int32), device.empty(entries, np.float32)
    order = device.arrays.argsort(keys)
    device.start("take_entries", entries, order, keys, entries, block.weights, block.indptr, int(mean), rows, weights)
    return FloatCSR(device.pointers(counts), rows, weights, block.columns, block.rows)


def _lanes(units: int) -> int:
    """Choose how many lanes share a row: the power of two that covers it, at most a warp."""
    return min(32, 1 << max(units - 1, 0).bit_length())
