"""A part of a graph as a graph of its own: a rank trains on it for a while, and nothing is exchanged meanwhile.

    rows 0 .. m - 1         S, the vertices that the rank sees, ascending; with their edges from S and from the halo
    rows m .. m + h - 1     H, the halo: sources outside S, ascending; with their features and without their edges

Without a halo the adjacency is that of the induced subgraph, A[S, S]; with the whole halo, rows of S have every neighbor.
Exact evaluation still runs on the whole graph in block rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..adjacency import LocalAdjacency
from ..backends.base import Backend
from ..distributed.matrix.graph_block import GraphBlock
from ..distributed.matrix.layout import Layout
from ..errors import PeerLost, UsageError
from ..graph import Graph
from ..minibatch import Block
from ..nn.aggregate import SparseRows
from ..nn.layers import Input, Layer
from ..sparse import CSR, row_pointers
from .features import Features, Fetching
from .induced import local_graph
from .partitioned import BlockView
from .view import View, mean_weights


@dataclass(frozen=True, eq=False)
class VisibleParts:
    """The parts of the graph that each rank sees. Rank r trains on the seeds of part r.

    Parameters
    ----------
    part : int32, shape (n,)
        The part of each vertex.
    seen : bool, shape (ranks, parts)
        True if a rank sees a part. Both arrays are the same on every rank.
    """

    part: np.ndarray
    seen: np.ndarray

    @staticmethod
    def of_blocks(layout: Layout) -> VisibleParts:
        """Let every rank see its own block row."""
        return VisibleParts(layout.blocks_of(np.arange(layout.n, dtype=np.int32)).astype(np.int32), np.eye(layout.blocks, dtype=bool))

    def sees(self, rank: int, vertices: np.ndarray) -> np.ndarray:
        """Return True for the vertices that a rank sees."""
        seen: np.ndarray = self.seen[rank][self.part[vertices]]
        return seen


def allgather_degrees(view: BlockView) -> np.ndarray:
    """Gather the in-degree of every vertex of the whole graph: int32, shape (n,). Collective: 4 n (p - 1) bytes over all ranks."""
    own = view.block.adjacency.degrees.astype(np.int32)
    by_row = view.grid.column_comm.allgather_rows(own, np.diff(view.layout.bounds), "topology")
    degrees: np.ndarray = by_row[view.layout.places(np.arange(view.layout.n, dtype=np.int32))]
    return degrees


class LocalView(View):
    """The part of a graph that a rank sees, renumbered.

    Parameters
    ----------
    whole : BlockView
    vertices : int32, shape (m + h,)
        The vertex of each row: S, then H.
    rows : int
        m.
    matrix : CSR, shape (m + h, m + h)
        The rows of H are empty.
    x : Input, shape (m + h, f)
    degrees : int32, shape (m + h,)
        In-degrees in the whole graph.
    own_seeds : bool, shape (whole.seeds,)
        True for the seeds of this rank.

    Attributes
    ----------
    seeds : int32, ascending
        Row numbers, as in everything that samplers and models get; `vertices` maps them to the graph.
    """

    def __init__(
        self, whole: BlockView, vertices: np.ndarray, rows: int, matrix: CSR, x: Input, degrees: np.ndarray, own_seeds: np.ndarray,
        backend: Backend,
    ) -> None:  # fmt: skip
        self.whole, self.vertices, self.rows, self.total_degrees = whole, vertices, rows, degrees
        self.name, self.num_features, self.num_classes = whole.name, whole.num_features, whole.num_classes
        self.fingerprint, self.share = whole.fingerprint, whole.share
        self.adjacency = LocalAdjacency(matrix, backend)
        self.features = Features(Graph(matrix, features=_stored(x), name=whole.name))
        self.seeds = np.searchsorted(vertices[:rows], whole.seeds[own_seeds]).astype(np.int32)
        self.labels = whole.labels[own_seeds]
        self.all_degrees = None if whole.all_degrees is None else whole.all_degrees[torch.from_numpy(vertices.astype(np.int64))]
        more = {"adjacency": matrix.nbytes(), "features": self.features.nbytes(), "replicated": vertices.nbytes + degrees.nbytes}
        self.memory = {name: held + more[name] for name, held in whole.memory.items()}

    def all_rows(self) -> View:
        return self.whole

    def held_bytes(self) -> dict[str, int]:
        """Return `memory`, with what draws from the whole graph have gathered, for sampled scores, counted as ``replicated``."""
        return {**self.memory, "replicated": self.memory["replicated"] + self.whole.adjacency.gathered_bytes}

    @property
    def matrix(self) -> CSR:
        """The adjacency of this part."""
        assert self.adjacency.whole_matrix is not None
        return self.adjacency.whole_matrix


class PendingLocalView:
    """A local view whose rows have arrived and whose features are on their way. Every one must be waited for.

    Parameters
    ----------
    whole : BlockView
        On a grid without replication.
    parts : VisibleParts
    degrees : int32, shape (n,)
        See `allgather_degrees`.
    backend : Backend
    halo : int, optional
        See `local_graph`; 0 keeps no halo.

    Notes
    -----
    Collective. Owners know from `parts` who sees which of their rows, so only features are requested. For each row that a rank
    sees and does not own, 4 bytes travel, and 4 for every edge (12 with weights) that it keeps or chooses from. For the features
    of these rows and of halo rows, `RowExchange` states the bytes.

    Raises
    ------
    UsageError
        If the graph is replicated c > 1 times.
    """

    def __init__(self, whole: BlockView, parts: VisibleParts, degrees: np.ndarray, backend: Backend, halo: int | None = None) -> None:
        if whole.grid.replication != 1:
            raise UsageError(f"training on parts keeps one block row on each rank; got replication {whole.grid.replication}: use 1")
        self._whole, self._backend = whole, backend
        self._own_seeds = parts.part[whole.seeds] == whole.grid.comm.rank
        seen, rows = _exchange_rows(whole, parts, outside=halo != 0)
        self.vertices, self._matrix = local_graph(seen, rows, halo)
        self._rows, self._degrees = len(seen), degrees[self.vertices]
        self._fetching: Fetching = whole.features.start(self.vertices)

    def wait(self) -> LocalView:
        """Wait for the features and return the view."""
        x = self._fetching.wait()
        return LocalView(self._whole, self.vertices, self._rows, self._matrix, x, self._degrees, self._own_seeds, self._backend)


def _exchange_rows(whole: BlockView, parts: VisibleParts, outside: bool) -> tuple[np.ndarray, CSR]:
    """Send every rank the rows that it sees; return this rank's vertices, ascending, and their rows.

    Edges from vertices that the receiver does not see are sent only if `outside`.
    """
    comm, n = whole.grid.comm, whole.layout.n
    sent = [_rows_for(whole.block, parts, rank, outside) for rank in range(comm.size)]
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


def _rows_for(block: GraphBlock, parts: VisibleParts, rank: int, outside: bool) -> CSR:
    """Select the rows of this block that a rank sees."""
    rows = block.adjacency.take(np.flatnonzero(parts.sees(rank, block.vertices)))
    return rows if outside else rows.keep(parts.sees(rank, rows.indices))


def _stored(x: Input) -> np.ndarray | CSR:
    """Convert input rows to features of a `Graph`."""
    if isinstance(x, SparseRows):
        return CSR(x.indptr, x.indices, x.weights, x.shape)
    return x.numpy()


class LocalRows:
    """All rows of a local view for a pass of `views.full_graph.FullGraph`, which exchanges nothing.

    Parameters
    ----------
    view : LocalView
    matrix : CSR, optional
        Edges to use instead of the view's.
    """

    has_halo = False

    def __init__(self, view: LocalView, matrix: CSR | None = None) -> None:
        matrix, everything = matrix or view.matrix, np.arange(len(view.vertices))
        weights = mean_weights(matrix.indptr, matrix.values, view.whole.block.weight_unit, view.whole.weights is not None)[1]
        self.n, self.edges = len(everything), matrix.nnz
        self.block = view.on_device(Block(matrix.indptr, matrix.indices, weights, self.n))
        self.degrees, self.x = view.degrees(everything), view.features.fetch(everything)

    @property
    def rows(self) -> int:
        """The number of rows, m + h."""
        return self.n

    def exchanged(self, layer: Layer, h: Input, transforms: bool, key: str) -> torch.Tensor:
        """Apply one layer to all rows; nothing is exchanged."""
        everything = slice(0, self.n)
        return layer.receive(self.block, layer.send(h, self.degrees, transforms), h[everything], everything, self.degrees, transforms)
