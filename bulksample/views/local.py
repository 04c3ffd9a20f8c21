"""A rank's part of a graph as a graph of its own: trained on for a while, during which nothing travels.

    rows 0 .. m - 1         S, the vertices that the rank sees, ascending; they keep their edges from S and from the halo
    rows m .. m + h - 1     H, the halo: sources from outside S, ascending; their features are here, their edges are not

Without a halo the adjacency is that of the induced subgraph, A[S, S]; with all of it, rows of S have every neighbour.
Exact evaluation stays that of the whole graph in block rows.
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
from ..sparse import CSR
from .features import Features, Fetching
from .partitioned import BlockView
from .view import View, mean_weights


@dataclass(frozen=True, eq=False)
class Deal:
    """Who sees what: vertex v lies in part ``part[v]``, rank r trains on the seeds of part r and sees the parts ``seen[r]``.

    Parameters
    ----------
    part : int32, shape (n,)
    seen : bool, shape (ranks, parts)
        The same on every rank, as is `part`.
    """

    part: np.ndarray
    seen: np.ndarray

    @staticmethod
    def of_blocks(layout: Layout) -> Deal:
        """Every rank sees its block row."""
        return Deal(layout.blocks_of(np.arange(layout.n, dtype=np.int32)).astype(np.int32), np.eye(layout.blocks, dtype=bool))

    def sees(self, rank: int, vertices: np.ndarray) -> np.ndarray:
        """Which of some vertices a rank sees: bool."""
        return self.seen[rank][self.part[vertices]]


def whole_degrees(view: BlockView) -> np.ndarray:
    """In-neighbours of every vertex in the whole graph: int32, shape (n,). Collective: 4 n (p - 1) bytes over all ranks."""
    own = view.block.adjacency.degrees.astype(np.int32)
    by_place = view.grid.column_comm.allgather_rows(own, np.diff(view.layout.bounds), "topology")
    return by_place[view.layout.places(np.arange(view.layout.n, dtype=np.int32))]


class LocalView(View):
    """What a rank sees, relabelled.

    Parameters
    ----------
    whole : BlockView
    vertices : int32, shape (m + h,)
        Of the rows: S, then H.
    rows : int
        m.
    matrix : CSR, shape (m + h, m + h)
        The rows of H are empty.
    x : Input, shape (m + h, f)
    degrees : int32, shape (m + h,)
        In-neighbours in the whole graph.
    mine : bool, shape (whole.seeds,)
        Which seeds are those of this rank.

    Attributes
    ----------
    seeds : int32, ascending
        Rows, as everything that samplers and models are told; `vertices` says what they are in the graph.
    """

    def __init__(
        self, whole: BlockView, vertices: np.ndarray, rows: int, matrix: CSR, x: Input, degrees: np.ndarray, mine: np.ndarray,
        backend: Backend,
    ) -> None:  # fmt: skip
        self.whole, self.vertices, self.rows, self.total_degrees = whole, vertices, rows, degrees
        self.name, self.num_features, self.num_classes = whole.name, whole.num_features, whole.num_classes
        self.fingerprint, self.share = whole.fingerprint, whole.share
        self.adjacency = LocalAdjacency(matrix, backend)
        self.features = Features(Graph(matrix, features=_stored(x), name=whole.name))
        self.seeds = np.searchsorted(vertices[:rows], whole.seeds[mine]).astype(np.int32)
        self.classes = whole.classes[mine]
        self.all_degrees = None if whole.all_degrees is None else whole.all_degrees[torch.from_numpy(vertices.astype(np.int64))]
        more = {"adjacency": matrix.nbytes(), "features": self.features.nbytes(), "replicated": vertices.nbytes + degrees.nbytes}
        self.memory = {what: held + more[what] for what, held in whole.memory.items()}

    @property
    def matrix(self) -> CSR:
        """A of this part."""
        assert self.adjacency.whole_matrix is not None
        return self.adjacency.whole_matrix


class LocalFlight:
    """A local view whose structure is there and whose features are under way. Every flight is waited for.

    Parameters
    ----------
    whole : BlockView
        On a grid without replication.
    deal : Deal
    degrees : int32, shape (n,)
        See `whole_degrees`.
    backend : Backend
    halo : int, optional
        At most so many halo rows, those that complete most: an edge into v adds 1 / d_v. All unless given; none for 0.

    Notes
    -----
    Collective. Owners know from the deal who sees which of their rows, so nothing is asked for but features. Of the rows that
    rank r sees and does not own, 4 bytes each and 4 for every edge (12 with weights) that it will keep or choose from; for
    these and for halo rows of others, what `RowExchange` says of a fetch.

    Raises
    ------
    UsageError
        If the graph is replicated c > 1 times.
    """

    def __init__(self, whole: BlockView, deal: Deal, degrees: np.ndarray, backend: Backend, halo: int | None = None) -> None:
        if whole.grid.replication != 1:
            raise UsageError(f"training on parts keeps one block row on each rank; got replication {whole.grid.replication}: 1 would fit")
        self._whole, self._backend = whole, backend
        self._mine = deal.part[whole.seeds] == whole.grid.comm.rank
        seen, rows = _seen_rows(whole, deal, outside=halo != 0)
        self.vertices, self._matrix = local_graph(seen, rows, halo)
        self._rows, self._degrees = len(seen), degrees[self.vertices]
        self._fetching: Fetching = whole.features.start(self.vertices)

    def wait(self) -> LocalView:
        x = self._fetching.wait()
        return LocalView(self._whole, self.vertices, self._rows, self._matrix, x, self._degrees, self._mine, self._backend)


def local_graph(seen: np.ndarray, rows: CSR, halo: int | None) -> tuple[np.ndarray, CSR]:
    """Number what a rank sees.

    Parameters
    ----------
    seen : int32, shape (m,), ascending
    rows : CSR, shape (m, n)
        Of the vertices seen; columns are vertices.
    halo : int, optional
        See `LocalFlight`.

    Returns
    -------
    vertices : int32, shape (m + h,)
    matrix : CSR, shape (m + h, m + h)
    """
    m = len(seen)
    place, inside = _find(seen, rows.indices)
    outside = np.unique(rows.indices[~inside])
    if halo is not None and len(outside) > halo:
        outside = _most_completing(outside, rows, ~inside, halo)
    far, known = _find(outside, rows.indices)
    keep = inside | known
    size, row = m + len(outside), rows.row_of_entry()[keep]
    column = np.where(inside, place, m + far)[keep]
    order = np.argsort(row * size + column, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=size))]).astype(np.int64)
    values = None if rows.values is None else rows.values[keep][order]
    matrix = CSR(indptr, column[order].astype(np.int32), values, (size, size))
    return np.concatenate([seen, outside]).astype(np.int32), matrix


def _find(ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each stands among ascending ids, and whether it does."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, ids[at] == wanted


def _most_completing(outside: np.ndarray, rows: CSR, away: np.ndarray, count: int) -> np.ndarray:
    """Those halo rows whose edges add most coverage; ascending. Of equal ones the lower id is kept."""
    share = np.repeat(1.0 / np.maximum(rows.degrees, 1), rows.degrees)[away]  # rows are complete wherever there is a halo
    gain = np.bincount(np.searchsorted(outside, rows.indices[away]), share, minlength=len(outside))
    return np.sort(outside[np.argsort(-gain, kind="stable")[:count]])


def _seen_rows(whole: BlockView, deal: Deal, outside: bool) -> tuple[np.ndarray, CSR]:
    """The vertices that this rank sees, ascending, and their rows; edges from outside are left out unless asked for."""
    comm, n = whole.grid.comm, whole.layout.n
    sent = [_rows_for(whole.block, deal, rank, outside) for rank in range(comm.size)]
    counts = np.concatenate(comm.alltoall([rows.degrees.astype(np.int32) for rows in sent], "topology"))
    columns = np.concatenate(comm.alltoall([rows.indices for rows in sent], "topology"))
    values = None
    if whole.block.adjacency.values is not None:
        values = np.concatenate(comm.alltoall([rows.entries() for rows in sent], "topology"))
    members = [whole.layout.members(rank) for rank in range(comm.size)]
    seen = np.concatenate([part[deal.sees(comm.rank, part)] for part in members])
    if len(counts) != len(seen) or len(columns) != counts.sum():
        raise PeerLost(f"rank {comm.rank} sees {len(seen)} rows; {len(counts)} came")
    rows = CSR(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64), columns, values, (len(seen), n))
    order = np.argsort(seen)
    return seen[order], rows.take(order)


def _rows_for(block: GraphBlock, deal: Deal, rank: int, outside: bool) -> CSR:
    """Of this block, the rows that a rank sees."""
    rows = block.adjacency.take(np.flatnonzero(deal.sees(rank, block.vertices)))
    if outside:
        return rows
    keep = deal.sees(rank, rows.indices)
    indptr = np.concatenate([[0], np.cumsum(keep)])[rows.indptr].astype(np.int64)
    return CSR(indptr, rows.indices[keep], None if rows.values is None else rows.values[keep], rows.shape)


def _stored(x: Input) -> np.ndarray | CSR:
    """Input rows as a graph keeps them."""
    if isinstance(x, SparseRows):
        return CSR(x.indptr, x.indices, x.weights, x.shape)
    return x.numpy()


class LocalRows:
    """All rows of a local view, for one pass over them at once: `views.full_graph.FullGraph` without anything that travels.

    Parameters
    ----------
    view : LocalView
    matrix : CSR, optional
        Edges in place of those of the view.
    """

    def __init__(self, view: LocalView, matrix: CSR | None = None) -> None:
        matrix, everything = matrix or view.matrix, np.arange(len(view.vertices))
        weights = mean_weights(matrix.indptr, matrix.values, view.whole.block.weight_unit, view.whole.weights is not None)[1]
        self.n, self.edges = len(everything), matrix.nnz
        self.block = view.placed(Block(matrix.indptr, matrix.indices, weights, self.n))
        self.degrees, self.x = view.degrees(everything), view.features.fetch(everything)

    @property
    def rows(self) -> int:
        return self.n

    def exchanged(self, layer: Layer, h: Input, first: bool, key: str) -> torch.Tensor:
        """One layer over all rows; nothing is exchanged."""
        everything = slice(0, self.n)
        return layer.receive(self.block, layer.send(h, self.degrees, first), h[everything], everything, self.degrees, first)
