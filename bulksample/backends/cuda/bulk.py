"""Take k mini-batches through all their hops on a device; they leave it only when they are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...rng import Draw
from ...selection import Selection
from ..hops import Hop
from .device import CudaDevice, DeviceCSR
from .draws import DrawnEdges, FrontierRows, draw_rows
from .numbering import Numbering, beyond, nothing_held
from .tables import FoundVertices, HeldVertices


class DeviceHop(NamedTuple):
    """The edges that the rows of a frontier drew in one hop, in local numbers, on the device."""

    frontier: Any  # int64, shape (k + 1,): rows of each mini-batch
    pointers: Any  # int64, shape (R + 1,)
    columns: Any  # int32, shape (E,)
    ends: np.ndarray  # int64, shape (k + 1,), on the host: edges of each mini-batch
    weights: Any = None  # float32, shape (E,), or None: the mean


class DeviceBulk(NamedTuple):
    """k mini-batches on the device."""

    seed_rows: Any  # int32, shape (seeds,)
    held: HeldVertices
    hops: list[DeviceHop]
    ends: list[np.ndarray]  # pointers of the vertices held before the first hop and after each, on the host

    def to_host(self, device: CudaDevice) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[np.ndarray, Hop]], list[np.ndarray]]:
        """Copy to the host; returns arguments of `hops.cut`."""
        with device.phase("copy to host"):
            hops = []
            for hop in self.hops:
                weights = None if hop.weights is None else device.get(hop.weights)
                hops.append((device.get(hop.frontier), Hop(device.get(hop.pointers), device.get(hop.columns), weights)))
            return self.ends[-1], device.get(self.held.vertices), device.get(self.seed_rows), hops, [np.diff(ends) for ends in self.ends]


class DeviceSeeds(NamedTuple):
    """The seeds of k mini-batches, on the device."""

    seeds: FoundVertices
    minibatches: Any  # int64, shape (k,): see `draws.FrontierRows`


DrawHop = Callable[[HeldVertices, int], DrawnEdges]  # draws hop h for the rows of a frontier


def put_seeds(device: CudaDevice, seeds: Selection) -> DeviceSeeds:
    """Copy the seeds of k mini-batches to the device."""
    return DeviceSeeds(FoundVertices(device.put(seeds.pointers), device.put(seeds.vertices)), device.put(seeds.minibatches))


def expand(device: CudaDevice, a: DeviceCSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
    """Take k mini-batches through node-wise hops; see `Backend.expand`.

    Waits once a hop for its counts, and once more if a hop takes all neighbors.
    """
    k, asked = len(seeds), put_seeds(device, seeds)
    numbering = Numbering(device, k, a.shape[1], most_found(len(asked.seeds.columns), fanouts, len(a.indices), k))

    def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
        rows = FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, asked.minibatches, frontier.size, k)
        return draw_rows(device, a, rows, fanouts[hop], draws[hop])

    return hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new)


def hop_after_hop(device: CudaDevice, numbering: Numbering, asked: DeviceSeeds, draw: DrawHop, count: int, only_new: bool) -> DeviceBulk:
    """Take a bulk through `count` hops: draw for the frontier, number the vertices found, make them the next frontier.

    Waits once a hop, and whenever `draw` does.
    """
    k = len(asked.minibatches)
    with device.phase("seeds"):
        held, seed_rows, counts, _ = numbering.number(nothing_held(device, k), asked.seeds)
    frontier, hops, ends = held, list[DeviceHop](), [counts]
    for hop in range(count):
        with device.phase(f"hop {hop}"):
            drawn = draw(frontier, hop)
            of_minibatch = device.empty(k + 1, np.int64)
            device.start("pick_pointers", k + 1, drawn.pointers, frontier.pointers, k + 1, of_minibatch)
            grown, local, counts, edges = numbering.number(held, FoundVertices(of_minibatch, drawn.columns))
            weights = None if drawn.weights is None else drawn.weights[: edges[k]]
            hops.append(DeviceHop(frontier.pointers, drawn.pointers, local[: edges[k]], edges, weights))
            ends.append(counts)
            frontier = beyond(device, grown, held, k) if only_new else grown
            held = grown
    return DeviceBulk(seed_rows, held, hops, ends)


def most_found(seeds: int, fanouts: Sequence[int], entries: int, k: int) -> int:
    """Bound the number of vertices found, repetitions included."""
    found = rows = seeds
    for fanout in fanouts:
        drawn = k * entries if fanout < 0 else min(rows * fanout, k * entries) if entries else 0
        found, rows = found + drawn, rows + drawn
    return found
