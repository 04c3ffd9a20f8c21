"""The `owner` policy: the owner of a row draws from it, and the owner of a column range adds up its columns. Only picks travel.

Node-wise: requests for rows go to their owners in the process column, and s picks a row come back. Layer-wise: every member of the
column holds its own range of columns over all rows, so its column sums are complete. The s + 1 smallest keys of each range contain
the s + 1 smallest of all. Before and after, each rank holds its block row, its column block (made in the first layer-wise call) and
its own mini-batches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from ...adjacency import Entries, KeptEdges, race_weights
from ...backends.base import Backend, LayerPicks, Picks, check_fanout
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR, row_pointers
from ..comm.base import Comm
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout
from .selection_exchange import (
    exchange_ragged_rows,
    exchange_selections,
    in_request_order,
    merge_columns,
    split_by_owner,
    stack_selections,
    to_places,
)


class OwnerAdjacency(BlockRowAdjacency):
    """An adjacency in block rows that sends requests to the owners of rows."""

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None) -> None:
        super().__init__(grid, block, backend, layout)
        self._own = self.layout.members(grid.row)
        self._column_blocks: dict[Entries, CSR] = {}

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        """Send each row to its owner (4 bytes, or 8 with names); receive 4 bytes a row and 4 bytes a pick."""
        routed = split_by_owner(q, self.layout)
        requests = exchange_selections(self._column, routed.parts)
        picks = self.backend.sample_rows(
            self.block, to_places(stack_selections(requests), self.layout, self.first), check_fanout(fanout), draw
        )
        answers = exchange_ragged_rows(self._column, [len(part.vertices) for part in requests], picks.pointers, [picks.columns])
        return Picks(*in_request_order(routed.order, answers))

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        """Send rows to their owners and columns to the whole process column; receive 4 bytes an edge, 12 with shares."""
        routed = split_by_owner(rows, self.layout)
        requests = exchange_selections(self._column, routed.parts)
        selected = stack_selections(exchange_selections(self._column, [columns] * self._column.size))
        kept = self.local.restrict(to_places(stack_selections(requests), self.layout, self.first), selected, shares)
        entries = [kept.columns] if kept.shares is None else [kept.columns, kept.shares]
        answers = exchange_ragged_rows(self._column, [len(part.vertices) for part in requests], kept.pointers, entries)
        ends, *found = in_request_order(routed.order, answers)
        return KeptEdges(ends, found[0], found[1] if shares else None)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        """Compute Q A: send the frontier to all ranks of the process column; receive 12 bytes for each entry of the product."""
        requests, product = self._multiply_own_range(q, entries)
        columns = self._own[product.indices]
        answers = exchange_ragged_rows(self._column, [len(part) for part in requests], product.indptr, [columns, product.entries()])
        ends, found, values = merge_columns(answers)
        return CSR(ends, found, values, (len(q), self.n))

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        """Draw s vertices for each mini-batch, as `Adjacency.sample_layer` defines.

        Sends the frontier to all ranks of the process column. Each returns at most s + 1 candidates, those of
        its own columns with the smallest keys: 12 bytes a candidate.
        """
        check_fanout(fanout)
        requests, product = self._multiply_own_range(q, entries)
        columns, sums = self._own[product.indices], product.entries()
        ids = np.concatenate([part.minibatches for part in requests])
        weights = race_weights(sums, power)
        near = self.backend.smallest_keys(product.indptr, columns, weights, -1 if fanout < 0 else fanout + 1, ids, draw)
        row = np.repeat(np.arange(len(ids)), np.diff(near.pointers))
        place = np.searchsorted(product.row_of_entry() * self.n + columns, row * self.n + near.columns)
        answers = exchange_ragged_rows(self._column, [len(part) for part in requests], near.pointers, [near.columns, sums[place]])
        ends, found, values = merge_columns(answers)
        return self.backend.smallest_keys(ends, found, race_weights(values, power), fanout, q.minibatches, draw)

    @property
    def _column(self) -> Comm:
        return self.grid.column_comm

    def _multiply_own_range(self, q: Selection, entries: Entries) -> tuple[list[Selection], CSR]:
        """Return the selections of all members, and Q A[:, this rank's columns] for them, with columns numbered from 0."""
        requests = exchange_selections(self._column, [q] * self._column.size)
        return requests, self.backend.spgemm(to_places(stack_selections(requests), self.layout).per_minibatch(), self._columns_of(entries))

    def _columns_of(self, entries: Entries) -> CSR:
        """Return A[:, this rank's columns] with the given entries; the first call is collective and makes it."""
        if entries not in self._column_blocks:
            self._column_blocks[entries] = self._column_block(self.with_entries(entries))
        return self._column_blocks[entries]

    def _column_block(self, rows: CSR) -> CSR:
        """Collect this rank's column range of A from all block rows: 4 bytes for each row and range, 4 (12 with values) for each entry."""
        places = self.layout.places(rows.indices)
        target = np.searchsorted(self.bounds, places, side="right") - 1
        order = np.argsort(target, kind="stable")
        row = rows.row_of_entry()[order]
        cuts = np.searchsorted(target[order], np.arange(self._column.size + 1))
        columns = (places - self.bounds[target].astype(np.int32))[order]
        counts = [np.bincount(row[a:b], minlength=rows.shape[0]).astype(np.int32) for a, b in pairwise(cuts)]

        def move(array: np.ndarray) -> np.ndarray:
            return np.concatenate(self._column.alltoall([array[a:b] for a, b in pairwise(cuts)], "topology"))

        ends = row_pointers(np.concatenate(self._column.alltoall(counts, "topology")))
        values = None if rows.values is None else move(rows.values[order])
        width = int(self.bounds[self.grid.row + 1]) - self.first
        return CSR(ends, move(columns), values, (self.n, width))
