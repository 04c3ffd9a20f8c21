"""Take k mini-batches through all their hops on a device: by bounds in one call, or hop by hop; they leave it when they are done."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.selection import Selection
from ...rng import Draw
from ..hops import Hop
from .device import CudaDevice, DeviceCSR
from .draws import FEW, HUB, KEYED, DrawnEdges, FrontierRows, draw_rows, hub_words
from .predicted import bulk_bytes, most_found, most_held, state_words
from .recording import Later, recorded
from .tables import FoundVertices, HeldVertices, Numbering, beyond


class DeviceHop(NamedTuple):
    """The edges that the rows of a frontier drew in one hop, in local numbers, on the device; before `ends` are known, perhaps more."""

    frontier: Any  # int64, shape (k + 1,): rows of each mini-batch
    pointers: Any  # int64, shape (R + 1,)
    columns: Any  # int32, shape (E,)
    weights: Any = None  # float32, shape (E,), or None: the mean
    ends: Any = None  # int64, shape (k + 1,), on the host: edges of each mini-batch


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
    none: HeldVertices  # no vertex in any mini-batch


BOUND_SHARE = 8  # a bulk is sized by its bounds if these take at most one part in so many of the free memory


DrawHop = Callable[[HeldVertices, int], DrawnEdges]  # draws hop h for the rows of a frontier


def put_seeds(device: CudaDevice, seeds: Selection) -> DeviceSeeds:
    """Copy the seeds of k mini-batches to the device."""
    pointers, zeros = np.asarray(seeds.pointers, np.int64), np.zeros(len(seeds) + 1, np.int64)
    asked, minibatches, none, vertices = device.put_together(pointers, np.asarray(seeds.minibatches, np.int64), zeros, seeds.vertices)
    return DeviceSeeds(FoundVertices(asked, vertices), minibatches, HeldVertices(none, device.empty(0, np.int32), 0))


def hop_after_hop(
    device: CudaDevice, numbering: Numbering, asked: DeviceSeeds, draw: DrawHop, count: int, only_new: bool, bounded: bool = False
) -> OpenBulk:
    """Take a bulk through `count` hops: draw for the frontier, number the vertices found, make them the next frontier.

    Waits before each hop for the size of its frontier, unless `bounded` is set: then `draw` is given frontiers that are longer than their
    last pointer, and may say how many rows they have. Besides, waits whenever `draw` does. `close` waits for the counts.
    """
    k = len(asked.minibatches)
    counts = device.empty((count + 1) * (2 * k + 2), np.int64)
    ends = [counts[at : at + 2 * k + 2] for at in range(0, len(counts), 2 * k + 2)]
    with device.phase("seeds"):
        held, seed_rows = numbering.number(asked.none, asked.seeds, ends[0])
        held = held if bounded or not count else _settled(device, held)
    frontier, hops, before = held, list[DeviceHop](), 0
    for hop in range(count):
        with device.phase(f"hop {hop}"):
            drawn = draw(frontier, hop)
            if drawn.rows is not None:
                before = drawn.rows + (before if only_new else 0)
                held = HeldVertices(held.pointers, held.vertices[:before], before)
            found = drawn.ends  # the edges before each mini-batch
            if found is None:
                found = device.empty(k + 1, np.int64)
                device.start("pick_pointers", k + 1, drawn.pointers, frontier.pointers, k + 1, found)
            grown, local = numbering.number(held, FoundVertices(found, drawn.columns, None, drawn.slots), ends[hop + 1])
            hops.append(DeviceHop(frontier.pointers, drawn.pointers, local, drawn.weights))
            if hop + 1 < count:
                grown = grown if bounded else _settled(device, grown)
                room = min(grown.size, len(drawn.columns)) if bounded else grown.size - held.size
                frontier = beyond(device, grown, held, k, room) if only_new else grown
            held = grown
    return OpenBulk(counts, seed_rows, held, hops, k, only_new)


class OpenBulk(NamedTuple):
    """A bulk before its counts are known on the host."""

    counts: Any  # int64: for each step k + 1 pointers of the vertices held, and k + 1 of those found
    seed_rows: Any
    held: HeldVertices
    hops: list[DeviceHop]
    k: int
    only_new: bool


def _settled(device: CudaDevice, held: HeldVertices) -> HeldVertices:
    """Wait for the number of vertices held."""
    size = int(device.get(held.pointers[-1:])[0])
    return HeldVertices(held.pointers, held.vertices[:size], size)


def close(device: CudaDevice, bulk: OpenBulk, array_of: Callable[[Any], Any] = lambda array: array) -> DeviceBulk:
    """Wait for the counts of a bulk, and cut its arrays to their lengths. `array_of` is that of `Recording.enqueue`."""
    return cut_to(bulk, device.get(array_of(bulk.counts)), array_of)


def cut_to(bulk: OpenBulk, found: np.ndarray, array_of: Callable[[Any], Any] = lambda array: array) -> DeviceBulk:
    """Cut the arrays of a bulk to the lengths that its counts, now on the host, say."""
    counts = found.reshape(-1, 2, bulk.k + 1)
    ends, hops = list(counts[:, 0]), list[DeviceHop]()
    for step, hop in enumerate(bulk.hops):
        rows = int(ends[step][-1] - (ends[step - 1][-1] if bulk.only_new and step else 0))
        edges = counts[step + 1, 1]
        total = int(edges[-1])
        weights = None if hop.weights is None else array_of(hop.weights[:total])
        frontier, pointers, columns = (array_of(array) for array in (hop.frontier, hop.pointers[: rows + 1], hop.columns[:total]))
        hops.append(DeviceHop(frontier, pointers, columns, weights, edges))
    size = int(ends[-1][-1])
    held = HeldVertices(array_of(bulk.held.pointers), array_of(bulk.held.vertices[:size]), size)
    return DeviceBulk(array_of(bulk.seed_rows), held, hops, ends)


Enqueue = Callable[[CudaDevice, Sequence[Any], DeviceSeeds, Sequence[Draw]], OpenBulk]  # enqueues all hops; waits for nothing


def prepared(
    device: CudaDevice, shape: Hashable, enqueue: Enqueue, arrays: Sequence[Any], seeds: Selection, draws: Sequence[Draw]
) -> DeviceBulk:
    """Enqueue all hops in one call, as they were recorded for a bulk of the same shape; the newest `RECORDINGS` are kept.

    `shape` is what the launches depend on, beside the numbers of seeds; `arrays` are those of the graph. The bulk of `enqueue` must depend
    on seeds, counters and the memory of arrays by addresses and numbers alone.
    """

    def run(recorder: CudaDevice, outside: list[Any]) -> tuple[tuple[DeviceSeeds, OpenBulk], list[Any]]:
        # seeds and tags of the counters come later
        later = [Draw(draw.law, *Later.of_draw(h)) for h, draw in enumerate(draws)]
        asked = put_seeds(recorder, seeds)
        bulk = enqueue(recorder, outside, asked, later)
        of_hops = [part for hop in bulk.hops for part in hop if part is not None]
        return (asked, bulk), [bulk.counts, bulk.seed_rows, bulk.held.vertices, *of_hops]

    key = (shape, seeds.pointers.tobytes(), tuple(draw.law for draw in draws), device.free_bytes, device.numbering)
    recording = recorded(device, key, run, arrays)
    asked, bulk = recording.result
    inputs = [(asked.minibatches, np.asarray(seeds.minibatches, np.int64)), (asked.seeds.columns, seeds.vertices)]
    with device.phase("enqueue"):
        array_of = recording.enqueue(device, arrays, inputs, [number for draw in draws for number in (draw.seed, draw.tag)])
    return close(device, bulk, array_of)


def expand(device: CudaDevice, a: DeviceCSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
    """Take k mini-batches through node-wise hops; see `Backend.expand`.

    Waits once, at the end, if the largest bulk that the fanouts allow takes at most an eighth of the free memory; otherwise once for the
    seeds and once a hop. Waits once more for each hop that takes all neighbors, or more than 32 by key.
    """
    k, n, entries, count = len(seeds), a.shape[1], len(a.indices), len(seeds.vertices)
    laws = [draw.law for draw in draws]
    bytes_ = bulk_bytes(n, entries, k, count, fanouts, only_new, device.free_bytes, device.numbering, a.longest, laws)
    bounded = bytes_.peak <= device.free_bytes // BOUND_SHARE
    waits = any(s < 0 or (s > FEW and draw.law in KEYED) for s, draw in zip(fanouts, draws, strict=True))
    if bounded and device.prepares and not waits:
        shape = (a.shape, entries, a.values is None, a.longest > HUB, tuple(fanouts), only_new)

        def enqueue(recorder: CudaDevice, arrays: Sequence[Any], asked: DeviceSeeds, later: Sequence[Draw]) -> OpenBulk:
            there = DeviceCSR(arrays[0], arrays[1], arrays[2], a.shape, a.longest)
            return _node_wise(recorder, there, asked, seeds.pointers, fanouts, later, only_new, True)

        return prepared(device, shape, enqueue, a[:3], seeds, draws)
    return close(device, _node_wise(device, a, put_seeds(device, seeds), seeds.pointers, fanouts, draws, only_new, bounded))


def _node_wise(
    device: CudaDevice, a: DeviceCSR, asked: DeviceSeeds, seeds: np.ndarray, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
    bounded: bool,
) -> OpenBulk:  # fmt: skip
    """Enqueue all hops; `seeds` are the pointers of the seeds, on the host."""
    k, n = len(seeds) - 1, a.shape[1]
    most = most_held(np.diff(seeds), fanouts, n, only_new) if bounded else None

    def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
        rows = FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, asked.minibatches, frontier.size, k)
        return draw_rows(device, a, rows, fanouts[hop], draws[hop])

    words = state_words(n, k, int(seeds[-1]), fanouts, only_new) if most is not None else 0
    words += sum(hub_words(a.longest, s, draw.law) for s, draw in zip(fanouts, draws, strict=True))
    with device.zeroed_together(words):
        numbering = Numbering(device, np.full(k, n), most_found(int(seeds[-1]), fanouts, len(a.indices), k), most)
        return hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new, bounded)
