"""Map each (mini-batch, vertex) to a slot, an index into an array of numbers, on a device; by a direct table or by hash tables.

Two vertices share a slot if and only if they are the same vertex of the same mini-batch. The steps that follow (`Numbering`) are the
same for both structures, and so are the numbers. With E vertices found over the life of a numbering, h of them held (numbered by
earlier hops), and random reads of 32 bytes (a write reads first):

========= ===================================== ============================================ =======================================
structure memory                                moved for a vertex that is entered           moved besides
========= ===================================== ============================================ =======================================
direct    4 n k, once                           68: its number is read and written           4 n k written once
hash      32 a vertex, 8 a slot                 76: the same, and its slot is kept           32 a vertex written once
========= ===================================== ============================================ =======================================

A vertex and its number lie side by side in a hash table, so they share a sector. One table serves all hops if the vertices of each
mini-batch can be bounded before the first; otherwise a hop that finds V vertices writes 32 V bytes anew, and enters the held ones.
So a direct table wins if it is smaller than hash tables would be (many mini-batches of a small graph), and hash tables win if a bulk
meets few vertices of a large graph. These are predictions; `bench/run.py gpu` measures both.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ...sparse import row_pointers
from .device import TABLE_SHARE, CudaDevice

FREE = 0xFFFFFFFF
LARGEST_TABLE = 2**29  # entries of a hash table, which then has 2**30 slots
HASHED = 32  # bytes of a vertex in hash tables: up to four slots of a vertex and its number
_WORDS, _PAIR_WORDS = 2, 4  # of a slot; the second with a tree: BS_NUMBERED and BS_PAIRED of csrc/table.h


class HeldVertices(NamedTuple):
    """The vertices that k mini-batches hold, which have numbers, on the device. The last pointer may be less than `size`."""

    pointers: Any  # int64, shape (k + 1,)
    vertices: Any  # int32
    size: int  # number of vertices, or a bound of it
    trees: Any = None  # int32: the tree of each vertex, if trees are disjoint


class Slots(NamedTuple):
    """The number in each slot, and the slot of each vertex found."""

    numbers: Any  # uint32, coded as csrc/numbers.cu says
    starts: Any  # int64, shape (k + 1,): the first slot of each mini-batch
    found: Any  # int64: places in `numbers`; or None in a direct table: vertex v of mini-batch j has place starts[j] + v


class FoundVertices(NamedTuple):
    """The sources of the edges drawn in a hop, in order, for each mini-batch. `columns` may be longer than the last pointer."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32
    trees: Any = None  # int32, if trees are disjoint
    slots: Slots | None = None  # where they have been entered already


class HashTables(NamedTuple):
    """A hash table of vertices and their numbers for each mini-batch."""

    vertices: Any  # uint32: the vertex in each slot, or none
    starts: Any  # int64, shape (k + 1,): the first slot of each mini-batch
    numbers: Any  # uint32


Name = Literal["direct", "hash"]
STRUCTURES: tuple[Name, ...] = get_args(Name)


class TableBytes(NamedTuple):
    """Memory of a structure, in bytes."""

    standing: int  # for the life of the numbering
    entered: int  # from when the vertices of a hop are entered until they are numbered


def table_bytes(name: Name, n: int, k: int, held: int, room: int, most: int | None = None) -> TableBytes:
    """Bound the memory of a structure beside the vertices held and found; `most` bounds those of all mini-batches, if known before."""
    if name == "direct":
        return TableBytes(4 * n * k, 0)
    if most is not None:
        return TableBytes(HASHED * min(most, k * n) + 8 * (k + 1), 8 * room)
    return TableBytes(0, HASHED * min(held + room, k * n) + 8 * room)


def chosen(n: int, k: int, expected: int, free: int) -> Name:
    """Choose a direct table if it is smaller than hash tables for `expected` vertices, and an eighth of the free memory at most."""
    return "direct" if 4 * n * k <= min(HASHED // 2 * expected, free // TABLE_SHARE) else "hash"


def table_of(device: CudaDevice, k: int, pointers: Any, vertices: Any, n: int) -> HashTables:
    """Build hash tables of the distinct vertices of each mini-batch."""
    tables = _tables(device, k, pointers, len(vertices), n)
    device.start("enter_known", len(vertices), pointers, vertices, None, k, *tables)
    return tables


def _tables(device: CudaDevice, k: int, pointers: Any, count: int, n: int, words: int = _WORDS) -> HashTables:
    """Allocate k free hash tables: table j for pointers[j + 1] - pointers[j] of n vertices, `count` in all."""
    _check_size(min(count, n), count)
    table, numbers = _filled(device, 4 * min(count, k * n), words)  # a power of two is below twice what it covers: twice the vertices
    starts = device.empty(k + 1, np.int64)
    device.scan("table_starts", k, 0, lambda states: (pointers, k, n, states, starts))
    return HashTables(table, starts, numbers)


def equal_tables(device: CudaDevice, k: int, most: int, hops: int) -> list[HashTables]:
    """Allocate free hash tables for at most `most` vertices of each mini-batch, for each of some hops, by one fill."""
    slots = table_slots(most)
    table, _ = _filled(device, hops * k * slots, _WORDS)
    starts = device.put(slots * np.arange(k + 1, dtype=np.int64))
    parts = [table[_WORDS * k * slots * hop :][: _WORDS * k * slots] for hop in range(hops)]
    return [HashTables(part, starts, part[_WORDS // 2 :]) for part in parts]


def table_slots(most: int) -> int:
    """Return the slots of a hash table for `most` vertices."""
    return int(_slots_for(np.array([most]))[0])


def _check_size(largest: int, count: int) -> None:
    if largest > LARGEST_TABLE:
        raise OverflowError(f"a table could hold over {LARGEST_TABLE} vertices: {count} are found in all; use a smaller bulk")


def _slots_for(most: np.ndarray) -> np.ndarray:
    """Return the slots of tables with room for `most` vertices each, as the kernel `table_starts` does: powers of two, or 0."""
    _check_size(int(most.max(initial=0)), int(most.sum()))
    digits = np.frexp(2.0 * most - 1)[1].astype(np.int64)  # 2**digits is the power of two from 2 most on; frexp is exact
    sizes: np.ndarray = np.where(most > 0, 1 << digits, 0)
    return sizes


def _filled(device: CudaDevice, slots: int, words: int) -> tuple[Any, Any]:
    """Allocate free slots; return the words from the first vertex on, and from the first number on."""
    table = device.full(words * slots, FREE, np.uint32)
    return table, table[words // 2 :]


class Numbering:
    """Give the vertices of each of k mini-batches local numbers 0, 1, ..., hop by hop.

    On relations a mini-batch and a type take the place of a mini-batch. `sizes` (int64, shape (k,)) are the vertices that each may hold:
    all of the graph. `expected` bounds the vertices found over the life of the numbering, repetitions included. If `most` bounds the
    distinct vertices of each mini-batch, one hash table serves all hops. With `pairs` it numbers vertices of disjoint trees, by hash
    tables, whatever the device names: a vertex that two trees meet has two numbers.
    """

    standing: HashTables | None = None  # the tables that all hops share, if they do; without `vertices` they are direct

    def __init__(self, device: CudaDevice, sizes: np.ndarray, expected: int, most: np.ndarray | None = None, pairs: bool = False) -> None:
        self._device, self._k, self._most = device, len(sizes), int((sizes if most is None else np.minimum(sizes, most)).sum())
        self.name: Name = "hash" if pairs else device.numbering or chosen(int(sizes.sum()), 1, expected, device.free_bytes)
        self._largest, self._words = int(sizes.max(initial=0)), _PAIR_WORDS if pairs else _WORDS
        self._known: Any = None  # the pointers of the vertices whose numbers the standing tables know
        if self.name == "direct":  # a word for each vertex of the graph
            starts = row_pointers(sizes)
            self.standing = HashTables(None, device.put(starts), device.full(int(starts[-1]), FREE, np.uint32))
        elif most is not None:
            starts = row_pointers(_slots_for(np.minimum(most, sizes)))
            table, numbers = _filled(device, int(starts[-1]), self._words)
            self.standing = HashTables(table, device.put(starts), numbers)

    def _enter(self, held: HeldVertices, found: FoundVertices) -> Slots:
        """Enter the held vertices with their numbers, and each found one with the position of its first occurrence. Waits for nothing."""
        device, k, room, table = self._device, self._k, len(found.columns), self.standing
        if table is None:  # tables of this hop alone, at most half full
            extent = device.empty(k + 1, np.int64)
            device.start("add_pointers", k + 1, held.pointers, found.pointers, k + 1, extent)
            table = _tables(device, k, extent, held.size + room, self._largest, self._words)
        slots = None if table.vertices is None else device.empty(room, np.int64)
        if held.size and (table is not self.standing or held.pointers is not self._known):
            device.start("enter_known", held.size, held.pointers, held.vertices, held.trees, k, *table)
        device.start("enter_found", room, found.pointers, found.columns, found.trees, k, *table, slots)
        return Slots(table.numbers, table.starts, slots)

    def number(self, held: HeldVertices, found: FoundVertices, ends: Any) -> tuple[HeldVertices, Any]:
        """Number the found vertices as `Backend.relabel` defines, and wait for nothing.

        Returns the held vertices with the new ones, with room for all that are found, and the local number of each found vertex, both
        on the device. `ends`, int64 of shape (2 k + 2,), takes the pointers of the first, then those of the found vertices.
        """
        device, k, room = self._device, self._k, len(found.columns)
        table = found.slots or self._enter(held, found)
        size = min(held.size + room, self._most)
        vertices, local = device.empty(size, np.int32), device.empty(room, np.int32)
        trees = None if found.trees is None else device.empty(size, np.int32)
        asked = held.pointers, held.vertices, held.trees, found.pointers, found.columns, found.trees, k, table.found, table.starts
        device.scan("number_found", room, k + 1, lambda states: (*asked, table.numbers, states, ends, vertices, trees, local), held.size)
        self._known = ends[: k + 1]
        return HeldVertices(self._known, vertices, size, trees), local


def beyond(device: CudaDevice, grown: HeldVertices, held: HeldVertices, k: int, room: int) -> HeldVertices:
    """Return the vertices that each mini-batch of `grown` holds beyond those of `held`: at most `room`."""
    pointers, vertices = device.empty(k + 1, np.int64), device.empty(room, np.int32)
    device.start("drop_known", grown.size, held.pointers, grown.pointers, k, grown.vertices, pointers, vertices)
    return HeldVertices(pointers, vertices, room)
