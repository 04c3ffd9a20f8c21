"""All hops of layer-wise sampling on a device: product, race, restriction and numbering, hop after hop.

It waits six times a hop for a size: products, sums, picks, neighbours, edges, and what is held then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...selection import Selection
from ..base import LayerPicks, LayerRace, LayerWeights
from .bulk import Bulk, DeviceHop
from .device import Device, Matrix
from .draws import Rows, smallest
from .numbers import Found, Held, Numbering, beyond, nothing_held
from .products import restrict, spgemm


class Picked(NamedTuple):
    """The vertices that each minibatch drew."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32
    inclusion: Any  # float64


def expand_layers(
    device: Device, a: Matrix, seeds: Selection, drawn: LayerRace | Sequence[LayerPicks], weights: LayerWeights, only_new: bool
) -> Bulk:
    """See `Backend.expand_layers`."""
    k, minibatches, row_sums = len(seeds), device.put(seeds.minibatches), device.constant(weights.row_sums)
    fanouts = drawn.fanouts if isinstance(drawn, LayerRace) else [-1] * len(drawn)
    numbering = Numbering(device, k, a.shape[1], len(seeds.vertices) + k * sum(max(s, 0) for s in fanouts))
    asked = Found(device.put(seeds.pointers), device.put(seeds.vertices))
    held, seed_rows, counts, _ = numbering.number(nothing_held(device, k), asked)
    frontier, hops, ends = held, [], [counts]
    for hop in range(len(fanouts)):
        with device.phase(f"layer {hop}"):
            if isinstance(drawn, LayerRace):
                picked = _race(device, drawn, hop, frontier, minibatches, a.shape)
            else:
                picked = Picked(*(device.put(part) for part in drawn[hop]))
            row_ends, found, own = _edges(device, a, frontier, minibatches, picked, weights, row_sums)
            of_minibatch = device.empty(k + 1, np.int64)
            device.start("pick_pointers", k + 1, row_ends, frontier.pointers, k + 1, of_minibatch)
            grown, local, counts, _ = numbering.number(held, Found(of_minibatch, found))
            hops.append(DeviceHop(frontier.pointers, row_ends, local, own))
            ends.append(counts)
            frontier = beyond(device, grown, held, k) if only_new else grown
            held = grown
    return Bulk(seed_rows, held, hops, ends)


def _race(device: Device, race: LayerRace, hop: int, frontier: Held, minibatches: Any, shape: tuple[int, int]) -> Picked:
    """SAMPLE(NORM(Q A), s) of one hop."""
    factors = None
    if race.factors is not None:
        factors = device.empty(frontier.size, np.int64)
        device.start("factors_of", frontier.size, device.constant(race.factors), frontier.vertices, frontier.size, factors)
    k = len(minibatches)
    q = Matrix(frontier.pointers, frontier.vertices, factors, (k, shape[0]))
    pointers, columns, sums = spgemm(device, q, device.matrix(race.entries))
    weights = device.empty(len(sums), np.float64)
    device.start("race_weights", len(sums), sums, len(sums), int(race.power == 2), weights)
    return Picked(*smallest(device, pointers, columns, weights, len(columns), race.fanouts[hop], minibatches, race.draws[hop], False))


def _edges(
    device: Device, a: Matrix, frontier: Held, minibatches: Any, picked: Picked, weights: LayerWeights, row_sums: Any
) -> tuple[Any, Any, Any]:
    """EXTRACT of one hop: row pointers, the vertices that were found, and the weight of each edge."""
    rows = Rows(frontier.vertices, frontier.vertices, frontier.pointers, minibatches, frontier.size, len(minibatches))
    ends, columns, entries = restrict(device, a, rows, picked.pointers, picked.columns, len(picked.columns))
    found, own, scratch = (device.empty(len(columns), dtype) for dtype in (np.int32, np.float32, np.float64))
    device.start(
        "weigh_edges", rows.size, rows.vertices, rows.size, rows.parts, rows.k, ends, columns, entries, a.values, row_sums, *picked,
        int(weights.debias), int(weights.renormalise), scratch, found, own,
    )  # fmt: skip
    return ends, found, own
