"""The relations of a heterogeneous graph in block rows: a rank owns vertices of each type, with their rows in all relations.

Rank (i, j) of a process grid holds block row i of every type: the rows of its vertices in each relation that ends in the type, with edge
values and times. Samplers draw hop by hop, by one of two policies: owners of rows draw (`owner`), or rows travel to the rank that
draws (`spgemm15d`). Draws are made by the words that one rank would use, so mini-batches are the same. Messages of a hop hold the rows
of all relations.

Columns of types (features, labels, masks, times of vertices) are not divided here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...adjacency import By, fingerprint_of
from ...backends.base import Backend
from ...backends.relation_draws import Frontier
from ...backends.relation_hops import expand_hops
from ...backends.relational import HeteroExpansion, RelationLaw, RelationMatrix, RowPicks, Trees
from ...data.held_out_links import EdgeEnds
from ...errors import DataError, UsageError
from ...graph import Graph, Relation
from ...graph.vertex_table import check_adjacency
from ...sparse import CSR, frozen, row_pointers, runs
from .block_rows import InBlockRows
from .layout import TypeLayouts
from .requests import HopForm, HopRules, RelationFacts


class RelationBlock(NamedTuple):
    """Some rows of a relation, in memory."""

    matrix: CSR  # shape (m, sources)
    shift: np.ndarray  # int64, shape (m,); (1,) if all rows have one: see `shift_of`
    times: np.ndarray | None  # int64, shape (entries of the rows,)

    def shift_of(self, rows: np.ndarray) -> np.ndarray:
        """Return what leads from a position in each of some rows to that in the whole adjacency: int64, of their shape or (1,)."""
        return self.shift if len(self.shift) == 1 else self.shift[rows]

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes() + self.shift.nbytes + (0 if self.times is None else self.times.nbytes)


def read_block(relation: Relation, members: np.ndarray) -> RelationBlock:
    """Read the rows of some destinations, ascending, and no others, of a relation; raises `DataError` if they are malformed."""
    matrix, gapless = relation.adjacency, len(members) > 0 and int(members[-1]) - int(members[0]) + 1 == len(members)
    rows: Any = slice(int(members[0]), int(members[-1]) + 1) if gapless else members
    starts, ends = (np.array(part[rows], np.int64) for part in (matrix.indptr[:-1], matrix.indptr[1:]))
    low, high = int(starts.min(initial=matrix.nnz)), int(ends.max(initial=0))
    ascending = (starts <= ends).all() and (ends[:-1] <= starts[1:]).all()
    if len(starts) and not (low >= 0 and high <= matrix.nnz and ascending):
        raise DataError(f"{relation}: row pointers run from {low} to {high} and must ascend; there are {matrix.nnz} entries")
    counts = ends - starts
    at: Any = slice(low, high) if high - low == counts.sum() else runs(starts, counts)

    def rows_of(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else frozen(np.array(array[at]))

    indices = rows_of(matrix.indices)
    assert indices is not None
    made = CSR(row_pointers(counts), indices, rows_of(matrix.values), (len(starts), matrix.shape[1]))
    try:
        check_adjacency(made, relation.weight_unit, True)
    except DataError as error:
        raise DataError(f"{relation}: in a block row: {error}") from None
    shift = np.array([low]) if isinstance(at, slice) else starts - made.indptr[:-1]
    return RelationBlock(made, frozen(shift, np.int64), rows_of(relation.times))


class HeldRelations:
    """The rows of the relations of a graph that this rank holds: those of the members of each destination type in its block row."""

    graph: Graph
    blocks: TypeLayouts
    held: Sequence[RelationBlock]

    def held_block(self, relation: Relation) -> RelationBlock:
        """Return this rank's rows of a relation of the graph."""
        return self.held[self.graph.ordinal(relation.key)]

    def rows_of(self, relation: Relation) -> EdgeEnds:
        """Return the edges that this rank holds of a relation of the graph, in the ids of their types."""
        block, members = self.held_block(relation), self.blocks.members(relation.destination).astype(np.int64)
        return EdgeEnds(block.matrix.indices.astype(np.int64), members[block.matrix.row_of_entry()], block.times)


class PartitionedRelations(InBlockRows, HeldRelations):
    """The relations of a graph in block rows: the part that does not depend on the policy. `expand_trees` is collective.

    The adjacencies of `graph` may be mapped from a store; only their sizes are read here. `blocks` lie on a grid whose communicators are
    used here alone. `held` are the rows of this rank's vertices in each relation: `read_block` of the members of its destination type.
    Making one is collective: each rank sends the others of its process column 16 bytes for each relation.
    """

    def __init__(self, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]) -> None:
        self.take_graph(graph)
        self.backend = backend
        self.blocks, self.grid, self.held = blocks, blocks.grid, list(held)
        self.layouts = [blocks.of[kind.name] for kind in graph.types]
        self._prepared: dict[By | None, list[RelationMatrix]] = {}
        extremes = [[int(one.matrix.degrees.max(initial=0)), RelationMatrix(0, 0, one.matrix).repeats] for one in self.held]
        of_all = self.grid.column_comm.allgather(np.array(extremes, np.int64).reshape(len(extremes), 2), "topology").max(axis=0)
        self._longest, self._parallel = of_all[:, 0], of_all[:, 1].astype(bool)

    @property
    def held_bytes(self) -> int:
        """Bytes of this rank's rows of all relations."""
        return sum(one.nbytes for one in self.held) + self.blocks.nbytes()

    def check_whole(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError("LADIES, FastGCN and HGSampling read whole relations; got a topology in block rows: use sage, labor or full")

    left_multiply = sample_rows = restrict = check_whole

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the graph; see `fingerprint_of`."""
        return fingerprint_of(self.graph)

    @property
    def first_with_parallel_edges(self) -> str | None:
        return next((str(relation) for relation, there in zip(self.graph.relations, self._parallel, strict=True) if there), None)

    def relations(self, by: By | None) -> list[RelationMatrix]:
        """Return this rank's rows of the relations, with the times of vertices, of edges, or none."""
        if by not in self._prepared:
            matrices = []
            for relation, block, parallel in zip(self.graph.relations, self.held, self._parallel, strict=True):
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
            RelationFacts(
                rows.source, rows.destination, relation.adjacency.shape[0], relation.edges, int(longest), rows.times is not None,
                rows.matrix.values is not None,
            )
            for relation, rows, longest in pairs
        ]  # fmt: skip

    def references(self, name: str) -> np.ndarray:
        """Count the edges of all relations from each vertex of a type: int64, shape (n,); an all-reduce in the column, 8 bytes a vertex."""
        count = self.graph.type(name).count
        sources = [block.matrix.indices for relation, block in zip(self.graph.relations, self.held, strict=True) if relation.source == name]
        counted = sum((np.bincount(indices, minlength=count) for indices in sources), np.zeros(count, np.int64))
        return self.grid.column_comm.allreduce(counted, "topology")

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops. All ranks pass the same laws, each with trees of its own."""
        facts = self.facts(by)
        rules = HopRules(by, trees.ends is not None, trees.starts is not None, trees.moving, entries is not False)

        def draw_hop(hop: int, frontiers: Sequence[Frontier]) -> list[RowPicks]:
            form = HopForm.of(facts, laws[hop], rules)
            drawn = self._draw(form, frontiers, laws[hop]) if form.relations else {}
            return [drawn[place] if place in drawn else self._nothing(place, rules, frontiers) for place in range(len(facts))]

        return expand_hops(self.backend, draw_hop, [(fact.source, fact.destination) for fact in facts], trees, len(laws), only_new)

    @abstractmethod
    def _draw(self, form: HopForm, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw]) -> dict[int, RowPicks]:
        """Draw a hop: the draws of each relation of the form from the frontier of its destination type, by its place."""

    def _nothing(self, place: int, rules: HopRules, frontiers: Sequence[Frontier]) -> RowPicks:
        relation, empty = self.relations(rules.by)[place], np.empty(0, np.int64)
        pointers = np.zeros(len(frontiers[relation.destination].vertices) + 1, np.int64)
        return RowPicks(pointers, np.empty(0, np.int32), empty if rules.entries else None, None if relation.times is None else empty)


def read_blocks(graph: Graph, blocks: TypeLayouts) -> list[RelationBlock]:
    """Read this rank's rows of every relation; see `read_block`."""
    return [read_block(relation, blocks.members(relation.destination)) for relation in graph.relations]
