"""Predict what every rank of a process grid sends in the stages in which rows travel: see `matrix.spgemm15d`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bulksample.distributed.matrix.layout import Layout

from .collectives import ID, CollectiveCosts, GridSent, on_grid


class StagedCosts:
    """Predicted messages and bytes of `StagedRows` for p ranks, whose ids are given in rank order.

    Parameters
    ----------
    layout : Layout
        p / c block rows of n ids.
    lengths : int64, shape (n,)
        Entries of the row of each id.
    replication : c
    oblivious : bool

    Attributes
    ----------
    works_on : int64, shape (p / c,)
        The process column that works on each block column: the inverse of `ProcessGrid.block_columns`.
    shares : Layout
        A block for each process column: the ids that it works on.
    """

    def __init__(self, layout: Layout, lengths: np.ndarray, replication: int, oblivious: bool) -> None:
        self.layout, self.lengths, self.rows, self.replication, self.oblivious = layout, lengths, layout.blocks, replication, oblivious
        self.works_on = np.repeat(np.arange(replication), [len(part) for part in np.array_split(np.arange(self.rows), replication)])
        cuts = np.searchsorted(self.works_on, np.arange(replication + 1))
        self.shares = Layout(layout.bounds[cuts], layout.order, layout.position)
        self._column, self._row = (CollectiveCosts(along, self.rows, replication) for along in ("column", "row"))

    def fetch(self, named: Sequence[np.ndarray], values: bool = False) -> GridSent:
        """Predict `StagedRows.fetch` of the distinct ids of each rank."""
        return self.told(named) + self.stages(named, values) + self.returned(named, values)

    def told(self, named: Sequence[np.ndarray]) -> GridSent:
        """Predict telling the ids of each rank to the members of its process row that work on them."""
        return self._row.alltoall(ID * self._on_grid(self._counted(named, self.shares)[0]))

    def returned(self, named: Sequence[np.ndarray], values: bool) -> GridSent:
        """Predict sending fetched rows to the members of the process row that named them."""
        rows, entries = (self._on_grid(counts) for counts in self._counted(named, self.shares))
        return self._row.answers(rows, entries, values)

    def stages(self, named: Sequence[np.ndarray], values: bool) -> GridSent:
        """Predict the stages: all rows that a process row requests (or all rows) travel; block row k in process column `works_on[k]`."""
        return self.requested(named) + self.entries(named, values)

    def requested(self, named: Sequence[np.ndarray]) -> GridSent:
        """Predict the requests of all stages, and the lengths of the rows."""
        rows, _ = self._in_columns(named)
        lengths = self._column.alltoall(ID * rows.transpose(2, 1, 0), counts_known=not self.oblivious)
        sent = lengths if self.oblivious else lengths + self._column.alltoall(ID * rows)
        return np.where(np.isin(np.arange(self.replication), self.works_on), sent, 0)  # columns without stages exchange nothing

    def entries(self, named: Sequence[np.ndarray], values: bool) -> GridSent:
        """Predict the entries of the rows: in each stage one rank of a process column sends."""
        _, entries = self._in_columns(named)
        return self._column.in_slots(entries * (3 if values else 1))

    def _in_columns(self, named: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Count the rows, and their entries, that (i, j) receives from each rank of its column: int64, shape (p / c, c, p / c)."""
        c = self.replication
        together = [np.unique(np.concatenate(named[first : first + c])) for first in range(0, self.rows * c, c)]
        counted = self._counted([np.arange(self.layout.n)] * self.rows if self.oblivious else together, self.layout)
        here = self.works_on == np.arange(c)[:, None]
        return counted[0][:, None] * here, counted[1][:, None] * here

    def _counted(self, lists: Sequence[np.ndarray], layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        """Count for each list its ids in every block, and the entries of their rows: int64, shape (lists, blocks)."""
        blocks = [layout.blocks_of(ids) for ids in lists]
        rows = [np.bincount(block, minlength=layout.blocks) for block in blocks]
        entries = [np.bincount(block, self.lengths[ids], layout.blocks) for block, ids in zip(blocks, lists, strict=True)]
        return np.array(rows, np.int64), np.array(entries, np.int64)

    def _on_grid(self, values: np.ndarray | list[int]) -> np.ndarray:
        return on_grid(values, self.replication)
