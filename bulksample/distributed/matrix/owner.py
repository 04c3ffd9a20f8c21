"""The `owner` policy: a row's owner draws from it, and a range's owner adds up its columns. Only picks travel.

Node-wise: rows go to their owners inside the process column, s picks a row come back. Layer-wise: every member of the
column holds the columns of its own range, over all rows, so its sums are complete; the s + 1 smallest keys of each
range contain the s + 1 smallest of all. Before and after, each rank holds its block row, its column block (made at the
first layer-wise call) and its own minibatches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from ...adjacency import Entries, Kept, race_weights
from ...backends.base import Backend, LayerPicks, Picks, check_fanout
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR
from ..comm.base import Comm
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout
from .selection_exchange import (
    exchange_ragged_rows,
    exchange_selections,
    in_request_order,
    merge_columns,
    row_pointers,
    split_by_owner,
    stack_selections,
    to_places,
)


class OwnerAdjacency(BlockRowAdjacency):
    """Block rows of A; work travels to the data."""

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None) -> None:
        super().__init__(grid, block, backend, layout)
        self._own = self.layout.members(grid.row)
        self._made: dict[Entries, CSR] = {}  # column blocks

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        """Per row 4 bytes go (8 where rows are named), 4 and 4 per pick come back."""
        routed = split_by_owner(q, self.layout)
        asked = exchange_selections(self._column, routed.parts)
        picks = self.backend.sample_rows(
            self.block, to_places(stack_selections(asked), self.layout, self.first), check_fanout(fanout), draw
        )
        answers = exchange_ragged_rows(self._column, [len(part.vertices) for part in asked], picks.pointers, [picks.columns])
        return Picks(*in_request_order(routed.order, answers))

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> Kept:
        """Rows go to their owners, columns to all members of the process column; 4 bytes an edge come back, 12 with shares."""
        routed = split_by_owner(rows, self.layout)
        asked = exchange_selections(self._column, routed.parts)
        selected = stack_selections(exchange_selections(self._column, [columns] * self._column.size))
        kept = self.local.restrict(to_places(stack_selections(asked), self.layout, self.first), selected, shares)
        entries = [kept.columns] if kept.shares is None else [kept.columns, kept.shares]
        answers = exchange_ragged_rows(self._column, [len(part.vertices) for part in asked], kept.pointers, entries)
        ends, *found = in_request_order(routed.order, answers)
        return Kept(ends, found[0], found[1] if shares else None)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        """The frontier goes to all members of the process column; 12 bytes per entry of the product come back."""
        asked, product = self._multiply_own_range(q, entries)
        columns = self._own[product.indices]
        answers = exchange_ragged_rows(self._column, [len(part) for part in asked], product.indptr, [columns, product.entries()])
        ends, found, values = merge_columns(answers)
        return CSR(ends, found, values, (len(q), self.n))

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        """The frontier goes to all members of the process column; 12 bytes for each of at most s + 1 candidates come back."""
        check_fanout(fanout)
        asked, product = self._multiply_own_range(q, entries)
        columns, sums = self._own[product.indices], product.entries()
        ids = np.concatenate([part.minibatches for part in asked])
        weights = race_weights(sums, power)
        near = self.backend.smallest_keys(product.indptr, columns, weights, -1 if fanout < 0 else fanout + 1, ids, draw)
        row = np.repeat(np.arange(len(ids)), np.diff(near.pointers))
        place = np.searchsorted(product.row_of_entry() * self.n + columns, row * self.n + near.columns)
        answers = exchange_ragged_rows(self._column, [len(part) for part in asked], near.pointers, [near.columns, sums[place]])
        ends, found, values = merge_columns(answers)
        return self.backend.smallest_keys(ends, found, race_weights(values, power), fanout, q.minibatches, draw)

    @property
    def _column(self) -> Comm:
        return self.grid.column_comm

    def _multiply_own_range(self, q: Selection, entries: Entries) -> tuple[list[Selection], CSR]:
        """Who asked, and Q A[:, own range] for all of them, columns counted within the range."""
        asked = exchange_selections(self._column, [q] * self._column.size)
        return asked, self.backend.spgemm(to_places(stack_selections(asked), self.layout).per_minibatch(), self._columns_of(entries))

    def _columns_of(self, entries: Entries) -> CSR:
        """A[:, own range] with those entries; made at the first call, which is collective."""
        if entries not in self._made:
            self._made[entries] = self._column_block(self.with_entries(entries))
        return self._made[entries]

    def _column_block(self, rows: CSR) -> CSR:
        """A[:, own range], rows by place, from all block rows; 4 bytes per row and range, 4 (12 with values) per entry."""
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
