"""Fixed-size reply slots, so replies need no length header.

A slot has as many entries as its row may draw, and all ranks know it. Padded replies have one slot size for all rows, the fanout s. Where
these would be mostly empty, the slot of a row is the number of edges that its law may draw from it, mostly min(s, degree). A rank holds its
own rows alone, so the ranks of a process column first gather a count for each row, once. A row that draws fewer edges leaves -1 at the end
of its slot. In windows of time, of which a slot would stay mostly empty, only padded replies are in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends.relational import RelationLaw
from ...rng import Law
from ...sparse import CSR, frozen, row_pointers, runs
from ..comm.base import Comm
from .layout import Layout

MOST_PADDED = 32  # picks a row


def is_padded(fanout: int, entries: int, n: int) -> bool:
    """Return True if replies of s picks a row are padded: s is at most 32, and at most twice one more than the mean degree."""
    return 0 <= fanout <= MOST_PADDED and fanout * n <= 2 * (n + entries)


class RowLaw(NamedTuple):
    """The law by which a row draws: how many edges, and which of them may be drawn."""

    fanout: int
    law: Law = Law.UNIFORM
    last: bool = False

    @staticmethod
    def of(law: RelationLaw) -> RowLaw:
        """Return what the law of a relation says of a row."""
        return RowLaw(law.fanout, law.draw.law, law.last)

    @property
    def reads_weights(self) -> bool:
        """True if an edge of weight zero is never drawn."""
        return self.law.weighs and not self.last

    @property
    def _replaces(self) -> bool:
        return self.fanout >= 0 and not self.last and self.law in (Law.REPLACEMENT, Law.WEIGHTED)

    def edges_drawn(self, counts: Any) -> Any:
        """Return how many edges are drawn from rows that may draw `counts`: an array or a tensor of integers."""
        if self.fanout < 0:
            return counts
        return (counts > 0) * self.fanout if self._replaces else counts.clip(0, self.fanout)

    def most_drawn(self, longest: int) -> int:
        """Return the most edges that a row draws, if the longest has so many."""
        return int(self.edges_drawn(np.array(longest)))

    def width_of_counts(self, longest: int) -> int:
        """Return the bytes (1, 2 or 4) of a count, perhaps cut off, that decides `edges_drawn` of rows of at most `longest` edges."""
        most = longest if self.fanout < 0 else min(longest, 1 if self._replaces else self.fanout)
        return 1 if most < 2**8 else 2 if most < 2**15 else 4


def count_drawable(matrix: CSR, by_weight: bool) -> np.ndarray:
    """Count the edges of each row, by weight only those of positive weight: int64, shape (m,)."""
    if not by_weight or matrix.values is None:
        return matrix.degrees
    return np.diff(row_pointers(matrix.values > 0)[matrix.indptr])


class Counted(NamedTuple):
    """Counts that all ranks must know of the rows of a matrix in block rows."""

    name: Hashable  # of the table, the same on every rank
    layout: Layout
    width: int  # bytes of a count: `RowLaw.width_of_counts`

    @property
    def dtype(self) -> np.dtype:
        return np.dtype("u1" if self.width == 1 else f"i{self.width}")  # torch has all three

    @property
    def sizes(self) -> np.ndarray:
        """The bytes of the counts of each block row: int64, shape (blocks,)."""
        return self.width * np.diff(self.layout.bounds)


def missing(wanted: Sequence[Counted], widths: Mapping[Hashable, int]) -> list[Counted]:
    """Return the counts that must still be gathered, given the bytes of the counts of each table that exists."""
    return [one for one in wanted if widths.get(one.name, 0) < one.width]


class RowCounts:
    """Tables of the counts of all rows, each gathered when it is first wanted; the members of `column` hold the block rows, in order."""

    def __init__(self, column: Comm) -> None:
        self._column = column
        self.tables: dict[Hashable, np.ndarray] = {}  # by name, shape (n,): the count of each place

    def gather(self, wanted: Sequence[Counted], count: Callable[[Hashable], np.ndarray]) -> None:
        """Gather the tables that are missing or too narrow; collective, with the same names on all ranks.

        ``count(name)`` returns the counts of this rank's rows: integers, shape (m,). Each rank sends them, 1, 2 or 4 bytes each, to every
        other rank, in one all-gather of all tables; nothing if none is missing.
        """
        new = missing(wanted, {name: table.itemsize for name, table in self.tables.items()})
        if not new:
            return
        parts = [np.minimum(count(one.name), np.iinfo(one.dtype).max).astype(one.dtype).view(np.uint8) for one in new]
        sizes = np.stack([one.sizes for one in new])
        together = self._column.allgather_rows(np.concatenate(parts), sizes.sum(axis=0), "topology")
        ends = row_pointers(sizes.T.reshape(-1))
        for i, one in enumerate(new):
            cuts = zip(ends[i : -1 : len(new)], ends[i + 1 :: len(new)], strict=True)
            table = together if len(new) == 1 else np.concatenate([together[first:last] for first, last in cuts])
            self.tables[one.name] = frozen(table.view(one.dtype))

    def slots(self, name: Hashable, law: RowLaw, places: np.ndarray) -> np.ndarray:
        """Return the slots of the rows at some places, by the table of their counts: int64."""
        return np.asarray(law.edges_drawn(self.tables[name][places].astype(np.int64)), np.int64)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables.values())


def fill_slots(slots: np.ndarray, counts: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Write consecutive rows of ``counts[r]`` entries each into slots, and -1 into what is left of a slot."""
    if len(entries) == slots.sum():
        return entries
    filled = np.full(int(slots.sum()), -1, entries.dtype)
    filled[runs(row_pointers(slots)[:-1], counts)] = entries
    return filled


def read_slots(slots: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many entries each slot holds (int64), and which of the words of all slots these are (bool), by a column of ids."""
    used = columns >= 0
    return np.diff(row_pointers(used)[row_pointers(slots)]), used
