"""Take mini-batches through layer-wise hops on a device: product, race, restriction, weights and numbering, hop after hop.

The host waits once, at the end, where arrays have room for the largest bulk that is possible (`predicted`); else a hop waits for the
number of rows of its frontier and of their neighbors. If a hop draws all neighbors, every hop waits for the vertices held as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.selection import Selection
from ...rng import Draw
from ...sparse import CSR
from ..layer_draws import LayerRace, LayerWeights, SharedDraws
from .bulk import BOUND_SHARE, DeviceBulk, DeviceSeeds, Division, OpenBulk, hop_after_hop, sampled
from .device import CudaDevice, DeviceCSR
from .draws import DevicePicks, DrawnEdges, FrontierRows, LayerEntries, all_pointers, arriving, extents, smallest
from .predicted import LayerBounds, layer_bounds, layer_bytes, zeroed_words
from .products import keep_met, sum_products
from .tables import LARGEST_TABLE, HashTables, Numbering, Slots, equal_tables, table_of


class _Arrays(NamedTuple):
    """The arrays on the device that all bulks of a graph and a law share."""

    indptr: Any
    indices: Any
    values: Any
    row_sums: Any
    summed: Any = None  # of a race: the entries that are summed, in the place of `values`
    factors: Any = None
    columns: Any = None  # of shared draws
    weights: Any = None
    ends: Any = None


class _Layers(NamedTuple):
    """Describe the hops of a bulk, apart from its arrays and its counters."""

    n: int
    fanouts: tuple[int, ...]  # of each hop, at most so many as the row has, if all draw from one; -1: all neighbors
    shared: tuple[int, ...] | None  # columns of the row in which each hop races, or 0 if they arrive; None: neighbors of the frontier
    squared: bool
    debias: bool
    renormalise: bool
    only_new: bool
    bounds: tuple[LayerBounds, ...]
    bounded: bool  # True if arrays have room for the bounds, and nothing waits for sizes


def expand_layers(
    device: CudaDevice, a: CSR, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool
) -> DeviceBulk:
    """Take k mini-batches through all hops; see `Backend.expand_layers`."""
    n, k, count, top = a.shape[1], len(seeds), len(seeds.vertices), a.top_degrees
    fanouts, shared = tuple(drawn.fanouts), None
    if isinstance(drawn, SharedDraws):
        width = len(drawn.columns)
        fanouts = tuple(width if s < 0 else min(s, width) for s in fanouts)
        shared = tuple(0 if arrive else width for arrive in drawn.by_arrivals)
    predicted = layer_bytes(n, top, k, count, fanouts, only_new, shared is None, device.free_bytes, device.numbering, shared)
    fits = n <= LARGEST_TABLE and predicted.peak <= device.free_bytes // BOUND_SHARE  # a table can hold the vertices
    bounded = fits and min(fanouts, default=0) >= 0
    bounds = tuple(layer_bounds(n, top, k, count, fanouts, only_new, shared))
    squared = isinstance(drawn, LayerRace) and drawn.power == 2
    how = _Layers(n, fanouts, shared, squared, weights.debias, weights.renormalise, only_new, bounds, bounded)
    arrays = _placed(device, a, drawn, weights)
    sizes = tuple(None if array is None else len(array) for array in arrays)  # launches have them as numbers
    shape = (how, sizes), seeds.pointers.tobytes(), tuple(draw.law for draw in drawn.draws)

    def enqueue(device: CudaDevice, arrays: Sequence[Any], inputs: DeviceSeeds, draws: Sequence[Draw]) -> OpenBulk:
        return _layer_wise(device, _Arrays(*arrays), inputs, seeds.pointers, how, draws)

    return sampled(device, shape if bounded and device.prepares else None, enqueue, arrays, DeviceSeeds.of(seeds), drawn.draws)


def _placed(device: CudaDevice, a: CSR, drawn: LayerRace | SharedDraws, weights: LayerWeights) -> _Arrays:
    """Place the arrays of a graph and a law on the device, once."""
    graph = (*device.matrix(a)[:3], device.constant(weights.row_sums))
    if isinstance(drawn, SharedDraws):
        columns, weighed, ends = (device.constant(array) for array in (drawn.columns, drawn.weights, drawn.ends))
        return _Arrays(*graph, columns=columns, weights=weighed, ends=ends)
    factors = None if drawn.factors is None else device.constant(drawn.factors)
    return _Arrays(*graph, summed=device.matrix(drawn.entries).values, factors=factors)


def _layer_wise(
    device: CudaDevice, arrays: _Arrays, inputs: DeviceSeeds, seeds: np.ndarray, how: _Layers, draws: Sequence[Draw]
) -> OpenBulk:
    """Enqueue all hops; `seeds` are the pointers of the seeds, on the host."""
    k, count = len(seeds) - 1, len(how.fanouts)
    drawn_at_most = sum(max(s, 0) for s in how.fanouts)
    most = None if min(how.fanouts, default=0) < 0 else np.diff(seeds) + drawn_at_most
    row = device.put(np.array([0, len(arrays.columns)])) if how.shared and any(how.shared) else None
    with device.zeroed_together(zeroed_words(k, int(seeds[-1]), how.bounds)):
        numbering = Numbering(device, np.full(k, how.n), int(seeds[-1]) + k * drawn_at_most, most)
        tables = equal_tables(device, k, min(max(how.fanouts, default=0), how.n), count) if how.bounded else [None] * count
        hops = [_LayerHop(device, arrays, how, hop, row, tables[hop], numbering.standing) for hop in range(count)]

        def draw(rows: FrontierRows, hop: int) -> DrawnEdges:
            return hops[hop].draw(rows._replace(size=min(rows.size, how.bounds[hop].rows)), draws[hop])

        return hop_after_hop(device, numbering, inputs, draw, count, Division(seeds, how.only_new), most is not None)


class _LayerHop(NamedTuple):
    """The launches of one hop in front of numbering."""

    device: CudaDevice
    arrays: _Arrays
    how: _Layers
    hop: int
    row: Any  # int64: the pointers of the row that all mini-batches share
    table: HashTables | None  # for the picks; made when their number is known, if there is none
    numbers: HashTables | None  # for the vertices found, if all hops share them

    def draw(self, rows: FrontierRows, draw: Draw) -> DrawnEdges:
        """Draw and weigh the edges of a hop."""
        pointers, entries, bound, s = None, 0, self.how.bounds[self.hop], self.how.fanouts[self.hop]
        a = DeviceCSR(self.arrays.indptr, self.arrays.indices, self.arrays.values, (self.how.n, self.how.n))
        if self.how.bounded:
            entries, kept = bound.entries, bound.edges
        else:
            pointers, _, entries, size = extents(self.device, a, rows)
            rows = rows._replace(vertices=rows.vertices[:size], names=rows.vertices[:size], size=size)
            kept = entries if s < 0 else min(entries, size * s)
        if self.how.shared is None:
            pointers, picked = self._race(a, rows, entries, draw)
        else:
            pointers = all_pointers(self.device, a, rows)[0] if pointers is None else pointers
            picked = self._from_row(rows.minibatches, draw)
        table, numbers = self.table, picked.pointers
        if table is None:
            table, numbers = table_of(self.device, rows.k, *picked[:2], self.how.n), None
        met = keep_met(self.device, a, rows, pointers, entries, kept, table, numbers)  # Q_R A Q_C
        return weighed_edges(
            self.device, rows, met.pointers, met.columns, picked, self.how.debias, self.how.renormalise, ends=met.ends,
            entries=met.entries, values=self.arrays.values, row_sums=self.arrays.row_sums, numbers=self.numbers,
        )  # fmt: skip

    def _race(self, a: DeviceCSR, rows: FrontierRows, entries: int, draw: Draw) -> tuple[Any, DevicePicks]:
        """Draw SAMPLE(NORM(Q A), s); returns the pointers of Q A as well."""
        q = DeviceCSR(rows.parts, rows.vertices, None, (rows.k, self.how.n))
        sums = sum_products(self.device, q, a._replace(values=self.arrays.summed), entries, self.arrays.factors)
        layer = LayerEntries(sums.starts, sums.columns, None, sums.sums, self.how.squared)
        return sums.pointers, smallest(self.device, layer, self.how.fanouts[self.hop], rows.minibatches, draw, sums.most, self.table)

    def _from_row(self, minibatches: Any, draw: Draw) -> DevicePicks:
        """Draw from the row that all mini-batches share."""
        s, (columns, weights, ends) = self.how.fanouts[self.hop], self.arrays[-3:]
        assert self.how.shared is not None
        if not len(columns):  # no column has weight, so nothing is drawn
            pointers = self.device.zeros(len(minibatches) + 1).view(np.int64)
            return DevicePicks(pointers, self.device.empty(0, np.int32), self.device.empty(0, np.float64))
        if not self.how.shared[self.hop]:
            return arriving(self.device, columns, ends, s, minibatches, draw, self.table)
        layer = LayerEntries(self.row, columns, weights, once=True)
        return smallest(self.device, layer, s, minibatches, draw, len(minibatches) * len(columns), self.table)


def weighed_edges(
    device: CudaDevice, rows: FrontierRows, pointers: Any, columns: Any, picked: DevicePicks, debias: bool, renormalise: bool, *,
    ends: Any = None, entries: Any = None, values: Any = None, row_sums: Any = None, shares: Any = None,
    numbers: HashTables | None = None,
) -> DrawnEdges:  # fmt: skip
    """Weigh the edges from the rows of a frontier to what its mini-batches drew; see `Adjacency.expand_layers`.

    The edges of each row, by `pointers` (int64, shape (R + 1,)) and `columns` (int32), are places among the picks of its mini-batch; `ends`
    are the edges before each mini-batch. `entries` is the entry of A of each edge, with the `values` of A (None: ones) and the sum of each
    of its rows; or `shares` (float64) holds the entry of each edge over the sum of its row. What was found is entered in the tables
    `numbers` by the same launch.
    """
    sources, weights, scratch = (device.empty(len(columns), dtype) for dtype in (np.int32, np.float32, np.float64))
    slots = None if numbers is None or numbers.vertices is None else device.empty(len(columns), np.int64)
    device.start(
        "weigh_edges", rows.size, rows.vertices, rows.parts, rows.k, pointers, columns, entries, values, row_sums, shares,
        *picked, int(debias), int(renormalise), scratch, sources, weights, ends, *(numbers or (None, None, None)), slots,
    )  # fmt: skip
    return DrawnEdges(pointers, sources, weights, ends, None if numbers is None else Slots(numbers.numbers, numbers.starts, slots))
