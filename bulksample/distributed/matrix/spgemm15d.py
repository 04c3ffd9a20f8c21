"""The `rows` policy: the 1.5D product Q A. Rows of A travel to the ranks that multiply with them.

Process row i stacks the mini-batches of its c members as Q_i; member j receives the part of Q_i in its block columns. Process (i, j) works
on the block columns k of column j, one in each stage. It requests the rows of all its stages that the nonzero columns of Q_ik name at once
from the ranks of its process column that hold them (`rows`), and they send the lengths of these rows. In a stage it receives the rows of
block row k, or the whole block row (`rows-oblivious`), and multiplies while the next rows travel. In the end the partial products of the c
members are summed inside the process row; each member receives the rows of its own mini-batches.

A frontier with one row of Q for each vertex needs no product: the fetched rows are the rows of P.

Relations: Q selects rows of every type, so its nonzero columns name vertices; the row of a vertex holds its rows in all relations that end
in its type and draw in this hop. The distinct vertices of all mini-batches of a process row are fetched once: what a stage sends does not
grow in messages with the number of relations. Places of vertices are those of `StackedPlaces`. A row that travels, in words of 4 bytes,
with r over these relations in order:

    edges of each r  (| first entry of each r, 2 words)  | of each r:  sources  (| weights, 2 words each) (| times of edges, 2 words each)

Weights travel where the law reads them, and times where those of edges count; those of vertices lie on every rank. Rows travel whole and
not as windows of time: trees of one bulk ask for the same row at many times, and it is sent once. The rank that draws sorts rows by time
and finds the windows.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2
and algorithm 2. Their all-reduce over the process row is a reduce-scatter here, because no member needs another's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from ...adjacency import Entries, KeptEdges
from ...backends.base import Backend, Picks, check_fanout
from ...backends.relation_draws import Frontier, draw_rows
from ...backends.relational import RelationLaw, RelationMatrix, RowPicks
from ...errors import PeerLost
from ...graph import Graph
from ...graph.selection import Selection
from ...local_adjacency import LocalAdjacency
from ...rng import Draw
from ...sparse import CSR, row_pointers, runs
from ..comm.base import Pending
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout, StackedPlaces, TypeLayouts
from .messages import (
    MessageReader,
    RaggedRows,
    RowRequests,
    RowsToSend,
    Section,
    exchange_ragged_rows,
    pack,
    request_ids,
    start_ragged_rows,
)
from .relation_blocks import PartitionedRelations, RelationBlock
from .requests import HopForm, request_rows, route, to_places

Extract = Callable[[np.ndarray], CSR]  # rows of this rank's block, int32 of shape (R,), which may repeat -> a CSR of R rows


class StagedRows:
    """The stages in which rows travel on a process grid. Its methods are collective over the grid.

    Parameters
    ----------
    grid : ProcessGrid
    backend : Backend
    bounds : int64, shape (p / c + 1,)
        Block row i holds the rows of the places ``bounds[i]:bounds[i + 1]``.
    width : int
        Columns of the matrix.
    weighted : bool
        True if rows have int64 values when `fetch` is called.
    oblivious : bool
        Send whole block rows instead of the requested rows; serves as a baseline for measurements.

    Attributes
    ----------
    shares : int64, shape (c + 1,)
        Process column j works on the rows of the places ``shares[j]:shares[j + 1]``: its block columns.
    """

    def __init__(
        self, grid: ProcessGrid, backend: Backend, bounds: np.ndarray, width: int, weighted: bool = False, oblivious: bool = False
    ) -> None:  # fmt: skip
        self.grid, self.backend, self.bounds, self.width = grid, backend, bounds, width
        self.weighted, self.oblivious = weighted, oblivious
        self.shares = bounds[[0, *(grid.block_columns(j).stop for j in range(grid.replication))]]

    def fetch(self, places: np.ndarray, extract: Extract) -> CSR:
        """Fetch the rows of distinct places, int32 and ascending: row r of the result is that of place ``places[r]``.

        Each rank requests rows from the members of its process row, of each those in its block columns. A member fetches what they all
        name, each row once, and sends every member its rows.
        """
        row_comm = self.grid.row_comm
        if row_comm.size == 1:
            return self._stacked(places, extract)
        requests = request_ids(row_comm, self.shares, [places])[0]
        ids = np.unique(requests.requested)
        sent = self.backend.extract_rows(self._stacked(ids, extract), np.searchsorted(ids, requests.requested).astype(np.int32))
        answers = exchange_ragged_rows(row_comm, requests.requested_counts, sent.indptr, _entries(sent), requests.expected)
        return self._matrix(answers.counts, answers.arrays)  # columns of the grid ascend, so places do

    def stages(self, ids: np.ndarray, extract: Extract) -> Iterator[tuple[int, np.ndarray, CSR]]:
        """Yield for each block column of this process column its first place, the `ids` in it, and their rows.

        `ids` are distinct places in these block columns, int32, that ascend. `extract` returns rows of this rank's block, all with values
        or all without.
        """
        grid, column = self.grid, self.grid.column_comm
        stages = grid.block_columns(grid.column)
        if not stages:
            return
        requests = self._whole_blocks(stages) if self.oblivious else request_ids(column, self.bounds, [ids])[0]
        sent = extract(requests.requested - np.int32(0 if self.oblivious else self.bounds[grid.row]))
        known = None if self.oblivious else requests.expected  # requests have compared the places of the ranks in the program
        entries_of = column.alltoall_rows(np.diff(sent.indptr).astype(np.int32), requests.requested_counts, "topology", incoming=known)
        if entries_of.min(initial=0) < 0:
            raise PeerLost("a rank sent lengths of rows below zero")
        ends, cuts = row_pointers(requests.expected), np.searchsorted(ids, self.bounds)

        def start(k: int) -> Pending[list[RaggedRows]]:
            lengths, expected = entries_of[ends[k] : ends[k + 1]], np.where(np.arange(column.size) == k, requests.expected, 0)
            if grid.row == k:
                part = RowsToSend(requests.requested_counts, sent.indptr, _entries(sent), expected, lengths)
            else:
                nothing = [array[:0] for array in _entries(sent)]
                part = RowsToSend(np.zeros_like(expected), np.zeros(1, np.int64), nothing, expected, lengths)
            return start_ragged_rows(column, [part])

        waiting = [start(stages[0])]
        for k in stages:
            pending = waiting.pop()
            waiting += [start(following) for following in (k + 1,) if following in stages]
            (received,), needed = pending.wait(), ids[cuts[k] : cuts[k + 1]]
            rows = self._matrix(received.counts, received.arrays)
            if self.oblivious:
                rows = self.backend.extract_rows(rows, needed - np.int32(self.bounds[k]))
            yield int(self.bounds[k]), needed, rows

    def _whole_blocks(self, stages: range) -> RowRequests:
        """Return the requests of all ranks of the process column for whole block rows: no rank need tell them."""
        heights = np.diff(self.bounds)
        height, size = int(heights[self.grid.row]) * (self.grid.row in stages), self.grid.column_comm.size
        expected = np.where(np.isin(np.arange(size), stages), heights, 0)
        return RowRequests(expected, np.tile(np.arange(height, dtype=np.int32), size), np.full(size, height))

    def _stacked(self, ids: np.ndarray, extract: Extract) -> CSR:
        """Fetch the rows of places in the block columns of this process column, one below the other."""
        parts = [CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64) if self.weighted else None, (0, self.width))]
        parts += [rows for _, _, rows in self.stages(ids, extract)]
        arrays = [np.concatenate(arrays) for arrays in zip(*map(_entries, parts), strict=True)]
        return self._matrix(np.concatenate([part.degrees for part in parts]), arrays)

    def _matrix(self, counts: np.ndarray, arrays: list[np.ndarray]) -> CSR:
        """Return rows of so many entries, with the columns in ``arrays[0]`` and perhaps values in ``arrays[1]``."""
        return CSR(row_pointers(counts), arrays[0], arrays[1] if len(arrays) > 1 else None, (len(counts), self.width))


def _entries(rows: CSR) -> list[np.ndarray]:
    return [rows.indices] if rows.values is None else [rows.indices, rows.values]


class RowsAdjacency(BlockRowAdjacency):
    """An adjacency in block rows that sends rows of A to the ranks that need them.

    Parameters
    ----------
    oblivious : bool
        Send whole block rows instead of the requested rows; serves as a baseline for measurements.
    """

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None, oblivious: bool = False) -> None:
        super().__init__(grid, block, backend, layout)
        self._rows = StagedRows(grid, backend, self.bounds, self.n, self.weighted, oblivious)
        self._shares = Layout(self._rows.shares, self.layout.order, self.layout.position)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        routed = route(q, self._shares)
        members = request_rows(self.grid.row_comm, q, routed)
        q_row = to_places(members.rows, self.layout)
        none = CSR(np.zeros(len(q_row) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), (len(q_row), self.n))
        products, extract = [none], partial(self.backend.extract_rows, self.with_entries(entries))
        for first, needed, rows in self._rows.stages(np.unique(q_row.vertices), extract):
            here = (q_row.vertices >= first) & (q_row.vertices <= (needed[-1] if len(needed) else -1))
            places = np.searchsorted(needed, q_row.vertices[here])
            q_k = CSR.from_edges(q_row.minibatch_of_row()[here], places, (len(q_row), len(needed)))
            products.append(self.backend.spgemm(q_k, rows))
        triples = [(m.row_of_entry(), m.indices, m.entries()) for m in products]
        row, columns, values = (np.concatenate(arrays) for arrays in zip(*triples, strict=True))
        sums = CSR.from_edges(row, columns, none.shape, values)  # the sum: canonical, and stores no zeros
        expected = np.where(routed.runs.rows > 0, len(q), 0)
        answers = exchange_ragged_rows(self.grid.row_comm, members.minibatches, sums.indptr, [sums.indices, sums.entries()], expected)
        row = runs(np.zeros(len(answers.rows)), answers.rows)
        return CSR.from_edges(np.repeat(row, answers.counts), answers.arrays[0], (len(q), self.n), answers.arrays[1])

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        fetched, at = self._fetch(q)
        return self.backend.sample_rows(fetched, at, check_fanout(fanout), draw)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        fetched, at = self._fetch(rows)
        return LocalAdjacency(fetched, self.backend, checked=True).restrict(at, columns, shares)

    def _fetch(self, q: Selection) -> tuple[CSR, Selection]:
        """Fetch the distinct rows of A of a selection, by place; return them, and the selection with positions among them as vertices."""
        distinct, places = np.unique(self.layout.places(q.vertices), return_inverse=True)
        rows = self._rows.fetch(distinct, partial(self.backend.extract_rows, self.block))
        return rows, Selection(q.minibatches, q.pointers, places, q.n, q.names)


class RowsRelations(PartitionedRelations):
    """Relations in block rows that send rows, or whole block rows (`oblivious`, a baseline), to ranks that draw; collective."""

    def __init__(
        self, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock], oblivious: bool = False
    ) -> None:  # fmt: skip
        super().__init__(graph, backend, blocks, held)
        self._stacked = StackedPlaces(self.layouts)
        self._rows = StagedRows(self.grid, backend, self._stacked.bounds, graph.n, oblivious=oblivious)

    def _draw(self, form: HopForm, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw]) -> dict[int, RowPicks]:
        places = {t: self._stacked.places(t, frontiers[t].vertices) for t in form.types}
        distinct = np.unique(np.concatenate(list(places.values())))
        fetched = self._rows.fetch(distinct, lambda rows: self._packed(form, rows))
        kinds, out = self._stacked.located(distinct)[0], dict[int, RowPicks]()
        for t in form.types:
            among = np.flatnonzero(kinds == t)
            local = frontiers[t]._replace(vertices=np.searchsorted(distinct[among], places[t]).astype(np.int32))
            for one, (rows, firsts) in zip(form.into(t), self._unpacked(form, t, fetched, among), strict=True):
                picks, entries = draw_rows(self.backend, rows, local, laws[one.place], form.rules.moving), None
                if firsts is not None and picks.entries is not None:  # positions in the whole adjacency, of which row r begins at firsts[r]
                    shift = (firsts - rows.matrix.indptr[:-1])[local.vertices]
                    entries = picks.entries + np.repeat(shift, np.diff(picks.pointers))
                out[one.place] = picks._replace(entries=entries)
        return out

    def _packed(self, form: HopForm, rows: np.ndarray) -> CSR:
        """Pack rows of this rank's block, each into words; `rows` are places from its first one on."""
        kinds, local = self._stacked.located(rows + self._stacked.bounds[self.grid.row])
        lengths, packed = np.zeros(len(rows), np.int64), list[tuple[np.ndarray, np.ndarray]]()
        for t in form.types:
            among = np.flatnonzero(kinds == t)
            words, lengths[among] = pack(_sections(form, t, self.held, local[among]))
            packed.append((among, words))
        pointers = row_pointers(lengths)
        words = np.empty(int(pointers[-1]), np.int32)
        for among, of_type in packed:
            words[runs(pointers[among], lengths[among])] = of_type
        return CSR(pointers, words, None, (len(rows), self.n))

    def _unpacked(self, form: HopForm, kind: int, fetched: CSR, among: np.ndarray) -> list[tuple[RelationMatrix, np.ndarray | None]]:
        """Return for each relation into a type its fetched rows, and the first entry of each in the whole adjacency."""
        relations, made = form.into(kind), list[tuple[RelationMatrix, np.ndarray | None]]()
        heads, reader = np.full(len(among), len(relations)), MessageReader(fetched.indices, fetched.degrees[among], fetched.indptr[among])
        counts = reader.take(heads).reshape(-1, len(relations))
        firsts = reader.take(heads, np.int64).reshape(-1, len(relations)) if form.rules.entries else None
        for i, one in enumerate(relations):
            of_row = counts[:, i]
            sources = reader.take(of_row)
            weights, times = (reader.take(of_row, np.int64) if there else None for there in (one.by_weight, one.edge_times))
            relation, block = self.graph.relations[one.place], self.relations(form.rules.by)[one.place]
            stamps = self.graph.type(relation.source).times
            if form.rules.by == "vertices" and stamps is not None:
                times = np.array(stamps[sources])
            matrix = CSR(row_pointers(of_row), sources, weights, (len(of_row), relation.adjacency.shape[1]))
            rows = RelationMatrix(block.source, block.destination, matrix, times, block.parallel)
            made.append((rows, None if firsts is None else firsts[:, i]))
        reader.finish("rows of relations of another length than their counts say")
        return made


def _sections(form: HopForm, kind: int, blocks_of_rank: Sequence[RelationBlock], rows: np.ndarray) -> list[Section]:
    """Return the sections of rows of one type: each row is a message."""
    blocks = [(one, blocks_of_rank[one.place]) for one in form.into(kind)]
    degrees = np.stack([block.matrix.degrees[rows] for _, block in blocks], axis=1)
    heads = np.full(len(rows), len(blocks))
    sections = [Section(degrees.astype(np.int32).reshape(-1), heads)]
    if form.rules.entries:
        firsts = [block.matrix.indptr[:-1][rows] + block.shift_of(rows) for _, block in blocks]
        sections.append(Section(np.stack(firsts, axis=1).reshape(-1), heads))
    for (one, block), counts in zip(blocks, degrees.T, strict=True):
        at = runs(block.matrix.indptr[:-1][rows], counts)
        for array, there in ((block.matrix.indices, True), (block.matrix.values, one.by_weight), (block.times, one.edge_times)):
            if there and array is not None:
                sections.append(Section(array[at], counts))
    return sections
