"""Draw rows on a device: SAMPLE(NORM(Q A), s)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...rng import Draw, Law
from ...selection import Selection
from .device import CudaDevice, DeviceCSR
from .tables import Slots

FEW = 32  # picks of a row that a thread draws in registers, or a warp keeps in its lanes
HUB, HUBS, SLICES = 2048, 256, 32  # BS_HUB, BS_HUBS, BS_SLICES of csrc/hubs.h
HUB_WORDS = 1 + 2 * HUBS  # of Hubs
_ALL = 2**62  # more than any row has
DRAWING_BLOCKS = 256  # rows of more picks drawn at the same time; each has scratch of its own


class FrontierRows(NamedTuple):
    """Rows of A to draw from, and their names in the counters."""

    vertices: Any  # int32, shape (R,)
    names: Any  # int32, shape (R,)
    parts: Any  # int64, shape (k + 1,): mini-batch j has the rows parts[j] .. parts[j + 1] - 1; or None: R is `size`
    minibatches: Any  # int64, shape (k,): ids
    size: int  # R, or more: parts[k] is R
    k: int


class DrawnEdges(NamedTuple):
    """The edges that each row drew. `columns` and `weights` may be longer than the last pointer."""

    pointers: Any  # int64, shape (R + 1,)
    columns: Any  # int32
    weights: Any = None  # float32, or None: the mean
    ends: Any = None  # int64, shape (k + 1,): the edges before each mini-batch, if known
    slots: Slots | None = None  # of the columns in the table that numbers them, where they have been entered already


def rows_of(device: CudaDevice, q: Selection) -> FrontierRows:
    """Copy the rows of a selection to the device."""
    vertices = device.put(q.vertices)
    names = vertices if q.own_names is None else device.put(q.own_names)
    return FrontierRows(vertices, names, device.put(q.pointers), device.put(q.minibatches), len(q.vertices), len(q))


def draw_rows(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, fanout: int, draw: Draw) -> DrawnEdges:
    """Draw as `Backend.sample_rows` defines. Waits for one number if a row takes all neighbors, or more than 32 by key."""
    if fanout == -1:
        return copied(device, a, rows)[0]
    keyed, weighed, counts = draw.law in (Law.RACE, Law.LABOR), draw.law is Law.WEIGHTED, None
    hubs = _hubs(device, a) if weighed or (keyed and fanout <= FEW) else None
    if weighed or (keyed and a.values is not None):
        counts = device.empty(rows.size, np.int32)
        counted = (a.indptr, a.values, rows.vertices, rows.parts, rows.k, fanout, counts)
        if weighed:
            device.start("count_weighted", rows.size, *counted, hubs)
        else:
            device.start("count_positive", 32 * rows.size, *counted)
    pointers, ends = _pointers(device, a, rows, fanout, draw.law is Law.REPLACEMENT, counts)
    drawn = DrawnEdges(pointers, device.empty(rows.size * fanout, np.int32), None, None if ends is None else ends[: rows.k + 1])
    if weighed:
        named = (rows.vertices, rows.names, rows.parts, rows.k, rows.minibatches, draw.seed, draw.tag)
        asked = (a.indptr, a.indices, a.values, *named, drawn.pointers, drawn.columns, hubs)
        sums = None if hubs is None else device.empty(_slices(rows), np.uint64)
        device.start("draw_weighted", 32 * rows.size, *asked, sums)
        if hubs is not None:
            device.start("pick_in_hubs", 32 * _slices(rows), *asked, sums)
    elif keyed:
        _race(device, a, rows, fanout, draw, drawn, hubs)
    else:
        _uniform(device, a, rows, fanout, draw, drawn)
    return drawn


def _pointers(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, most: int, repeated: bool, counts: Any) -> tuple[Any, Any]:
    """Return the row pointers of the picks, and the picks before each mini-batch and the number of rows (None without mini-batches)."""
    pointers, ends = device.empty(rows.size + 1, np.int64), None if rows.parts is None else device.empty(rows.k + 2, np.int64)
    asked = (a.indptr, rows.vertices, rows.size, rows.parts, rows.k, most, int(repeated), counts)
    device.scan("draw_pointers", rows.size, 0, lambda states: (*asked, states, pointers, ends))
    return pointers, ends


def _uniform(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, s: int, draw: Draw, drawn: DrawnEdges) -> None:
    repeated = int(draw.law is Law.REPLACEMENT)
    named = (rows.vertices, rows.names, rows.parts, rows.k, rows.minibatches, s, repeated, draw.seed, draw.tag)
    common = (a.indptr, a.indices, *named, drawn.pointers, drawn.columns)
    if s <= FEW:
        device.start("draw_8" if s <= 8 else "draw_16" if s <= 16 else "draw_32", rows.size, *common)
        return
    bits = (2 * s - 1).bit_length()
    blocks = min(rows.size, DRAWING_BLOCKS, device.launch.most_blocks("draw_many"))
    device.blocks("draw_many", blocks, *common, device.empty(blocks * ((2 << bits) + s), np.uint32), bits)


def _hubs(device: CudaDevice, a: DeviceCSR) -> Any:
    """Return an empty list of hubs, or None if the matrix has none."""
    return device.zeros(HUB_WORDS) if a.longest > HUB else None


def _slices(rows: FrontierRows) -> int:
    """Bound the slices of the hubs that are listed."""
    return SLICES * min(rows.size, HUBS)


def _race(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, s: int, draw: Draw, drawn: DrawnEdges, hubs: Any) -> None:
    shared = int(draw.law is Law.LABOR)
    if s <= FEW:
        named = (rows.vertices, rows.names, rows.parts, rows.k, rows.minibatches, s, shared, draw.seed, draw.tag)
        asked = (a.indptr, a.indices, a.values, *named, drawn.pointers, drawn.columns, hubs)
        device.start("race_few", 32 * rows.size, *asked)
        if hubs is not None:
            best = 32 * _slices(rows)
            device.start("race_hubs", best, *asked, device.empty(best, np.float64), device.empty(best, np.int32))
        return
    counters = (rows.vertices, rows.names, rows.parts, rows.k, rows.minibatches)
    pointers, _, entries, _ = extents(device, a, rows)
    keys, columns = device.empty(entries, np.uint64), device.empty(entries, np.int32)
    device.walk("keys_of_rows", entries, a.indptr, a.indices, a.values, *counters, shared, draw.seed, draw.tag, pointers, keys, columns)
    device.blocks("take_smallest", rows.size, pointers, keys, columns, rows.parts, rows.k, s, drawn.pointers, drawn.columns)


def all_pointers(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> tuple[Any, Any]:
    """Return the row pointers of Q A, and the entries before each mini-batch and the number of rows (None without mini-batches)."""
    return _pointers(device, a, rows, _ALL, False, None)


class Extents(NamedTuple):
    """The entries of Q A."""

    pointers: Any  # int64, shape (R + 1,)
    ends: Any  # int64, shape (k + 1,): the entries before each mini-batch; None without mini-batches
    entries: int
    rows: int  # R


def extents(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> Extents:
    """Count the entries of Q A, and wait for their number and that of its rows."""
    pointers, ends = all_pointers(device, a, rows)
    if ends is None:
        return Extents(pointers, None, int(device.get(pointers[-1:])[0]), rows.size)
    entries, count = device.get(ends[-2:]).tolist()
    return Extents(pointers[: count + 1], ends[: rows.k + 1], entries, count)


def copied(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> tuple[DrawnEdges, Any]:
    """Copy Q A: all entries of the rows, and their values."""
    pointers, ends, entries, _ = extents(device, a, rows)
    columns = device.empty(entries, np.int32)
    values = None if a.values is None else device.empty(entries, np.int64)
    asked = (a.indptr, a.indices, a.values, rows.vertices, rows.size, rows.parts, rows.k)
    device.walk("copy_rows", entries, *asked, pointers, columns, values)
    return DrawnEdges(pointers, columns, None, ends), values
