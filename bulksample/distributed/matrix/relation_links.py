"""The links of a relation in block rows: their ends, and destinations that a source has no edge to, are known to other ranks.

An edge lies with its destination, and the rank that owns that row answers for its source and its time. What a source has edges to is a
column of the adjacency, whose entries lie with many ranks: each pair (source, destination) is sent once, at the beginning, to the owner of
the source, which draws negatives for all. So a bulk takes two requests in the process column, whatever it holds:

    ends         8 bytes an edge, its position   ->   4 bytes, its source; or 16, its source and its time, if edges have times
    negatives    12 bytes an edge: its source, the number of destinations that existed, a random word   ->   4 bytes, a destination

Draws are those of one rank. Row pointers of the relation and times of vertices are whole on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from ...data.held_out_links import EdgeEnds
from ...data.link_examples import LinkEnds, LinkExamples, drawn, rows_of
from ...graph import EDGE, NODE, Graph, Key, Relation, VertexType
from ...graph.links import NonNeighbors, check_destinations, times_of_ends
from ...sparse import CSR, row_pointers
from ..comm.agree import together
from ..comm.base import Comm
from .layout import Layout
from .open_graph import OpenBlock
from .relation_blocks import PartitionedRelations, RelationBlock


class PartitionedLinks(LinkExamples):
    """The edges of a relation that are no loops, where ranks own its rows; making one, and all methods, are collective.

    Making one sends the positions of loops to all ranks of the process column, if the ends are of one type: 8 bytes for each. `prepare`
    sends each edge to the owner of its source, 8 bytes, which keeps as much.
    """

    def __init__(self, relations: PartitionedRelations | PlainRows, relation: Relation, timed: bool) -> None:
        self.graph, self.relation, self.timed = relations.graph, relation, timed
        self._comm, self._row = relations.grid.column_comm, relations.grid.row
        self._block = relations.held_block(relation)
        self._of = {name: relations.layout_of(name) for name in (relation.source, relation.destination)}
        self._own = own = relations.rows_of(relation)
        if timed and own.times is not None:
            check = partial(check_destinations, self.graph, relation, own.times, (own.sources, own.destinations))
            together(self._comm, check)
        self.edges = np.arange(relation.edges)
        if relation.source == relation.destination:
            here = self._shifted(np.flatnonzero(own.sources == own.destinations))
            counts = self._comm.allgather(np.array([len(here)]), "topology")[:, 0]
            loops = self._comm.allgather_rows(here, counts, "topology")
            self.edges = np.setdiff1d(self.edges, loops, assume_unique=True)

    @property
    def rows(self) -> dict[Key, EdgeEnds]:
        return {self.relation.key: self._own}

    def prepare(self) -> None:
        owners = self._of[self.relation.source].blocks_of(self._own.sources)
        pairs = np.stack([self._own.sources, self._own.destinations], axis=1).astype(np.int32)[np.argsort(owners, kind="stable")]
        known = self._comm.start_alltoall_rows(pairs, np.bincount(owners, minlength=self._comm.size), "topology").wait()
        self._others = NonNeighbors(self.graph, self.relation, (known[:, 0], known[:, 1]))

    def ends(self, edges: np.ndarray) -> LinkEnds:
        rows = rows_of(self.relation, edges)
        owners = self._of[self.relation.destination].blocks_of(rows)
        replies = ask_owners(self._comm, owners, edges.astype(np.int64), self._sources_of)
        sources = (replies if replies.ndim == 1 else replies[:, 0]).astype(np.int64)
        if not self.timed:
            return LinkEnds(sources, rows, None)
        return LinkEnds(sources, rows, replies[:, 1] if replies.ndim == 2 else times_of_ends(self.graph, self.relation, sources, rows))

    def negatives(self, ends: LinkEnds, words: np.ndarray) -> np.ndarray:
        existing = self._others.existing(ends.sources, ends.times)
        requests = np.stack([ends.sources, existing, words], axis=1).astype(np.uint32)
        owners = self._of[self.relation.source].blocks_of(ends.sources)
        return ask_owners(self._comm, owners, requests, self._drawn).astype(np.int64)

    def _sources_of(self, edges: np.ndarray) -> np.ndarray:
        """Return the sources of own edges, given their positions in the whole adjacency; beside their times if edges have times."""
        local = edges - self._block.shift_of(self._local_rows(rows_of(self.relation, edges)))
        sources: np.ndarray = self._block.matrix.indices[local]
        if not self.timed or self._block.times is None:
            return sources
        return np.stack([sources.astype(np.int64), self._block.times[local]], axis=1)

    def _drawn(self, requests: np.ndarray) -> np.ndarray:
        sources, existing, words = requests.astype(np.int64).T
        return drawn(self._others, sources, existing, words.astype(np.uint32)).astype(np.int32)

    def _local_rows(self, rows: np.ndarray) -> np.ndarray:
        layout = self._of[self.relation.destination]
        local: np.ndarray = layout.places(rows) - int(layout.bounds[self._row])
        return local

    def _shifted(self, local: np.ndarray) -> np.ndarray:
        rows = np.searchsorted(self._block.matrix.indptr, local, side="right") - 1
        places: np.ndarray = (local + self._block.shift_of(rows)).astype(np.int64)
        return places


class _RowPointers(NamedTuple):
    """The row pointers of an adjacency in block rows, which all ranks know."""

    indptr: np.ndarray
    nnz: int


class PlainRows:
    """A block row of a plain graph as `PartitionedLinks` reads it; making one is collective.

    Each rank sends every other member of the process column 8 bytes for each of its rows (kind "topology").
    """

    def __init__(self, opened: OpenBlock) -> None:
        self.grid, self._layout, self._rows = opened.grid, opened.layout, opened.block
        n, a = opened.block.n, opened.block.adjacency
        indptr = row_pointers(opened.gather(np.diff(a.indptr))[opened.layout.places(np.arange(n, dtype=np.int32))])
        edges = Relation(NODE, EDGE, NODE, cast(CSR, _RowPointers(indptr, int(indptr[-1]))), parallel=False)
        self.graph = Graph.of((VertexType(NODE, n),), (edges,), opened.block.name)
        self._block = RelationBlock(a, indptr[opened.block.vertices] - a.indptr[:-1], None)

    def layout_of(self, name: str) -> Layout:
        """Return the block rows of the vertices of a type."""
        return self._layout

    def held_block(self, relation: Relation) -> RelationBlock:
        """Return the rows of this rank."""
        return self._block

    def rows_of(self, relation: Relation) -> EdgeEnds:
        """Return the edges that this rank holds."""
        a = self._rows.adjacency
        return EdgeEnds(a.indices.astype(np.int64), self._rows.vertices.astype(np.int64)[a.row_of_entry()], None)


def ask_owners(comm: Comm, owners: np.ndarray, requests: np.ndarray, answer: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Send a request for each item to its owner, a rank of `comm`, and return the answers in the order of the items; collective.

    ``answer(requests)`` returns one row for each request that others made, in their order; rows of one width and dtype on all ranks. Sends
    the bytes of the requests and of the answers (kind "topology"), and 8 bytes to each other rank for the counts.
    """
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=comm.size)
    pending = comm.start_alltoall_rows(requests[order], counts, "topology")
    received = pending.wait()
    replies = comm.start_alltoall_rows(answer(received), pending.counts, "topology", incoming=counts).wait()
    out = np.empty_like(replies)
    out[order] = replies
    return out
