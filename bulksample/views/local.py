"""A part of a graph as a graph of its own: a rank trains on it for a while, and nothing is exchanged meanwhile.

    rows 0 .. m - 1         S, the vertices that the rank sees, ascending; with their edges from S and from the halo
    rows m .. m + h - 1     H, the halo: sources outside S, ascending; with their features and without their edges

Without a halo the adjacency is that of the induced subgraph, A[S, S]; with the whole halo, rows of S have every neighbor.
Exact evaluation still runs on the whole graph in block rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from ..distributed.matrix.graph_block import load_block
from ..distributed.matrix.layout import Layout
from ..errors import PeerLost, UsageError
from ..graph import EDGE, NODE, Graph, Key
from ..graph.induced import induced
from ..local_adjacency import LocalAdjacency
from ..nn.aggregate import SparseRows
from ..nn.dropout import PassKey
from ..nn.layers import Input
from ..nn.model import Model
from ..sparse import CSR, row_pointers
from .features import Features
from .full_graph import FullGraph, LocalRows
from .view import BlockRows, Targets, View, memory


@dataclass(frozen=True, eq=False)
class VisibleParts:
    """The parts of the graph that each rank sees, the same on every rank. Rank r trains on the seeds of part r."""

    part: np.ndarray  # int32, shape (n,): the part of each vertex
    seen: np.ndarray  # bool, shape (ranks, parts): True if a rank sees a part

    @staticmethod
    def of_blocks(layout: Layout) -> VisibleParts:
        """Let every rank see its own block row."""
        return VisibleParts(layout.blocks_of(np.arange(layout.n, dtype=np.int32)).astype(np.int32), np.eye(layout.blocks, dtype=bool))

    def sees(self, rank: int, vertices: np.ndarray) -> np.ndarray:
        """Return True for the vertices that a rank sees."""
        return np.asarray(self.seen[rank][self.part[vertices]])


def allgather_degrees(rows: BlockRows) -> np.ndarray:
    """Gather the in-degree of every vertex of the whole graph: int32, shape (n,). Collective: 4 n (p - 1) bytes over all ranks."""
    local_degrees, layout = rows.block.adjacency.degrees.astype(np.int32), rows.layout
    by_row = rows.grid.column_comm.allgather_rows(local_degrees, np.diff(layout.bounds), "topology")
    return np.asarray(by_row[layout.places(np.arange(layout.n, dtype=np.int32))])


FullPass = Callable[[Model, PassKey], torch.Tensor]  # of a model over all rows of a part, which returns their outputs


class PartRelation(NamedTuple):
    """The edges of a relation within a part, and the in-degree of each of its destinations in the whole graph."""

    key: Key
    matrix: CSR  # shape (rows of the destination's type, rows of the source's)
    degrees: np.ndarray  # int32


@dataclass(frozen=True, eq=False)
class LocalPart:
    """The part of a graph that a rank sees, renumbered, and its view, whose seeds are row numbers."""

    view: View
    vertices: np.ndarray  # int32, shape (m + h,): the vertex of each row
    rows: int  # m
    relations: tuple[PartRelation, ...]  # the edges; a plain graph has one relation, of shape (m + h, m + h), and the rows of H are empty

    @property
    def target(self) -> str:
        """The type of the seeds."""
        schema = self.view.targets.schema
        return NODE if schema is None else schema.target

    @property
    def edges(self) -> int:
        """The number of edges of all relations."""
        return sum(matrix.nnz for _, matrix, _ in self.relations)

    def full_pass(self, strong: bool = True) -> FullPass:
        """Return a pass of a model over all rows, which exchanges nothing; see `FullGraph`."""
        return FullGraph(LocalRows(self.view, self.relations[0].matrix), strong)


def local_part(whole: View, vertices: np.ndarray, rows: int, matrix: CSR, x: Input, degrees: np.ndarray, is_seed: np.ndarray) -> LocalPart:
    """Make the part of a graph in block rows that has these arrays; `is_seed` is True for the seeds that this rank trains on."""
    features = Features(Graph(matrix, features=stored(x), name=whole.name))
    seeds = np.searchsorted(vertices[:rows], whole.seeds[is_seed]).astype(np.int32)
    more = memory(matrix.nbytes(), features, vertices.nbytes + degrees.nbytes)
    made = View(
        whole.name, whole.fingerprint, LocalAdjacency(matrix, whole.adjacency.backend), features,
        Targets(seeds, whole.labels[is_seed], whole.num_classes), whole.share,
        {name: size + more[name] for name, size in whole.memory.items()}, whole=whole, origin={NODE: vertices},
    )  # fmt: skip
    if whole.all_degrees is not None:
        made.all_degrees = whole.all_degrees[torch.from_numpy(vertices.astype(np.int64))]
    return LocalPart(made, vertices, rows, (PartRelation((NODE, EDGE, NODE), matrix, degrees),))


class BlockParts:
    """Fetches parts of a plain graph in block rows, which are the chunks that stay; making one is collective, see `allgather_degrees`."""

    def __init__(self, whole: View) -> None:
        rows = whole.own_rows()
        self.whole, self.seeds, self.degrees = whole, whole.seeds, allgather_degrees(rows)
        self.n, self.layout, self.blocks = rows.layout.n, rows.layout, VisibleParts.of_blocks(rows.layout)

    @property
    def mark(self) -> np.ndarray:
        """Numbers that tell these chunks from others: int64."""
        order = np.empty(0, np.int64) if self.layout.order is None else self.layout.order
        return np.concatenate([self.layout.bounds, order]).astype(np.int64)

    def start(self, parts: VisibleParts, halo: int | None = None) -> Callable[[], LocalPart]:
        """Start to fetch the part that this rank sees; return what waits for its features, and must be called. Collective.

        The graph lies on a grid without replication, and `halo` is that of `local_graph`; 0 keeps no halo. Owners know from `parts` who
        sees which of their rows, so only features are requested. For each row that a rank sees and does not own, 4 bytes travel, and 4 for
        every edge (12 with weights) that it keeps or chooses from. For the features of these rows and of halo rows, `RowExchange` states
        the bytes.
        """
        whole, block_rows = self.whole, self.whole.own_rows()
        check_replication(block_rows)
        seen, rows = _exchange_rows(block_rows, parts, outside=halo != 0)
        vertices, matrix = local_graph(seen, rows, halo)
        fetching, is_seed = whole.features.start(vertices), parts.part[self.seeds] == block_rows.grid.comm.rank
        return lambda: local_part(whole, vertices, len(seen), matrix, fetching(), self.degrees[vertices], is_seed)


def check_replication(rows: BlockRows) -> None:
    """Raise `UsageError` if the graph is replicated c > 1 times."""
    if (c := rows.grid.replication) != 1:
        raise UsageError(f"training on parts keeps one block row on each rank; got replication {c}: use 1")


def _exchange_rows(whole: BlockRows, parts: VisibleParts, outside: bool) -> tuple[np.ndarray, CSR]:
    """Send every rank the rows that it sees; return this rank's vertices, ascending, and their rows.

    Edges from vertices that the receiver does not see are sent only if `outside`.
    """
    comm, n = whole.grid.comm, whole.layout.n
    sent = []
    for rank in range(comm.size):
        rows = whole.block.adjacency.take(np.flatnonzero(parts.sees(rank, whole.block.vertices)))
        sent.append(rows if outside else rows.keep(parts.sees(rank, rows.indices)))
    counts = np.concatenate(comm.alltoall([rows.degrees.astype(np.int32) for rows in sent], "topology"))
    columns = np.concatenate(comm.alltoall([rows.indices for rows in sent], "topology"))
    values = None
    if whole.block.adjacency.values is not None:
        values = np.concatenate(comm.alltoall([rows.entries() for rows in sent], "topology"))
    members = [whole.layout.members(rank) for rank in range(comm.size)]
    seen = np.concatenate([vertices[parts.sees(comm.rank, vertices)] for vertices in members])
    if len(counts) != len(seen) or len(columns) != counts.sum():
        raise PeerLost(f"rank {comm.rank} sees {len(seen)} rows; {len(counts)} came")
    rows = CSR(row_pointers(counts), columns, values, (len(seen), n))
    order = np.argsort(seen)
    return seen[order], rows.take(order)


def stored(x: Input) -> np.ndarray | CSR:
    """Convert input rows to features of a `Graph`."""
    if isinstance(x, SparseRows):
        return CSR(x.indptr, x.indices, x.weights, x.shape)
    return x.numpy()


def part_of(source: Graph | str | os.PathLike[str], vertices: np.ndarray, label: str | None = None, target: str | None = None) -> Graph:
    """Return the subgraph A[S, S] induced by S, with its features, labels and splits. Of a store, only the rows of S are read.

    Vertex i is ``vertices[i]``, of S ascending. Degrees are those within S; the classes are those of the whole graph. `label` names another
    column to use as the label, and `target` the target that it shall be.
    """
    if isinstance(source, Graph):
        whole = source.with_label(label, target)
        types = tuple(replace(kind, extra={}) for kind in whole.types)
        part = induced(whole.replace(types=types, relations=tuple(replace(one, features=None) for one in whole.relations)), vertices)
        return part.replace(relations=tuple(replace(one, edge_ids=None) for one in part.relations))
    rows = load_block(source, vertices, label=label, target=target)
    _, matrix = local_graph(vertices, rows.adjacency, 0)
    return Graph(matrix, rows.weight_unit, rows.features, rows.labels, rows.num_classes, rows.masks, {}, rows.name)


def local_graph(seen: np.ndarray, rows: CSR, halo: int | None) -> tuple[np.ndarray, CSR]:
    """Renumber the vertices that a rank sees, ascending, and their halo: return the vertices, and their matrix.

    The rows of `seen`, of shape (m, n), have columns that are vertices of the whole graph. At most `halo` halo vertices are kept, all by
    default: those whose edges complete most, an edge into v counting 1 / d_v. They follow `seen`: int32, shape (m + h,). Their rows of the
    matrix, of shape (m + h, m + h), are empty.
    """
    m = len(seen)
    inner, inside = _find(seen, rows.indices)
    outside = np.unique(rows.indices[~inside])
    if halo is not None and len(outside) > halo:
        share = np.repeat(1.0 / np.maximum(rows.degrees, 1), rows.degrees)[~inside]  # rows are complete wherever there is a halo
        gain = np.bincount(np.searchsorted(outside, rows.indices[~inside]), share, minlength=len(outside))
        outside = np.sort(outside[np.argsort(-gain, kind="stable")[:halo]])  # ties go to the lower id
    outer, known = _find(outside, rows.indices)
    keep = inside | known
    size, row = m + len(outside), rows.row_of_entry()[keep]
    column = np.where(inside, inner, m + outer)[keep]
    order = np.argsort(row * size + column, kind="stable")
    indptr = row_pointers(np.bincount(row, minlength=size))
    values = None if rows.values is None else rows.values[keep][order]
    matrix = CSR(indptr, column[order].astype(np.int32), values, (size, size))
    return np.concatenate([seen, outside]).astype(np.int32), matrix


def _find(ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each wanted id among ascending ids, and True for the ids that are there."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, ids[at] == wanted
