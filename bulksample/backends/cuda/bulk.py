"""Take k mini-batches through all their hops on a device: by bounds in one call, or hop by hop; they leave it when they are done."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from ...graph.selection import Selection
from ...rng import Draw
from ..hops import Hop, joined
from ..relational import HeteroExpansion
from .device import CudaDevice, DeviceCSR
from .draws import FEW, HUB, KEYED, DrawnEdges, FrontierRows, draw_rows, hub_words
from .predicted import bulk_bytes, most_found, most_held, state_words
from .recording import Later, recorded
from .tables import FoundVertices, HeldVertices, Numbering, beyond

BOUND_SHARE = 8  # a bulk is sized by its bounds if these take at most one part in so many of the free memory


class DeviceHop(NamedTuple):
    """The edges that the rows of a frontier drew in one hop, in local numbers, on the device; before sizes are known, perhaps more.

    The rows of a mini-batch and a relation are a segment: k R in all, mini-batch by mini-batch, relations in the order of the bulk.
    """

    rows: Any  # int64, shape (k R + 1,): the rows before each segment
    edges: Any  # int64, shape (k R + 1,): the edges before each segment
    pointers: Any  # int64, shape (rows + 1,)
    columns: Any  # int32, shape (E,)
    weights: Any = None  # float32, shape (E,), or None: the mean
    entries: Any = None  # int64, shape (E,), or None: positions in A


class Division(NamedTuple):
    """The division of a bulk into mini-batches, types and relations; a mini-batch and a type are a group, ``j T + type``."""

    seeds: np.ndarray  # int64, shape (k T + 1,): pointers of the seeds of each group
    only_new: bool
    types: int = 1
    relations: tuple[int, ...] = (0,)  # in the order in which the device has them


class OpenBulk(NamedTuple):
    """A bulk before its counts are known on the host; arrays may be longer than they say."""

    division: Division
    counts: Any  # int64: for each step k T + 1 pointers of the vertices held, and k T + 1 of those found; of relations
    # then the `rows` of all hops, and the `edges` of all hops
    seed_rows: Any
    held: HeldVertices
    hops: list[DeviceHop]


class DeviceBulk(NamedTuple):
    """k mini-batches whose sizes are on the host; their arrays are on the device, or copies on the host."""

    division: Division
    ends: np.ndarray  # int64, shape (L + 1, k T + 1): pointers of the vertices held before the first hop and after each
    rows: np.ndarray  # int64, shape (L, k R + 1): those of each hop
    edges: np.ndarray  # int64, shape (L, k R + 1)
    seed_rows: Any  # int32, shape (seeds,)
    vertices: Any  # int32
    owners: Any  # int32: the tree of each vertex; None if every mini-batch is one tree
    hops: list[DeviceHop]

    def to_host(self, device: CudaDevice) -> DeviceBulk:
        """Copy the arrays to the host."""

        def get(array: Any) -> np.ndarray | None:
            return None if array is None else device.get(array)

        with device.phase("copy to host"):
            edges = zip(self.rows, self.edges, self.hops, strict=True)
            hops = [DeviceHop(*sizes, *map(get, hop[2:])) for *sizes, hop in edges]
            return self._replace(seed_rows=get(self.seed_rows), vertices=get(self.vertices), owners=get(self.owners), hops=hops)

    def first_trees(self, trees: np.ndarray) -> np.ndarray:
        """Return for each vertex the first tree of its mini-batch, int32; `trees` are pointers of the trees of each mini-batch."""
        return np.repeat(trees[:-1], np.diff(self.ends[-1, :: self.division.types])).astype(np.int32)


class DeviceSeeds(NamedTuple):
    """The seeds of k mini-batches, on the host or on the device."""

    pointers: Any  # int64, shape (k + 1,)
    vertices: Any  # int32
    minibatches: Any  # int64, shape (k,): see `draws.FrontierRows`
    none: Any  # int64, shape (k + 1,): zeros, the pointers of no vertices

    @staticmethod
    def of(seeds: Selection) -> DeviceSeeds:
        """Return the seeds as arrays of the host."""
        pointers = np.asarray(seeds.pointers, np.int64)
        return DeviceSeeds(pointers, seeds.vertices, np.asarray(seeds.minibatches, np.int64), np.zeros_like(pointers))


Inputs = TypeVar("Inputs", bound=tuple[Any, ...])
DrawHop = Callable[[FrontierRows, int], DrawnEdges]  # draws hop h for the rows of a frontier


def put_inputs(device: CudaDevice, inputs: Inputs) -> Inputs:
    """Copy a named tuple of arrays, of which some may be None, to the device in one copy."""
    there, kind = iter(device.put_together(*(array for array in inputs if array is not None))), cast(Any, type(inputs))
    made: Inputs = kind(*(None if array is None else next(there) for array in inputs))
    return made


def hop_after_hop(
    device: CudaDevice, numbering: Numbering, inputs: DeviceSeeds, draw: DrawHop, count: int, division: Division, bounded: bool = False
) -> OpenBulk:
    """Take a bulk through `count` hops: draw for the frontier, number the vertices found, make them the next frontier.

    Waits before each hop for the size of its frontier, unless `bounded` is set: then `draw` is given frontiers that are longer than their
    last pointer, and may say how many rows they have. Besides, waits whenever `draw` does. `close` waits for the counts.
    """
    k, only_new = len(inputs.minibatches), division.only_new
    counts = device.empty((count + 1) * (2 * k + 2), np.int64)
    ends = [counts[at : at + 2 * k + 2] for at in range(0, len(counts), 2 * k + 2)]
    with device.phase("seeds"):
        nothing = HeldVertices(inputs.none, device.empty(0, np.int32), 0)
        held, seed_rows = numbering.number(nothing, FoundVertices(inputs.pointers, inputs.vertices), ends[0])
        held = held if bounded or not count else _settled(device, held)
    frontier, hops, before = held, list[DeviceHop](), 0
    for hop in range(count):
        with device.phase(f"hop {hop}"):
            drawn = draw(FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, inputs.minibatches, frontier.size, k), hop)
            if drawn.rows is not None:
                before = drawn.rows + (before if only_new else 0)
                held = HeldVertices(held.pointers, held.vertices[:before], before)
            edges = drawn.ends  # before each mini-batch
            if edges is None:
                edges = device.empty(k + 1, np.int64)
                device.start("pick_pointers", k + 1, drawn.pointers, frontier.pointers, k + 1, edges)
            grown, local = numbering.number(held, FoundVertices(edges, drawn.columns, None, drawn.slots), ends[hop + 1])
            hops.append(DeviceHop(frontier.pointers, ends[hop + 1][k + 1 :], drawn.pointers, local, drawn.weights))
            if hop + 1 < count:
                grown = grown if bounded else _settled(device, grown)
                room = min(grown.size, len(drawn.columns)) if bounded else grown.size - held.size
                frontier = beyond(device, grown, held, k, room) if only_new else grown
            held = grown
    return OpenBulk(division, counts, seed_rows, held, hops)


def _settled(device: CudaDevice, held: HeldVertices) -> HeldVertices:
    """Wait for the number of vertices held."""
    size = int(device.get(held.pointers[-1:])[0])
    return HeldVertices(held.pointers, held.vertices[:size], size)


def close(device: CudaDevice, bulk: OpenBulk, array_of: Callable[[Any], Any] = lambda array: array) -> DeviceBulk:
    """Wait for the counts of a bulk, and cut its arrays to their lengths. `array_of` is that of `Recording.enqueue`."""
    return cut_to(bulk, device.get(array_of(bulk.counts)), array_of)


def cut_to(bulk: OpenBulk, counts: np.ndarray, array_of: Callable[[Any], Any] = lambda array: array) -> DeviceBulk:
    """Cut the arrays of a bulk to the lengths that its counts, now on the host, say."""
    groups, hops = len(bulk.division.seeds), list[DeviceHop]()  # each number is one more: these are pointers
    steps, segments = np.split(counts, [(len(bulk.hops) + 1) * 2 * groups])
    steps = steps.reshape(-1, 2, groups)
    ends = steps[:, 0]
    if len(segments):
        rows, edges = segments.reshape(2, len(bulk.hops), -1)
    else:  # the segments are the mini-batches
        rows, edges = np.diff(ends[:-1], axis=0, prepend=0) if bulk.division.only_new else ends[:-1], steps[1:, 1]

    def cut_array(array: Any, length: int) -> Any:
        return None if array is None else array_of(array[:length])

    for hop, last_row, last_edge in zip(bulk.hops, rows[:, -1].tolist(), edges[:, -1].tolist(), strict=True):
        of_edges = [cut_array(array, last_edge) for array in hop[3:]]
        hops.append(DeviceHop(array_of(hop.rows), array_of(hop.edges), cut_array(hop.pointers, last_row + 1), *of_edges))
    vertices, owners = (cut_array(array, int(ends[-1, -1])) for array in (bulk.held.vertices, bulk.held.trees))
    return DeviceBulk(bulk.division, ends, rows, edges, array_of(bulk.seed_rows), vertices, owners, hops)


def cut(bulk: DeviceBulk, pointers: Sequence[Any], owners: Any, nested: Callable[[list[Hop]], list[Hop]]) -> list[HeteroExpansion]:
    """Cut a bulk into its mini-batches; arrays are views of those of the bulk, wherever they are.

    `pointers` are for each hop the row pointers of its segments side by side, those of each segment from 0: int64, shape (rows + k R,).
    `owners` is the tree of each vertex among those of its mini-batch, int32, or None. ``nested(hops)`` returns the rows of several hops
    joined, one after another, if only new vertices are expanded.
    """
    expansions, types, place = [], bulk.division.types, np.argsort(bulk.division.relations)
    seeds, ends = bulk.division.seeds.tolist(), bulk.ends[-1].tolist()
    hops = list(zip(pointers, bulk.hops, bulk.rows.tolist(), bulk.edges.tolist(), strict=True))
    for j in range((len(seeds) - 1) // types):
        groups, segments = range(j * types, (j + 1) * types), (j * len(place) + place).tolist()
        spans = [slice(ends[g], ends[g + 1]) for g in groups]
        parts = [[_segment(*hop, s) for s in segments] for hop in hops]
        if bulk.division.only_new:
            parts = [list(of_hop) for of_hop in zip(*(nested([of_hop[r] for of_hop in parts]) for r in range(len(place))), strict=True)]
        seed_rows = [bulk.seed_rows[seeds[g] : seeds[g + 1]] for g in groups]
        held = np.diff(bulk.ends[:, j * types : (j + 1) * types + 1], axis=1)
        trees = [] if owners is None else [owners[span] for span in spans]
        expansions.append(HeteroExpansion(seed_rows, [bulk.vertices[span] for span in spans], trees, held, parts))
    return expansions


def _segment(pointers: Any, hop: DeviceHop, rows: list[int], edges: list[int], s: int) -> Hop:
    span = slice(edges[s], edges[s + 1])
    columns, weights, entries = (None if array is None else array[span] for array in hop[3:])
    return Hop(pointers[rows[s] + s : rows[s + 1] + s + 1], columns, weights, entries)  # type: ignore[arg-type]  # there are columns


def cut_on_host(bulk: DeviceBulk, trees: np.ndarray | None = None) -> list[HeteroExpansion]:
    """Cut a bulk whose arrays are on the host into its mini-batches; `trees` are pointers of the trees of each, if there are several."""
    pointers = []
    for hop in bulk.hops:
        segment = np.repeat(np.arange(len(hop.rows) - 1), np.diff(hop.rows) + 1)
        pointers.append(hop.pointers[np.arange(len(segment)) - segment] - hop.edges[segment])
    owners = None if bulk.owners is None or trees is None else bulk.owners - bulk.first_trees(trees)
    return cut(bulk, pointers, owners, lambda parts: [joined(parts)])


def sampled(
    device: CudaDevice, key: tuple[Hashable, ...] | None, enqueue: Callable[[CudaDevice, Sequence[Any], Inputs, Sequence[Draw]], OpenBulk],
    arrays: Sequence[Any], inputs: Inputs, draws: Sequence[Draw] = (),
) -> DeviceBulk:  # fmt: skip
    """Enqueue all hops, and wait for the counts of the bulk. With a `key` in one call, as they were recorded for a bulk of the same key.

    `arrays` are those of the graph, and `inputs` those of the bulk, on the host. With a key, which holds what the launches depend on,
    ``enqueue(device, arrays, inputs, draws)`` waits for nothing, and its bulk depends on inputs, the seeds and tags of draws, and the
    memory of arrays by addresses and numbers alone.
    """
    if key is None:
        return close(device, enqueue(device, arrays, put_inputs(device, inputs), draws))

    def run(recorder: CudaDevice, outside: list[Any]) -> tuple[tuple[Inputs, OpenBulk], list[Any]]:
        recorded_inputs = put_inputs(recorder, inputs)
        bulk = enqueue(recorder, outside, recorded_inputs, Later.of(draws))
        kept = [bulk.counts, bulk.seed_rows, bulk.held.vertices, bulk.held.trees, *(part for hop in bulk.hops for part in hop)]
        return (recorded_inputs, bulk), [array for array in kept if array is not None]

    recording = recorded(device, (*key, device.free_bytes, device.numbering, tuple(array is None for array in inputs)), run, arrays)
    recorded_inputs, bulk = recording.result
    with device.phase("enqueue"):
        pairs = [(there, array) for there, array in zip(recorded_inputs, inputs, strict=True) if array is not None]
        array_of = recording.enqueue(device, arrays, pairs, [number for draw in draws for number in (draw.seed, draw.tag)])
    return close(device, bulk, array_of)


def expand(device: CudaDevice, a: DeviceCSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
    """Take k mini-batches through node-wise hops; see `Backend.expand`.

    Waits once, at the end, if the largest bulk that the fanouts allow takes at most an eighth of the free memory; otherwise once for the
    seeds and once a hop. Waits once more for each hop that takes all neighbors, or more than 32 by key.
    """
    k, n, entries, count = len(seeds), a.shape[1], len(a.indices), len(seeds.vertices)
    laws = tuple(draw.law for draw in draws)
    bytes_ = bulk_bytes(n, entries, k, count, fanouts, only_new, device.free_bytes, device.numbering, a.longest, laws)
    bounded = bytes_.peak <= device.free_bytes // BOUND_SHARE
    waits = any(s < 0 or (s > FEW and draw.law in KEYED) for s, draw in zip(fanouts, draws, strict=True))
    shape = (a.shape, entries, a.values is None, a.longest > HUB, tuple(fanouts), only_new)
    key = (shape, seeds.pointers.tobytes(), laws) if bounded and device.prepares and not waits else None

    def enqueue(device: CudaDevice, arrays: Sequence[Any], inputs: DeviceSeeds, draws: Sequence[Draw]) -> OpenBulk:
        there = DeviceCSR(arrays[0], arrays[1], arrays[2], a.shape, a.longest)
        return _node_wise(device, there, inputs, seeds.pointers, fanouts, draws, only_new, bounded)

    return sampled(device, key, enqueue, a[:3], DeviceSeeds.of(seeds), draws)


def _node_wise(
    device: CudaDevice, a: DeviceCSR, inputs: DeviceSeeds, seeds: np.ndarray, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
    bounded: bool,
) -> OpenBulk:  # fmt: skip
    """Enqueue all hops; `seeds` are the pointers of the seeds, on the host."""
    k, n = len(seeds) - 1, a.shape[1]
    most = most_held(np.diff(seeds), fanouts, n, only_new) if bounded else None

    def draw(rows: FrontierRows, hop: int) -> DrawnEdges:
        return draw_rows(device, a, rows, fanouts[hop], draws[hop])

    words = state_words(n, k, int(seeds[-1]), fanouts, only_new) if most is not None else 0
    words += sum(hub_words(a.longest, s, draw.law) for s, draw in zip(fanouts, draws, strict=True))
    with device.zeroed_together(words):
        numbering = Numbering(device, np.full(k, n), most_found(int(seeds[-1]), fanouts, len(a.indices), k), most)
        return hop_after_hop(device, numbering, inputs, draw, len(fanouts), Division(seeds, only_new), bounded)
