"""Where the vertices of k minibatches have their slots on a device: four structures that number alike, one chosen by size.

A slot is a place in an array of numbers; two vertices share one if and only if they are the same vertex of the same minibatch. What
follows (`numbers`) is the same for all. With E vertices found over the life of a numbering, h of them held, and random reads of
32 bytes at once (a write of what is not there reads first):

========= ===================================== ============================================ =======================================
structure memory                                moved for a vertex that is entered           and besides
========= ===================================== ============================================ =======================================
direct    4 n k, once; 8 a slot kept            76: its number is read and written           4 n k written once
bitmap    11 n k / 64, 4 a number, 8 a slot     216: bit, rank, number; 128 of them are in   13 n k / 64 and h vertices in each hop
                                                the cache where 11 n k / 64 bytes are
hash      32 a vertex, 8 a slot                 140: the vertex's word, its number           32 a vertex and h vertices in each hop
sort      16 a vertex, then 12; 8 a slot        192, and 26 for each 8 bits of n k           h vertices in each hop
========= ===================================== ============================================ =======================================

So a direct table wins where it is smaller than hash tables would be (many minibatches' worth of edges from a small graph), a bitmap
where a bit, but not a word, for each vertex of each minibatch is little, hash tables where few vertices of a large graph are met, and
a sort where hash tables take more memory than there is. These are predictions; bench/gpu.py measures the four side by side.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from .device import TABLE_SHARE, Device

_FREE = 0xFFFFFFFF
LARGEST_TABLE = 2**29  # entries of a hash table, which then has 2**30 slots
HASHED = 32  # bytes of a vertex in hash tables: up to four slots, of two words each
BITS = 64  # a bitmap may have so many bits for each vertex that is found
_GROUP = 256  # bits that are counted together: csrc/bitmap.cu
_RADIX, _TILE = 256, 2048  # of csrc/sort.cu


class Held(NamedTuple):
    """The vertices that k minibatches hold, on the device. `vertices` may be longer than what the pointers name."""

    pointers: Any  # int64, shape (k + 1,)
    vertices: Any  # int32
    size: int  # of all vertices; where launches are recorded, places for them


class Found(NamedTuple):
    """What each minibatch found, in order. `columns` may be longer than what the pointers name."""

    pointers: Any  # int64, shape (k + 1,)
    columns: Any  # int32


class Slots(NamedTuple):
    """Numbers by slot, and the slot of each place at which something was found."""

    numbers: Any  # uint32: what csrc/numbers.cu says
    found: Any  # int64


class TableBytes(NamedTuple):
    """Memory of a structure."""

    standing: int  # as long as the numbering
    entering: int  # while a hop is entered
    left: int  # until it is numbered
    all: int  # of one hop, if nothing were given back before


class Structure(Protocol):
    """One way to find slots."""

    def __init__(self, device: Device, k: int, n: int) -> None: ...

    def enter(self, held: Held, found: Found, known: bool) -> Slots:
        """Slots whose numbers know what is held, and the first place of what was found. Nothing is waited for.

        `known`: what is held is what was held and found when this was called last.
        """

    @staticmethod
    def bytes(n: int, k: int, held: int, room: int) -> TableBytes:
        """What `enter` takes at the most, beside its arguments."""


class Direct:
    """A word for every vertex and minibatch; what is held stays entered from hop to hop."""

    def __init__(self, device: Device, k: int, n: int) -> None:
        self._device, self._k = device, k
        self._starts = device.put(np.arange(k + 1, dtype=np.int64) * n)
        self._numbers = device.full(n * k, _FREE, np.uint32)

    def enter(self, held: Held, found: Found, known: bool) -> Slots:
        return _entered(self._device, self._k, held, found, (None, self._starts, self._numbers), known)

    @staticmethod
    def bytes(n: int, k: int, held: int, room: int) -> TableBytes:
        return TableBytes(4 * n * k, 8 * room, 8 * room, 8 * room)


class Bitmap:
    """A bit for every vertex and minibatch, which stays set from hop to hop; ranks and numbers are made anew."""

    def __init__(self, device: Device, k: int, n: int) -> None:
        self._device, self._k, self._n, self._groups = device, k, n, -(-n * k // _GROUP)
        self._bits = device.full(self._groups * (_GROUP // 64), 0, np.uint64)

    def enter(self, held: Held, found: Found, known: bool) -> Slots:
        device, k, n, room = self._device, self._k, self._n, len(found.columns)
        if not known:
            device.start("mark_bits", held.size, held.pointers, held.vertices, k, n, self._bits)
        device.start("mark_bits", room, found.pointers, found.columns, k, n, self._bits)
        counts = device.empty(self._groups, np.int32)
        device.start("count_bits", self._groups, self._bits, self._groups, counts)
        ranks, slots = device.pointers(counts), device.empty(held.size + room, np.int64)
        device.start("rank_bits", held.size, held.pointers, held.vertices, k, n, self._bits, ranks, slots)
        device.start("rank_bits", room, found.pointers, found.columns, k, n, self._bits, ranks, slots[held.size :])
        return _settled(device, k, held, found, slots)

    @staticmethod
    def bytes(n: int, k: int, held: int, room: int) -> TableBytes:
        groups = -(-n * k // _GROUP)
        made = 12 * (groups + held + room)
        return TableBytes(_GROUP // 8 * groups, made, 12 * (held + room), made)


class Hash:
    """Hash tables for all that is held or found, at most half of their slots taken; made anew for each hop."""

    def __init__(self, device: Device, k: int, n: int) -> None:
        self._device, self._k, self._n = device, k, n

    def enter(self, held: Held, found: Found, known: bool) -> Slots:
        extent = self._device.empty(self._k + 1, np.int64)
        self._device.start("add_pointers", self._k + 1, held.pointers, found.pointers, self._k + 1, extent)
        made = _tables(self._device, self._k, extent, held.size + len(found.columns), self._n)
        return _entered(self._device, self._k, held, found, made, False)

    @staticmethod
    def bytes(n: int, k: int, held: int, room: int) -> TableBytes:
        tables = HASHED * min(held + room, k * n)
        return TableBytes(0, tables + 8 * room, tables // 2 + 8 * room, tables + 8 * room)


class Sort:
    """All that is held or found, sorted by minibatch and vertex; no table, whatever n is."""

    def __init__(self, device: Device, k: int, n: int) -> None:
        self._device, self._k, self._n = device, k, n

    def enter(self, held: Held, found: Found, known: bool) -> Slots:
        device, k, n, room = self._device, self._k, self._n, len(found.columns)
        count = held.size + room
        places, slots = _bits(count), device.empty(count, np.int64)
        words = device.empty(count, np.uint64)
        device.start("pack_words", count, *held, found.pointers, found.columns, room, k, n, places, words)
        words = _sorted(device, words, range(places, places + _bits(k * n + 1), 8))
        marks = device.empty(count, np.int32)
        device.start("mark_keys", count, words, count, places, marks)
        device.start("spread_slots", count, words, count, places, device.pointers(marks), slots)
        return _settled(device, k, held, found, slots)

    @staticmethod
    def bytes(n: int, k: int, held: int, room: int) -> TableBytes:
        count, passes = held + room, -(-_bits(k * n + 1) // 8)
        digits = _RADIX * -(-count // _TILE)
        return TableBytes(0, 24 * count + max(12 * digits, 4 * count), 12 * count, 40 * count + (4 + 8 * passes) * digits)


Name = Literal["direct", "bitmap", "hash", "sort"]
STRUCTURES: dict[Name, type[Structure]] = {"direct": Direct, "bitmap": Bitmap, "hash": Hash, "sort": Sort}


def chosen(n: int, k: int, expected: int, free: int) -> Name:
    """The structure that takes least of memory's time among those that take at most an eighth of it.

    Parameters
    ----------
    n, k : int
    expected : int
        Vertices that are going to be found, repetitions and all, over the life of the numbering.
    free : int
        Bytes that the device plans with.
    """
    most = free // TABLE_SHARE
    if 4 * n * k <= min(HASHED // 2 * expected, most):
        return "direct"
    if n * k <= BITS * expected and Bitmap.bytes(n, k, 0, 0).standing <= most:
        return "bitmap"
    packed = _bits(k * n + 1) + _bits(expected) <= 64  # a vertex, its minibatch and its place are one word
    return "sort" if packed and HASHED * expected > most else "hash"


def table_of(device: Device, k: int, pointers: Any, vertices: Any, count: int, n: int) -> tuple[Any, Any, Any]:
    """Hash tables of the distinct vertices of each minibatch: vertices, starts and numbers."""
    table, starts, numbers = _tables(device, k, pointers, count, n)
    device.start("enter_known", count, pointers, vertices, k, table, starts, numbers)
    return table, starts, numbers


def _tables(device: Device, k: int, pointers: Any, count: int, n: int) -> tuple[Any, Any, Any]:
    """Empty hash tables, vertices, starts and numbers, each for pointers[j + 1] - pointers[j] vertices of n; `count` for all."""
    if min(count, n) > LARGEST_TABLE:
        raise OverflowError(f"a table could hold over {LARGEST_TABLE} vertices: {count} are found in all; a smaller bulk would fit")
    sizes = device.empty(k, np.int32)
    device.start("table_sizes", k, pointers, None, k, n, sizes)
    slots = 4 * min(count, k * n)  # a power of two is below twice what it covers, and that is twice what is held
    table, numbers = (device.full(slots, _FREE, np.uint32) for _ in range(2))
    return table, device.pointers(sizes), numbers


def _entered(device: Device, k: int, held: Held, found: Found, table: tuple[Any, Any, Any], known: bool) -> Slots:
    """Slots in a table of vertices, starts and numbers."""
    room = len(found.columns)
    slots = device.empty(room, np.int64)
    if held.size and not known:
        device.start("enter_known", held.size, held.pointers, held.vertices, k, *table)
    device.start("enter_found", room, found.pointers, found.columns, k, *table, slots)
    return Slots(table[2], slots)


def _settled(device: Device, k: int, held: Held, found: Found, slots: Any) -> Slots:
    """Numbers of slots without gaps: those of what is held, then of what was found."""
    numbers = device.full(len(slots), _FREE, np.uint32)
    device.start("enter_slots", len(slots), held.pointers, held.size, found.pointers, k, slots, numbers)
    return Slots(numbers, slots[held.size :])


def _sorted(device: Device, words: Any, shifts: range) -> Any:
    """Words in the order of their digits at `shifts`, of equal ones in the order that they had."""
    n = len(words)
    tiles = -(-n // _TILE)
    counts, other = device.empty(_RADIX * tiles, np.int32), device.empty(n, np.uint64)
    for shift in shifts:
        device.blocks("count_digits", tiles, words, n, shift, tiles, counts)
        device.blocks("move_words", tiles, words, n, shift, tiles, device.pointers(counts), other)
        words, other = other, words
    return words


def _bits(count: int) -> int:
    """Bits that tell `count` things apart."""
    return max(count - 1, 0).bit_length()
