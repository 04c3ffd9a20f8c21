"""The relations of a heterogeneous graph in block rows: a rank owns vertices of each type, with their rows in all relations.

Rank (i, j) of a process grid holds block row i of every type: the rows of its vertices in each relation that ends in the type, with edge
values and times. Samplers draw hop by hop. The rows of a frontier travel to their owners in the process column as (tree, window, vertex);
the owner draws from them by the words that one rank would use, and sends the picks back. Messages of a hop hold the rows of all
relations: two collectives, and two more that carry lengths, or one if the answers are padded (see `relation_requests`).

Columns of types (features, labels, masks, times of vertices) are not divided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...adjacency import LocalAdjacency
from ...backends.base import Backend
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...errors import DataError, UsageError
from ...relations.adjacency import By, RelationAdjacency
from ...relations.draw import Frontier, RelationMatrix, RowPicks, draw_rows
from ...relations.expand import expand_hops
from ...relations.graph import HeteroGraph, Relation
from ...sparse import CSR, frozen, row_pointers, runs
from ...vertex_table import check_adjacency
from .relation_requests import AskedRows, HopForm, RelationFacts, exchange_answers, exchange_requests, route_rows
from .type_layouts import TypeLayouts


class RelationBlock(NamedTuple):
    """Some rows of a relation, in memory."""

    matrix: CSR  # shape (m, sources)
    shift: np.ndarray  # int64, shape (m,): what leads from a position here to that in the whole adjacency; (1,) if all rows have one
    times: np.ndarray | None  # int64, shape (entries of the rows,)

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes() + self.shift.nbytes + (0 if self.times is None else self.times.nbytes)


def read_block(relation: Relation, members: np.ndarray) -> RelationBlock:
    """Read the rows of some destinations, ascending, and no others, of a relation in memory or mapped from a store.

    Raises
    ------
    DataError
        If these rows are malformed.
    """
    matrix, rows = relation.adjacency, _as_slice(members)
    starts, ends = (np.array(part[rows], np.int64) for part in (matrix.indptr[:-1], matrix.indptr[1:]))
    low, high = int(starts.min(initial=matrix.nnz)), int(ends.max(initial=0))
    ascending = (starts <= ends).all() and (ends[:-1] <= starts[1:]).all()
    if len(starts) and not (low >= 0 and high <= matrix.nnz and ascending):
        raise DataError(f"{relation}: row pointers run from {low} to {high} and must ascend; there are {matrix.nnz} entries")
    counts = ends - starts
    at: Any = slice(low, high) if high - low == counts.sum() else runs(starts, counts)

    def own(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else frozen(np.array(array[at]))

    indices = own(matrix.indices)
    assert indices is not None
    made = CSR(row_pointers(counts), indices, own(matrix.values), (len(starts), matrix.shape[1]))
    try:
        check_adjacency(made, relation.weight_unit, True)
    except DataError as error:
        raise DataError(f"{relation}: in a block row: {error}") from None
    shift = np.array([low]) if isinstance(at, slice) else starts - made.indptr[:-1]
    return RelationBlock(made, frozen(shift, np.int64), own(relation.times))


class PartitionedRelations(RelationAdjacency):
    """The relations of a graph in block rows; `expand_trees` is collective in the process column.

    Parameters
    ----------
    graph : HeteroGraph
        Its adjacencies may be mapped from a store; only their sizes are read here.
    backend : Backend
    blocks : TypeLayouts
        The vertices of each type in the block rows of a grid, whose communicators are used here alone.
    held : sequence of RelationBlock
        The rows of this rank's vertices in each relation: `read_block` of the members of its destination type.

    Notes
    -----
    Making one is collective: each rank sends the others of its process column 16 bytes for each relation.
    """

    collective = True

    def __init__(self, graph: HeteroGraph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]) -> None:
        self.graph, self.backend, self.n = graph, backend, graph.n
        self.blocks, self.grid, self._held = blocks, blocks.grid, list(held)
        self._layouts = [blocks.of[kind.name] for kind in graph.types]
        self._prepared: dict[By | None, list[RelationMatrix]] = {}
        own = [[int(one.matrix.degrees.max(initial=0)), RelationMatrix(0, 0, one.matrix).repeats] for one in self._held]
        told = self.grid.column_comm.allgather(np.array(own, np.int64).reshape(len(own), 2), "topology").max(axis=0)
        self._longest, self._parallel = told[:, 0], told[:, 1].astype(bool)

    def at(self, place: str) -> None:
        self.grid.column_comm.at(place, f"rank {self.grid.comm.rank} samples {place}")

    @property
    def held_bytes(self) -> int:
        """Bytes of this rank's rows of all relations."""
        return sum(one.nbytes for one in self._held) + self.blocks.nbytes()

    def check_whole(self) -> None:
        raise UsageError("LADIES, FastGCN and HGSampling read whole relations; got a topology in block rows: use sage, labor or full")

    @cached_property
    def union(self) -> LocalAdjacency:
        self.check_whole()
        raise AssertionError

    @cached_property
    def shares_of_rows(self) -> list[tuple[CSR, np.ndarray]]:
        self.check_whole()
        raise AssertionError

    def relations(self, by: By | None) -> list[RelationMatrix]:
        """Return this rank's rows of the relations, with the times of vertices, of edges, or none."""
        if by not in self._prepared:
            matrices = []
            for relation, block, parallel in zip(self.graph.relations, self._held, self._parallel, strict=True):
                stamps, times = self.graph.type(relation.source).times, block.times if by == "edges" else None
                if by == "vertices" and stamps is not None:
                    times = np.array(stamps[block.matrix.indices])
                ends = self.graph.place(relation.source), self.graph.place(relation.destination)
                matrices.append(RelationMatrix(*ends, block.matrix, times, bool(parallel)))
            self._prepared[by] = matrices
        return self._prepared[by]

    def facts(self, by: By | None) -> list[RelationFacts]:
        """Return what all ranks know of the relations."""
        pairs = zip(self.graph.relations, self.relations(by), self._longest, strict=True)
        return [
            RelationFacts(own.source, own.destination, relation.adjacency.shape[0], relation.edges, int(longest), own.times is not None)
            for relation, own, longest in pairs
        ]

    def references(self, name: str) -> np.ndarray:
        """Count the edges of all relations that begin in each vertex of a type: int64, shape (n,); collective.

        An all-reduce in the process column, of 8 bytes a vertex.
        """
        count = self.graph.type(name).count
        own = [block.matrix.indices for relation, block in zip(self.graph.relations, self._held, strict=True) if relation.source == name]
        counted = sum((np.bincount(indices, minlength=count) for indices in own), np.zeros(count, np.int64))
        return self.grid.column_comm.allreduce(counted, "topology")

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool = True
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops; the owners of rows draw. All ranks pass the same laws, each with trees of its own."""
        facts, windows = self.facts(by), (trees.ends is not None, trees.starts is not None)

        def draw_hop(hop: int, frontiers: Sequence[Frontier]) -> list[RowPicks]:
            return self._draw(HopForm.of(facts, laws[hop], *windows, trees.moving, entries), frontiers, laws[hop], by)

        return expand_hops(self.backend, draw_hop, [(fact.source, fact.destination) for fact in facts], trees, len(laws), only_new)

    def _draw(self, form: HopForm, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw], by: By | None) -> list[RowPicks]:
        """Draw a hop: send the rows of the frontiers to their owners, and receive the picks."""
        empty = np.empty(0, np.int64) if form.entries else None
        out = []
        for relation in self.relations(by):
            pointers = np.zeros(len(frontiers[relation.destination].vertices) + 1, np.int64)
            out.append(RowPicks(pointers, np.empty(0, np.int32), empty, None if relation.times is None else np.empty(0, np.int64)))
        if not form.relations:
            return out
        routed = {t: route_rows(frontiers[t], self._layouts[t]) for t in form.types}
        asked = exchange_requests(self.grid.column_comm, form, frontiers, routed)
        drawn = [self._draw_asked(one.place, asked[one.destination], laws[one.place], by, form) for one in form.relations]
        for one, picks in zip(form.relations, exchange_answers(self.grid.column_comm, form, drawn, asked, routed), strict=True):
            out[one.place] = picks
        return out

    def _draw_asked(self, place: int, asked: AskedRows, law: RelationLaw, by: By | None, form: HopForm) -> RowPicks:
        """Draw from own rows that other ranks ask for; entries are positions in the whole adjacency."""
        relation, block = self.relations(by)[place], self._held[place]
        layout, rows = self._layouts[relation.destination], asked.frontier
        first = int(layout.bounds[self.grid.row])
        local = rows._replace(vertices=(layout.places(rows.vertices) - first).astype(np.int32))
        picks = draw_rows(self.backend, relation, local, law, form.named)
        if not form.entries or picks.entries is None:
            return picks
        shift = block.shift if len(block.shift) == 1 else np.repeat(block.shift[local.vertices], np.diff(picks.pointers))
        return picks._replace(entries=picks.entries + shift)


def read_blocks(graph: HeteroGraph, blocks: TypeLayouts) -> list[RelationBlock]:
    """Read this rank's rows of every relation; see `read_block`."""
    return [read_block(relation, blocks.members(relation.destination)) for relation in graph.relations]


def _as_slice(rows: np.ndarray) -> Any:
    """Return a slice that stands for ascending integers without a gap; others as they are."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
