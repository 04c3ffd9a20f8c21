"""Predict messages and bytes of every operation of a `BlockRowAdjacency` from its layout, by the table in `matrix.block_rows`.

No rank sends anything here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bulksample.adjacency import Entries
from bulksample.backends.base import Backend
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.reply_slots import Counted, RowLaw, count_drawable, is_padded
from bulksample.errors import UsageError
from bulksample.graph.selection import Selection
from bulksample.local_adjacency import LocalAdjacency
from bulksample.rng import Draw
from bulksample.sparse import CSR, row_pointers

from .collectives import ID, VALUE, CollectiveCosts, GridSent, nothing_sent, on_grid
from .staged_rows import StagedCosts


class BlockRowCosts(ABC):
    """Predicted messages and bytes of each operation of a `BlockRowAdjacency`.

    Methods take the arguments of all ranks: p selections in rank order. `first_use` predicts what a first layer-wise call adds.

    Parameters
    ----------
    ranks, replication : p and c
    matrix : CSR, shape (n, n)
        The whole of A.
    backend : Backend
        Computes the products whose sizes are needed.
    layout : Layout, optional
        Layout of p / c block rows; by default as even as possible.

    Raises
    ------
    UsageError
        If c does not divide p, or the layout does not have n rows in p / c blocks.
    """

    def __init__(self, ranks: int, replication: int, matrix: CSR, backend: Backend, layout: Layout | None = None) -> None:
        if replication < 1 or ranks % replication:
            fits = ", ".join(str(c) for c in range(1, ranks + 1) if ranks % c == 0)
            raise UsageError(f"replication must divide the number of ranks: got c = {replication} with p = {ranks}; use c in {{{fits}}}")
        self.ranks, self.replication, self.rows = ranks, replication, ranks // replication
        self.whole, self.weighted = LocalAdjacency(matrix, backend), matrix.values is not None
        self.layout = layout or Layout.even(matrix.shape[0], self.rows)
        n, rows, blocks = matrix.shape[0], self.layout.n, self.layout.blocks
        if (rows, blocks) != (n, self.rows):
            raise UsageError(f"the layout must divide {n} rows into {self.rows} blocks; got {rows} rows in {blocks}")
        self.column, self.row = CollectiveCosts("column", self.rows, replication), CollectiveCosts("row", self.rows, replication)

    @abstractmethod
    def sample_rows(self, asked: Sequence[Selection], fanout: int, draw: Draw) -> GridSent:
        """Predict `Adjacency.sample_rows`."""

    @abstractmethod
    def left_multiply(self, asked: Sequence[Selection], entries: Entries) -> GridSent:
        """Predict `Adjacency.left_multiply`."""

    @abstractmethod
    def sample_layer(self, asked: Sequence[Selection], entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> GridSent:
        """Predict `Adjacency.sample_layer`."""

    @abstractmethod
    def restrict(self, rows: Sequence[Selection], columns: Sequence[Selection], shares: bool = True) -> GridSent:
        """Predict `Adjacency.restrict`."""

    def first_rows(self, laws: Sequence[RowLaw] = ()) -> GridSent:
        """Predict what `sample_rows` adds, once, by draws of the given laws: nothing, unless a policy says otherwise."""
        return nothing_sent(self.rows, self.replication)

    def first_use(self, entries: Entries) -> GridSent:
        """Predict what the first layer-wise call with these entries adds, once.

        Squares need the longest column of A: each rank sends n counts of 8 bytes to the owners of their ranges, then one number.
        """
        if entries != "squares":
            return nothing_sent(self.rows, self.replication)
        widths = np.broadcast_to(np.diff(self.layout.bounds), (self.rows, self.replication, self.rows))
        return self.column.alltoall(8 * widths) + self.column.allgather(self._on_grid([8] * self.ranks))

    def _on_grid(self, values: ArrayLike) -> np.ndarray:
        """Arrange one value for each rank on the grid: int64, shape (p / c, c, ...)."""
        return on_grid(values, self.replication)

    def _to_each(self, members: CollectiveCosts, asked: Sequence[Selection]) -> GridSent:
        """Predict sending every selection to all members."""
        minibatches, rows = (members.to_each(self._on_grid(sizes)) for sizes in ([len(q) for q in asked], [len(q.vertices) for q in asked]))
        return members.requests(minibatches, rows, asked[0].own_names is not None)

    def _stored(self, entries: Entries) -> bool:
        """Return True if the matrix with these entries has values."""
        return entries == "squares" or (entries == "weights" and self.weighted)


class OwnerCosts(BlockRowCosts):
    """Predicted messages and bytes of `OwnerAdjacency`."""

    def sample_rows(self, asked: Sequence[Selection], fanout: int, draw: Draw) -> GridSent:
        rows = self._by_owner(asked)
        if is_padded(fanout, self.whole.matrix.nnz, self.layout.n):
            return self._to_owners(asked, rows) + self.column.in_slots(fanout * rows)
        drawn = self._drawn(RowLaw(fanout, draw.law))
        return self._to_owners(asked, rows) + self.column.in_slots(self._by_owner(asked, [drawn[q.vertices] for q in asked]))

    def first_rows(self, laws: Sequence[RowLaw] = ()) -> GridSent:
        """Predict the entries of all block rows: each rank sends 8 bytes to the others of its process column.

        In the first draw whose answers are not padded it sends 8 more, and the counts of its rows where these are missing.
        """
        matrix, widths = self.whole.matrix, dict[Hashable, int]()
        number = self.column.allgather(self._on_grid([8] * self.ranks))
        counted = [law for law in laws if not is_padded(law.fanout, matrix.nnz, self.layout.n)]
        sent = number * (2 if counted else 1)
        for law in counted:
            width = law.width_of_counts(int(matrix.degrees.max(initial=0)))
            sent += self.column.counts([Counted(self.weighted and law.reads_weights, self.layout, width)], widths)
        return sent

    def restrict(self, rows: Sequence[Selection], columns: Sequence[Selection], shares: bool = True) -> GridSent:
        kept = [np.diff(self.whole.restrict(*pair, shares).pointers) for pair in zip(rows, columns, strict=True)]
        asked, edges = self._by_owner(rows), self._by_owner(rows, kept)
        selected = self.column.to_each(self._on_grid([len(q.vertices) for q in columns]))
        return self._to_owners(rows, asked, selected) + self.column.answers(asked, edges, shares)

    def left_multiply(self, asked: Sequence[Selection], entries: Entries) -> GridSent:
        return self._sums(asked, entries, most=self.layout.n)

    def sample_layer(self, asked: Sequence[Selection], entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> GridSent:
        return self._sums(asked, entries, most=self.layout.n if fanout < 0 else fanout + 1)

    def first_use(self, entries: Entries) -> GridSent:
        """Add the column blocks: block row i sends to m a count for each of its rows, and its entries in the columns of block m."""
        matrix, blocks = self.whole.matrix, self.layout.blocks_of
        pair = blocks(matrix.row_of_entry()) * self.rows + blocks(matrix.indices)
        crossing = np.bincount(pair, minlength=self.rows**2).reshape(self.rows, 1, self.rows).repeat(self.replication, axis=1)
        counts = np.broadcast_to(np.diff(self.layout.bounds)[:, None, None], crossing.shape)
        sent = super().first_use(entries) + self.column.alltoall(ID * counts) + self.column.alltoall(ID * crossing)
        return sent + self.column.alltoall(VALUE * crossing) if self._stored(entries) else sent

    def _sums(self, asked: Sequence[Selection], entries: Entries, most: int) -> GridSent:
        """Predict column sums from every range, at most `most` for each mini-batch."""
        sizes = []
        for q in asked:
            product = self.whole.left_multiply(q, entries)
            place = product.row_of_entry() * self.rows + self.layout.blocks_of(product.indices)
            of_range = np.bincount(place, minlength=len(q) * self.rows).reshape(len(q), self.rows)
            sizes.append(np.minimum(of_range, most).sum(axis=0))
        minibatches = self.column.to_each(self._on_grid([_answered(q) for q in asked]))
        return self._to_each(self.column, asked) + self.column.answers(minibatches, self._on_grid(sizes), values=True)

    def _to_owners(self, asked: Sequence[Selection], rows: np.ndarray, columns: np.ndarray | None = None) -> GridSent:
        minibatches = self.column.to_each(self._on_grid([len(q) for q in asked]))
        return self.column.requests(minibatches, rows, asked[0].own_names is not None, columns)

    def _by_owner(self, asked: Sequence[Selection], each: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Sum a number for each requested row, 1 by default, over the rows of every block: shape (p / c, c, p / c)."""
        numbers = each or [np.ones(len(q.vertices)) for q in asked]
        owners = [self.layout.blocks_of(q.vertices) for q in asked]
        return self._on_grid([np.bincount(block, number, self.rows) for block, number in zip(owners, numbers, strict=True)])

    def _drawn(self, law: RowLaw) -> np.ndarray:
        """Return the number of picks from each row of A. Draws by weight skip entries of weight zero."""
        counts = count_drawable(self.whole.matrix, self.weighted and law.reads_weights)
        return np.asarray(law.edges_drawn(counts), np.int64)


class RowsCosts(BlockRowCosts):
    """Predicted messages and bytes of `RowsAdjacency`."""

    def __init__(
        self, ranks: int, replication: int, matrix: CSR, backend: Backend, layout: Layout | None = None, oblivious: bool = False
    ) -> None:
        super().__init__(ranks, replication, matrix, backend, layout)
        self._fetching = StagedCosts(self.layout, self.whole.matrix.degrees, replication, oblivious)

    def sample_rows(self, asked: Sequence[Selection], fanout: int, draw: Draw) -> GridSent:
        return self._fetched(asked)

    def restrict(self, rows: Sequence[Selection], columns: Sequence[Selection], shares: bool = True) -> GridSent:
        return self._fetched(rows)

    def sample_layer(self, asked: Sequence[Selection], entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> GridSent:
        return self.left_multiply(asked, entries)

    def left_multiply(self, asked: Sequence[Selection], entries: Entries) -> GridSent:
        parts = [_split(q, self._fetching.shares) for q in asked]
        sizes = [[self.whole.left_multiply(part, entries).nnz for part in own] for own in parts]
        rows = self._on_grid([[len(part.vertices) for part in own] for own in parts])
        minibatches = self.row.to_each(self._on_grid([len(q) for q in asked]))
        told = self.row.requests(minibatches, rows, asked[0].own_names is not None)
        back = self.row.answers(np.where(rows > 0, minibatches, 0), self._on_grid(sizes), values=True)
        return told + self._stages([q.vertices for q in asked], self._stored(entries)) + back

    def _fetched(self, asked: Sequence[Selection]) -> GridSent:
        named = [np.unique(q.vertices) for q in asked]
        ids, back = self._fetching.told(named), self._fetching.returned(named, self.weighted)
        return ids + self._stages(named, self.weighted) + back

    def _stages(self, named: Sequence[np.ndarray], values: bool) -> GridSent:
        return self._fetching.stages(named, values)


def _answered(q: Selection) -> int:
    """Return the mini-batches of which products come back: a selection without rows is not requested."""
    return len(q) if len(q.vertices) else 0


def _split(q: Selection, layout: Layout) -> list[Selection]:
    """Split a selection into one part for each block of a layout."""
    owner, parts = layout.blocks_of(q.vertices), []
    for block in range(layout.blocks):
        rows = np.flatnonzero(owner == block)
        sizes = np.bincount(q.minibatch_of_row()[rows], minlength=len(q))
        parts.append(Selection(q.minibatches, row_pointers(sizes), q.vertices[rows], q.n))
    return parts


def costs_of(
    exchange: str, ranks: int, replication: int, matrix: CSR, backend: Backend, layout: Layout | None = None
) -> OwnerCosts | RowsCosts:
    """Return the predicted messages and bytes of an exchange policy: owner, rows or rows-oblivious."""
    if exchange == "owner":
        return OwnerCosts(ranks, replication, matrix, backend, layout)
    return RowsCosts(ranks, replication, matrix, backend, layout, oblivious=exchange == "rows-oblivious")
