"""Take mini-batches through layer-wise hops on a device: product, race, restriction and numbering, hop after hop.

A hop waits once, for the number of rows of its frontier and of their neighbors. The vertices held after it are bounded by the picks; if a
hop takes all neighbors they are not, and every hop waits for them as well. Sums over neighbors, and the edges of a hop that takes all, have
room for one per neighbor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...selection import Selection
from ..base import LayerPicks, LayerRace, LayerWeights
from .bulk import DeviceBulk, close, hop_after_hop, put_seeds
from .device import CudaDevice, DeviceCSR
from .draws import DrawnEdges, FrontierRows, extents
from .layer_race import DevicePicks, LayerEntries, smallest
from .numbering import Numbering
from .predicted_layers import zeroed_words
from .products import restrict, sum_products
from .tables import HeldVertices


def expand_layers(
    device: CudaDevice, a: DeviceCSR, seeds: Selection, drawn: LayerRace | Sequence[LayerPicks], weights: LayerWeights, only_new: bool
) -> DeviceBulk:
    """Take k mini-batches through all hops; see `Backend.expand_layers`."""
    k, asked, row_sums = len(seeds), put_seeds(device, seeds), device.constant(weights.row_sums)
    given = [] if isinstance(drawn, LayerRace) else [int(np.diff(picks.pointers).max(initial=0)) for picks in drawn]
    fanouts = drawn.fanouts if isinstance(drawn, LayerRace) else given
    found = sum(max(s, 0) for s in fanouts)
    most = None if min(fanouts, default=0) < 0 else np.diff(seeds.pointers) + found
    numbering = Numbering(device, np.full(k, a.shape[1]), len(seeds.vertices) + k * found, most)

    def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
        room = FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, asked.minibatches, frontier.size, k)
        pointers, _, entries, count = extents(device, a, room)
        vertices, counted = frontier.vertices[:count], (pointers, entries)
        rows = room._replace(vertices=vertices, names=vertices, size=count)
        if isinstance(drawn, LayerRace):
            picked = _race(device, drawn, hop, rows, counted, a.shape)
        else:
            picked = DevicePicks(*(device.put(part) for part in drawn[hop]))
        return _edges(device, a, rows, counted, picked, fanouts[hop], weights, row_sums)

    with device.zeroed_together(zeroed_words(k, len(fanouts), isinstance(drawn, LayerRace))):
        return close(device, hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new, most is not None))


def _race(
    device: CudaDevice, race: LayerRace, hop: int, rows: FrontierRows, counted: tuple[Any, int], shape: tuple[int, int]
) -> DevicePicks:
    """Draw SAMPLE(NORM(Q A), s) of one hop."""
    q, factors = DeviceCSR(rows.parts, rows.vertices, None, (rows.k, shape[0])), race.factors
    there = None if factors is None else device.constant(factors)
    starts, columns, sums, most = sum_products(device, q, device.matrix(race.entries), counted, there)
    layer = LayerEntries(starts, columns, None, sums, race.power == 2)
    return smallest(device, layer, race.fanouts[hop], rows.minibatches, race.draws[hop], most)


def _edges(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, counted: tuple[Any, int], picked: DevicePicks, most: int, weights: LayerWeights,
    row_sums: Any,
) -> DrawnEdges:  # fmt: skip
    """Extract the edges of one hop: the vertices found, and the weight of each edge."""
    pointers, columns, entries, ends = restrict(device, a, rows, picked.pointers, picked.columns, most, counted)
    return weighed_edges(
        device, rows, pointers, columns, picked, weights.debias, weights.renormalise, ends=ends, entries=entries, values=a.values,
        row_sums=row_sums,
    )  # fmt: skip


def weighed_edges(
    device: CudaDevice, rows: FrontierRows, pointers: Any, columns: Any, picked: DevicePicks, debias: bool, renormalise: bool, *,
    ends: Any = None, entries: Any = None, values: Any = None, row_sums: Any = None, shares: Any = None,
) -> DrawnEdges:  # fmt: skip
    """Weigh the edges from the rows of a frontier to what its mini-batches drew; see `Adjacency.expand_layers`.

    Parameters
    ----------
    pointers, columns : int64 of shape (R + 1,), int32
        The edges of each row, as places among the picks of its mini-batch.
    ends : int64, shape (k + 1,), optional
        The edges before each mini-batch.
    entries, values, row_sums
        The entry of A of each edge, the entries of A (None: ones), and the sum of each row of A.
    shares : float64, optional
        The entry of each edge over the sum of its row, in the place of these three.
    """
    found, own, scratch = (device.empty(len(columns), dtype) for dtype in (np.int32, np.float32, np.float64))
    device.start(
        "weigh_edges", rows.size, rows.vertices, rows.size, rows.parts, rows.k, pointers, columns, entries, values, row_sums, shares,
        *picked, int(debias), int(renormalise), scratch, found, own,
    )  # fmt: skip
    return DrawnEdges(pointers, found, own, ends)
