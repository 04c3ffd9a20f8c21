"""Numbering vertices on a device: hash tables or one direct table, kept from hop to hop.

A direct table has a word for every vertex and minibatch and is written once a bulk; hash tables take four words for every vertex
that may be found, and are made anew for each hop. The smaller one is used, as long as a direct one fits the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .device import DENSE_TABLE_SHARE, Device

_FREE = 0xFFFFFFFF
LARGEST_TABLE = 2**29  # entries of a hash table, which then has 2**30 slots


class Held(NamedTuple):
    """The vertices that k minibatches hold, on the device. `vertices` may be longer than what the pointers name."""

    pointers: Any  # int64, shape (k + 1,)
    vertices: Any  # int32
    size: int  # of all vertices, known on the host


class Found(NamedTuple):
    """What each minibatch found, in order. `columns` may be longer than what the pointers name."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32


class Numbering:
    """The tables of k minibatches of a graph of n vertices.

    Parameters
    ----------
    device : Device
    k, n : int
    expected : int
        Vertices that are going to be found, repetitions and all, over the life of the numbering.
    """

    def __init__(self, device: Device, k: int, n: int, expected: int) -> None:
        self._device, self._k, self._n = device, k, n
        self._direct = n * k <= min(4 * expected, device.free_bytes // (4 * DENSE_TABLE_SHARE))
        if self._direct:
            self._table, self._starts = None, device.put(np.arange(k + 1, dtype=np.int64) * n)
            self._numbers = device.full(n * k, _FREE, np.uint32)
        self._entered = 0

    def number(self, held: Held, found: Found) -> tuple[Held, Any, np.ndarray, np.ndarray]:
        """Number what was found: the extended vertices, local numbers, and on the host the extended pointers and those of what was found.

        Waits for the last two; see `Backend.relabel`.
        """
        device, k, room = self._device, self._k, len(found.columns)
        if not self._direct:
            self._make_tables(held, found, room)
        if held.size and not (self._direct and self._entered == held.size):
            device.start("enter_known", held.size, held.pointers, held.vertices, k, self._table, self._starts, self._numbers)
        slots, marks = device.empty(room, np.int64), device.empty(room, np.int32)
        device.start("enter_found", room, found.pointers, found.columns, k, self._table, self._starts, self._numbers, slots)
        device.start("mark_first", room, found.pointers, k, room, self._numbers, slots, marks)
        ranks, ends = device.pointers(marks), device.empty(2 * k + 2, np.int64)
        device.start("extend_pointers", k + 1, held.pointers, found.pointers, k, ranks, ends)
        vertices, local = device.empty(held.size + room, np.int32), device.empty(room, np.int32)
        device.start("keep_known", held.size, held.pointers, held.vertices, k, ends, vertices)
        device.start("add_new", room, held.pointers, found.pointers, found.columns, k, ranks, slots, ends, self._numbers, vertices)
        device.start("read_numbers", room, found.pointers, k, self._numbers, slots, local)
        counts = device.get(ends)
        self._entered = int(counts[k])
        return Held(ends[: k + 1], vertices[: counts[k]], self._entered), local, counts[: k + 1], counts[k + 1 :]

    def _make_tables(self, held: Held, found: Found, room: int) -> None:
        """Slots for all that is held or found, at most half of them taken."""
        extent = held.pointers + found.pointers
        self._table, self._starts, self._numbers = _tables(self._device, self._k, extent, held.size + room, self._n)


def _tables(device: Device, k: int, pointers: Any, count: int, n: int) -> tuple[Any, Any, Any]:
    """Empty hash tables, vertices, starts and numbers, each for pointers[j + 1] - pointers[j] vertices of n; `count` for all."""
    if min(count, n) > LARGEST_TABLE:
        raise OverflowError(f"a table could hold over {LARGEST_TABLE} vertices: {count} are found in all; a smaller bulk would fit")
    sizes = device.empty(k, np.int32)
    device.start("table_sizes", k, pointers, None, k, n, sizes)
    slots = 4 * min(count, k * n)  # a power of two is below twice what it covers, and that is twice what is held
    table, numbers = (device.full(slots, _FREE, np.uint32) for _ in range(2))
    return table, device.pointers(sizes), numbers


def table_of(device: Device, k: int, pointers: Any, vertices: Any, count: int, n: int) -> tuple[Any, Any, Any]:
    """Hash tables of the distinct vertices of each minibatch: vertices, starts and numbers."""
    table, starts, numbers = _tables(device, k, pointers, count, n)
    device.start("enter_known", count, pointers, vertices, k, table, starts, numbers)
    return table, starts, numbers


def nothing_held(device: Device, k: int) -> Held:
    """k minibatches that hold no vertex yet."""
    return Held(device.put(np.zeros(k + 1, np.int64)), device.empty(0, np.int32), 0)


def beyond(device: Device, grown: Held, held: Held, k: int) -> Held:
    """The vertices that each minibatch holds beyond those it held."""
    pointers, vertices = device.empty(k + 1, np.int64), device.empty(grown.size - held.size, np.int32)
    device.start("drop_known", grown.size, held.pointers, grown.pointers, k, grown.vertices, pointers, vertices)
    return Held(pointers, vertices, grown.size - held.size)
