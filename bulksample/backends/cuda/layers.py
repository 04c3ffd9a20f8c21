"""Take mini-batches through layer-wise hops on a device: product, race, restriction and numbering, hop after hop.

A hop waits for two sizes, the neighbors of the frontier and the vertices held after it; for two more if it takes all. Sums over
neighbors have room for one per neighbor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...selection import Selection
from ..base import LayerPicks, LayerRace, LayerWeights
from .bulk import DeviceBulk, close, hop_after_hop, put_seeds
from .device import CudaDevice, DeviceCSR
from .draws import DrawnEdges, FrontierRows, extents, smallest
from .numbering import Numbering
from .products import restrict, spgemm
from .tables import HeldVertices


class DevicePicks(NamedTuple):
    """The vertices that each mini-batch drew."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32
    inclusion: Any  # float64


def expand_layers(
    device: CudaDevice, a: DeviceCSR, seeds: Selection, drawn: LayerRace | Sequence[LayerPicks], weights: LayerWeights, only_new: bool
) -> DeviceBulk:
    """Take k mini-batches through all hops; see `Backend.expand_layers`."""
    k, asked, row_sums = len(seeds), put_seeds(device, seeds), device.constant(weights.row_sums)
    given = [] if isinstance(drawn, LayerRace) else [int(np.diff(picks.pointers).max(initial=0)) for picks in drawn]
    fanouts = drawn.fanouts if isinstance(drawn, LayerRace) else given
    found = sum(max(s, 0) for s in fanouts)
    most = None if min(fanouts, default=0) < 0 else np.diff(seeds.pointers) + found
    numbering = Numbering(device, k, a.shape[1], len(seeds.vertices) + k * found, most)

    def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
        rows = FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, asked.minibatches, frontier.size, k)
        pointers, _, entries = extents(device, a, rows)
        counted = pointers, entries
        if isinstance(drawn, LayerRace):
            picked = _race(device, drawn, hop, rows, counted, a.shape)
        else:
            picked = DevicePicks(*(device.put(part) for part in drawn[hop]))
        return _edges(device, a, rows, counted, picked, fanouts[hop], weights, row_sums)

    return close(device, hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new))


def _race(
    device: CudaDevice, race: LayerRace, hop: int, rows: FrontierRows, counted: tuple[Any, int], shape: tuple[int, int]
) -> DevicePicks:
    """Draw SAMPLE(NORM(Q A), s) of one hop."""
    factors = None
    if race.factors is not None:
        factors = device.empty(rows.size, np.int64)
        device.start("factors_of", rows.size, device.constant(race.factors), rows.vertices, rows.size, factors)
    q = DeviceCSR(rows.parts, rows.vertices, factors, (rows.k, shape[0]))
    pointers, columns, sums = spgemm(device, q, device.matrix(race.entries), counted, loose=True)
    weights = race_weights(device, sums, race.power)
    return DevicePicks(
        *smallest(device, pointers, columns, weights, len(columns), race.fanouts[hop], rows.minibatches, race.draws[hop], False)
    )


def race_weights(device: CudaDevice, sums: Any, power: int) -> Any:
    """Compute NORM of layer-wise draws: the sums or, with power 2, their squares, as float64."""
    weights = device.empty(len(sums), np.float64)
    device.start("race_weights", len(sums), sums, len(sums), int(power == 2), weights)
    return weights


def _edges(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, counted: tuple[Any, int], picked: DevicePicks, most: int, weights: LayerWeights,
    row_sums: Any,
) -> DrawnEdges:  # fmt: skip
    """Extract the edges of one hop: the vertices found, and the weight of each edge."""
    ends, columns, entries = restrict(device, a, rows, picked.pointers, picked.columns, most, counted)
    return weighed_edges(
        device, rows, ends, columns, picked, weights.debias, weights.renormalise, entries=entries, values=a.values, row_sums=row_sums
    )


def weighed_edges(
    device: CudaDevice, rows: FrontierRows, ends: Any, columns: Any, picked: DevicePicks, debias: bool, renormalise: bool, *,
    entries: Any = None, values: Any = None, row_sums: Any = None, shares: Any = None,
) -> DrawnEdges:  # fmt: skip
    """Weigh the edges from the rows of a frontier to what its mini-batches drew; see `Adjacency.expand_layers`.

    Parameters
    ----------
    ends, columns : int64 of shape (R + 1,), int32
        The edges of each row, as places among the picks of its mini-batch.
    entries, values, row_sums
        The entry of A of each edge, the entries of A (None: ones), and the sum of each row of A.
    shares : float64, optional
        The entry of each edge over the sum of its row, in the place of these three.
    """
    found, own, scratch = (device.empty(len(columns), dtype) for dtype in (np.int32, np.float32, np.float64))
    device.start(
        "weigh_edges", rows.size, rows.vertices, rows.size, rows.parts, rows.k, ends, columns, entries, values, row_sums, shares, *picked,
        int(debias), int(renormalise), scratch, found, own,
    )  # fmt: skip
    return DrawnEdges(ends, found, own)
