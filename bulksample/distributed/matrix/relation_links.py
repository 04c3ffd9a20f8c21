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
from types import SimpleNamespace
from typing import cast

import numpy as np

from ...data.held_out_links import EdgeEnds
from ...data.link_examples import LinkExamples, drawn, rows_of
from ...graph import EDGE, NODE, Graph, Key, Relation, VertexType
from ...graph.links import NonNeighbors, check_destinations, times_of_ends
from ...sparse import CSR, row_pointers
from ..comm.agree import together
from ..comm.base import Comm
from .layout import TypeLayouts
from .open_graph import OpenBlock
from .relation_blocks import HeldRelations, RelationBlock


class PartitionedLinks(LinkExamples):
    """The edges of a relation that are no loops, where ranks own its rows; making one, and all methods, are collective.

    Making one sends the positions of loops to all ranks of the process column, if the ends are of one type: 8 bytes for each. `prepare`
    sends each edge to the owner of its source, 8 bytes, which keeps as much.
    """

    def __init__(self, relations: HeldRelations, relation: Relation, timed: bool) -> None:
        self.graph, self.relation, self.timed = relations.graph, relation, timed
        self._comm, self._row = relations.blocks.grid.column_comm, relations.blocks.grid.row
        self._block, self._of = relations.held_block(relation), relations.blocks.of
        self._own = edges = relations.rows_of(relation)
        if timed and edges.times is not None:
            check = partial(check_destinations, self.graph, relation, edges.times, (edges.sources, edges.destinations))
            together(self._comm, check)
        self.edges = np.arange(relation.edges)
        if relation.source == relation.destination:
            local = np.flatnonzero(edges.sources == edges.destinations)
            rows = np.searchsorted(self._block.matrix.indptr, local, side="right") - 1
            here = (local + self._block.shift_of(rows)).astype(np.int64)
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

    def ends(self, edges: np.ndarray) -> EdgeEnds:
        rows = rows_of(self.relation, edges)
        owners = self._of[self.relation.destination].blocks_of(rows)
        replies = ask_owners(self._comm, owners, edges.astype(np.int64), self._sources_of)
        sources = (replies if replies.ndim == 1 else replies[:, 0]).astype(np.int64)
        if not self.timed:
            return EdgeEnds(sources, rows, None)
        return EdgeEnds(sources, rows, replies[:, 1] if replies.ndim == 2 else times_of_ends(self.graph, self.relation, sources, rows))

    def negatives(self, ends: EdgeEnds, words: np.ndarray) -> np.ndarray:
        existing = self._others.existing(ends.sources, ends.times)
        requests = np.stack([ends.sources, existing, words], axis=1).astype(np.uint32)
        owners = self._of[self.relation.source].blocks_of(ends.sources)
        return ask_owners(self._comm, owners, requests, self._drawn).astype(np.int64)

    def _sources_of(self, edges: np.ndarray) -> np.ndarray:
        """Return the sources of own edges, given their positions in the whole adjacency; beside their times if edges have times."""
        layout = self._of[self.relation.destination]
        rows = layout.places(rows_of(self.relation, edges)) - int(layout.bounds[self._row])
        local = edges - self._block.shift_of(rows)
        sources: np.ndarray = self._block.matrix.indices[local]
        if not self.timed or self._block.times is None:
            return sources
        return np.stack([sources.astype(np.int64), self._block.times[local]], axis=1)

    def _drawn(self, requests: np.ndarray) -> np.ndarray:
        sources, existing, words = requests.astype(np.int64).T
        return drawn(self._others, sources, existing, words.astype(np.uint32)).astype(np.int32)


class PlainRows(HeldRelations):
    """A block row of a plain graph for `PartitionedLinks`; making one sends 8 bytes for each row to the others of the process column."""

    def __init__(self, opened: OpenBlock) -> None:
        n, a = opened.block.n, opened.block.adjacency
        indptr = row_pointers(opened.gather(np.diff(a.indptr))[opened.layout.places(np.arange(n, dtype=np.int32))])
        pointers = SimpleNamespace(indptr=indptr, nnz=int(indptr[-1]))  # of the adjacency, all of it that every rank knows
        edges = Relation(NODE, EDGE, NODE, cast(CSR, pointers), parallel=False)
        self.graph = Graph.of((VertexType(NODE, n),), (edges,), opened.block.name)
        self.blocks = TypeLayouts(opened.grid, {NODE: opened.layout})
        self.held = [RelationBlock(a, indptr[opened.block.vertices] - a.indptr[:-1], None)]


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
