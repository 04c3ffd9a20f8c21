"""Draw whole layers on a device: the s smallest keys of rows of weighted columns, and the first s arrivals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...rng import Draw
from .device import CudaDevice
from .draws import DRAWING_BLOCKS
from .kernels import WIDE
from .tables import HashTables

_NO_TABLE = (None, None, None)
ROW_WORDS = 8 + 4096 // 2  # of a row, 64 bits each: LayerRow of csrc/layer_race.cu


class LayerEntries(NamedTuple):
    """Weighted columns of k rows, one for each mini-batch; or of one row that all k share (`once`)."""

    pointers: Any  # int64, shape (k + 1,) or (2,)
    columns: Any  # int32, ascending in a row; or the slots of `products.SumTables`
    weights: Any  # float64; or None: the sums below, or their squares
    sums: Any = None
    squared: bool = False
    once: bool = False


class DevicePicks(NamedTuple):
    """The vertices that each mini-batch drew, in the order of the entries. Arrays may be longer than the last pointer."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32
    inclusion: Any  # float64


def smallest(
    device: CudaDevice, layer: LayerEntries, s: int, minibatches: Any, draw: Draw, most: int, table: HashTables | None = None
) -> DevicePicks:
    """Draw as `Backend.smallest_keys` defines, by one launch. Waits for nothing.

    At most `most` columns can be drawn if `s` is -1. `table` takes the picks and their places, see `products.keep_met`.
    """
    k = len(minibatches)
    entries = len(layer.columns) * (k if layer.once else 1)
    asked = (layer.pointers, layer.columns, layer.weights, layer.sums, int(layer.squared), int(layer.once), k)
    rows = device.zeros(k * ROW_WORDS)
    keys, candidates = device.empty(entries, np.uint64), device.empty(entries, np.uint32)
    drawn = most if s < 0 else min(entries, k * s)
    ends, picks, inclusion = device.empty(k + 1, np.int64), device.empty(drawn, np.int32), device.empty(drawn, np.float64)
    work, made = (s, minibatches, draw.seed, draw.tag, rows, keys, candidates), (ends, picks, inclusion, *(table or _NO_TABLE))
    device.scan("race_layers", entries, 0, lambda states: (*asked, *work, states, *made))
    return DevicePicks(ends, picks, inclusion)


def first_arrivals(device: CudaDevice, ends: Any, s: int, minibatches: Any, draw: Draw) -> tuple[Any, Any]:
    """Draw as `Backend.first_arrivals` defines: uint32 of k s positions, and k times."""
    picks = device.empty(len(minibatches) * s, np.uint32)
    return picks, _arrive(device, ends, s, minibatches, draw, picks, None, None, None, *_NO_TABLE)


def arriving(
    device: CudaDevice, columns: Any, ends: Any, s: int, minibatches: Any, draw: Draw, table: HashTables | None = None
) -> DevicePicks:
    """Draw the columns that arrive first, by one launch; `table` is that of `smallest`. Waits for nothing."""
    k = len(minibatches)
    pointers, picks, inclusion = device.empty(k + 1, np.int64), device.empty(k * s, np.int32), device.empty(k * s, np.float64)
    _arrive(device, ends, s, minibatches, draw, picks, columns, inclusion, pointers, *(table or _NO_TABLE))
    return DevicePicks(pointers, picks, inclusion)


def _arrive(device: CudaDevice, ends: Any, s: int, minibatches: Any, draw: Draw, picks: Any, *chosen: Any) -> Any:
    """Launch the kernel; return the time of the first arrival that each mini-batch leaves out."""
    k, bits = len(minibatches), _arrival_bits(s)
    blocks = max(1, min(k, DRAWING_BLOCKS, device.launch.most_blocks("first_arrivals")))
    times, scratch = device.empty(k, np.float64), device.empty(blocks * (2 << bits), np.uint32)
    asked = (ends, len(ends), s, minibatches, k, draw.seed, draw.tag, scratch, bits)
    device.blocks("first_arrivals", blocks, *asked, picks, times, *chosen)
    return times


def arrival_bytes(k: int, s: int) -> int:
    """Bound the scratch bytes of `arriving`."""
    return 8 * k + 4 * min(k, DRAWING_BLOCKS) * (2 << _arrival_bits(s))


def _arrival_bits(s: int) -> int:
    """Return the binary logarithm of the slots of a table for s columns, and for all that arrive at once."""
    return (2 * (s + WIDE) - 1).bit_length()
