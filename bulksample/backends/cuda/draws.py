"""Draw on a device: rows, SAMPLE(NORM(Q A), s), and whole layers, by the s smallest keys or the first s arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.selection import Selection
from ...rng import Draw, Law
from .device import WIDE, CudaDevice, DeviceCSR
from .tables import HashTables, Slots

KEYED = (Law.RACE, Law.LABOR)  # draws by key
FEW = 32  # picks of a row that a thread draws in registers, or a warp keeps in its lanes
HUB, HUBS, SLICES = 2048, 256, 32  # BS_HUB, BS_HUBS, BS_SLICES of csrc/hubs.h
LENGTH_OF_PICK = 8  # neighbors of a hub for each of more than 32 picks by key: `is_shared` of csrc/race_many.cu
LISTED_WORDS = 1 + 2 * HUBS  # of Hubs
RACE_WORDS = LISTED_WORDS + 1 + HUBS * (3 + SLICES + 128)  # of HubRaces of csrc/race_many.cu
_ALL = 2**62  # more than any row has
DRAWING_BLOCKS = 256  # rows of more picks drawn at the same time; each has scratch of its own
_NO_TABLE = (None, None, None)
ROW_WORDS = 8 + 4096 // 2  # of a row, 64 bits each: LayerRow of csrc/layer_race.cu


class FrontierRows(NamedTuple):
    """Rows of A to draw from, and their names in the counters."""

    vertices: Any  # int32, shape (R,)
    names: Any  # int32, shape (R,)
    parts: Any  # int64, shape (k + 1,): mini-batch j has the rows parts[j] .. parts[j + 1] - 1; or None: R is `size`
    minibatches: Any  # int64, shape (k,): ids
    size: int  # R, or more: parts[k] is R
    k: int

    @property
    def named(self) -> tuple[Any, ...]:
        """The rows and their names, as kernels that draw take them."""
        return self.vertices, self.names, self.parts, self.k, self.minibatches


class DrawnEdges(NamedTuple):
    """The edges that each row drew. `columns` and `weights` may be longer than the last pointer."""

    pointers: Any  # int64, shape (R + 1,)
    columns: Any  # int32
    weights: Any = None  # float32, or None: the mean
    ends: Any = None  # int64, shape (k + 1,): the edges before each mini-batch, if known
    slots: Slots | None = None  # of the columns in the table that numbers them, where they have been entered already
    rows: int | None = None  # R, where the frontier was longer and the draw has counted its rows


Read = Callable[[Any, Any], Sequence[int]]  # waits for some int64 numbers; is given the row pointers of the picks besides, to read some


def rows_of(device: CudaDevice, q: Selection) -> FrontierRows:
    """Copy the rows of a selection to the device."""
    vertices = device.put(q.vertices)
    names = vertices if q.own_names is None else device.put(q.own_names)
    return FrontierRows(vertices, names, device.put(q.pointers), device.put(q.minibatches), len(q.vertices), len(q))


def draw_rows(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, fanout: int, draw: Draw, read: Read | None = None) -> DrawnEdges:
    """Draw as `Backend.sample_rows` defines; waits once (by `read`) where rows take all neighbors, or more than 32 by key."""
    if fanout == -1:
        return copied(device, a, rows, read)[0]
    keyed, weighed, counts = draw.law in KEYED, draw.law is Law.WEIGHTED, None
    listed = hub_words(a.longest, fanout, draw.law)
    hubs = device.zeros(listed) if listed else None
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
        common = (*a[:3], *rows.named, draw.seed, draw.tag, drawn.pointers, drawn.columns, hubs)
        sums = None if hubs is None else device.empty(_slices(rows), np.uint64)
        device.start("draw_weighted", 32 * rows.size, *common, sums)
        if hubs is not None:
            device.start("pick_in_hubs", 32 * _slices(rows), *common, sums)
    elif keyed:
        _race(device, a, rows, fanout, draw, drawn, hubs, read)
    else:
        _uniform(device, a, rows, fanout, draw, drawn)
    return drawn


def _pointers(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, most: int, repeated: bool, counts: Any) -> tuple[Any, Any]:
    """Return the row pointers of the picks, and the picks before each mini-batch and the number of rows (None without mini-batches)."""
    pointers, ends = device.empty(rows.size + 1, np.int64), None if rows.parts is None else device.empty(rows.k + 2, np.int64)
    rows_drawn = (a.indptr, rows.vertices, rows.size, rows.parts, rows.k, most, int(repeated), counts)
    device.scan("draw_pointers", rows.size, 0, lambda states: (*rows_drawn, states, pointers, ends))
    return pointers, ends


def _uniform(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, s: int, draw: Draw, drawn: DrawnEdges) -> None:
    repeated = int(draw.law is Law.REPLACEMENT)
    common = (a.indptr, a.indices, *rows.named, s, repeated, draw.seed, draw.tag, drawn.pointers, drawn.columns)
    if s <= FEW:
        device.start("draw_8" if s <= 8 else "draw_16" if s <= 16 else "draw_32", rows.size, *common)
        return
    bits = (2 * s - 1).bit_length()
    blocks = min(rows.size, DRAWING_BLOCKS, device.launch.most_blocks("draw_many"))
    device.blocks("draw_many", blocks, *common, device.empty(blocks * set_words(s), np.uint32), bits)


def set_words(most: int) -> int:
    """Return the words of 32 bits in which a block draws at most `most` picks of a row into a set."""
    return (2 << (2 * max(most, 1) - 1).bit_length()) + max(most, 0)


def hub_words(longest: int, fanout: int, law: Law) -> int:
    """Return the words of the list of hubs of a draw; 0 if it needs none. `longest` is the longest row."""
    if longest <= HUB or fanout < 0 or law not in (*KEYED, Law.WEIGHTED):
        return 0
    if law is Law.WEIGHTED or fanout <= FEW:
        return LISTED_WORDS
    return RACE_WORDS if longest > LENGTH_OF_PICK * fanout else 0


def slice_bytes(longest: int, fanout: int, law: Law, rows: int) -> int:
    """Return the bytes that slices of hubs take while so many rows draw; `longest` is the longest row."""
    if not hub_words(longest, fanout, law) or (law is not Law.WEIGHTED and fanout > FEW):
        return 0
    return SLICES * min(rows, HUBS) * (8 if law is Law.WEIGHTED else 32 * 12)


def _slices(rows: FrontierRows) -> int:
    """Bound the slices of the hubs that are listed."""
    return SLICES * min(rows.size, HUBS)


def _race(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, s: int, draw: Draw, drawn: DrawnEdges, hubs: Any, read: Read | None
) -> None:  # fmt: skip
    shared = int(draw.law is Law.LABOR)
    if s <= FEW:
        common = (*a[:3], *rows.named, s, shared, draw.seed, draw.tag, drawn.pointers, drawn.columns, hubs)
        device.start("race_few", 32 * rows.size, *common)
        if hubs is not None:
            best = 32 * _slices(rows)
            device.start("race_hubs", best, *common, device.empty(best, np.float64), device.empty(best, np.int32))
        return
    pointers, _, entries, _ = extents(device, a, rows, read, drawn.pointers)
    keys, columns = device.empty(entries, np.uint64), device.empty(entries, np.int32)
    device.walk("keys_of_rows", entries, *a[:3], *rows.named, shared, draw.seed, draw.tag, s, pointers, keys, columns, hubs)
    blocks = rows.size if hubs is None else max(rows.size, _slices(rows))
    device.blocks("take_smallest", blocks, pointers, keys, columns, rows.parts, rows.k, s, drawn.pointers, drawn.columns, hubs)


def all_pointers(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> tuple[Any, Any]:
    """Return the row pointers of Q A, and the entries before each mini-batch and the number of rows (None without mini-batches)."""
    return _pointers(device, a, rows, _ALL, False, None)


class Extents(NamedTuple):
    """The entries of Q A."""

    pointers: Any  # int64, shape (R + 1,)
    ends: Any  # int64, shape (k + 1,): the entries before each mini-batch; None without mini-batches
    entries: int
    rows: int  # R


def extents(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, read: Read | None = None, picked: Any = None) -> Extents:
    """Count the entries of Q A; wait for their number and that of its rows. `picked` are the row pointers of the picks: all by default."""
    pointers, ends = all_pointers(device, a, rows)
    numbers = pointers[-1:] if ends is None else ends[-2:]
    counts = device.get(numbers).tolist() if read is None else read(numbers, pointers if picked is None else picked)
    if ends is None:
        return Extents(pointers, None, counts[0], rows.size)
    entries, count = counts
    return Extents(pointers[: count + 1], ends[: rows.k + 1], entries, count)


def copied(device: CudaDevice, a: DeviceCSR, rows: FrontierRows, read: Read | None = None) -> tuple[DrawnEdges, Any]:
    """Copy Q A: all entries of the rows, and their values."""
    pointers, ends, entries, _ = extents(device, a, rows, read)
    columns = device.empty(entries, np.int32)
    values = None if a.values is None else device.empty(entries, np.int64)
    device.walk("copy_rows", entries, *a[:3], rows.vertices, rows.size, rows.parts, rows.k, pointers, columns, values)
    return DrawnEdges(pointers, columns, None, ends), values


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
    columns = (layer.pointers, layer.columns, layer.weights, layer.sums, int(layer.squared), int(layer.once), k)
    rows = device.zeros(k * ROW_WORDS)
    keys, candidates = device.empty(entries, np.uint64), device.empty(entries, np.uint32)
    drawn = most if s < 0 else min(entries, k * s)
    ends, picks, inclusion = device.empty(k + 1, np.int64), device.empty(drawn, np.int32), device.empty(drawn, np.float64)
    work, made = (s, minibatches, draw.seed, draw.tag, rows, keys, candidates), (ends, picks, inclusion, *(table or _NO_TABLE))
    device.scan("race_layers", entries, 0, lambda states: (*columns, *work, states, *made))
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
    process = (ends, len(ends), s, minibatches, k, draw.seed, draw.tag, scratch, bits)
    device.blocks("first_arrivals", blocks, *process, picks, times, *chosen)
    return times


def arrival_bytes(k: int, s: int) -> int:
    """Bound the scratch bytes of `arriving`."""
    return 8 * k + 4 * min(k, DRAWING_BLOCKS) * (2 << _arrival_bits(s))


def _arrival_bits(s: int) -> int:
    """Return the binary logarithm of the slots of a table for s columns, and for all that arrive at once."""
    return (2 * (s + WIDE) - 1).bit_length()
