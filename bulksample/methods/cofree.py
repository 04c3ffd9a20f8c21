"""CoFree-GNN: each rank trains on its part of the edges, and the ranks exchange only gradients.

A vertex is copied to every rank that has one of its edges.

    offline    every edge lies in one part E_p;   V_p = the ends of E_p, with their features
    epoch      g = sum over p, v in V_p of w_pv grad loss(f_p(v)) / training vertices,   w_pv = d_p(v) / d(v)

d_p(v) counts the in-neighbors of v in part p, so the weights of all copies of a vertex add up to one. A vertex without
in-neighbors has one copy with weight one, on the rank of its block row. Over p ranks an epoch sends 2 (p - 1) 4 (|theta| + 3) bytes
(kind "gradients"), whatever the parts. Three things are sent once, before the first epoch: 4 n (p - 1) bytes of degrees; 8 bytes
(16 with weights) for each edge whose part is on another rank than its block row (both of kind "topology"); and a row of features for
each copy of a vertex on another rank than its block row (see `distributed.matrix.feature_exchange.RowExchange`).

For one linear layer of means this is exact: sum over p of w_pv mean over N_p(v) of x = mean over N(v) of x, so the weighted average of
the copies of a vertex is its output on the whole graph. With more layers, a copy sees only the part of its L-hop neighborhood that
is on its rank. Means are over local neighbors. A GCN normalises by degrees of the whole graph, and estimates a sum by d(v) times the
local mean. With one rank this is the method `full`.

The part of an edge is chosen by a random (Philox) word, which depends on
    random    both of its ends                degree    its end with fewer in-neighbors: hubs have many copies, leaves few
`--drop-edge q` removes each pair of ends with probability q. It draws K masks (`--edge-masks`) once, and epochs use them in turn.

Only the abstract of the paper was available, so the weights by degree and the two ways to choose parts are our interpretation of it.
Cao, Deng, Wu, Huang, Subbian, Leskovec, "Communication-free distributed GNN training with vertex cut", arXiv 2308.03209.
The cut by degree: Xie, Yan, Li, Zhang, "Distributed power-law graph computing: theoretical and empirical analysis", NeurIPS 2014.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..graph.labels import as_numbers, has_label, known_share
from ..nn.losses import seed_losses
from ..rng import Stream, Substream
from ..sparse import CSR
from ..training.batches import BatchSource, StepBatch, WholeGraphSource
from ..training.context import TrainingContext
from ..training.method import Method
from ..views.full_graph import FullGraph
from ..views.local import LocalPart, LocalRows, allgather_degrees, check_replication, local_part
from ..views.view import View
from .config import TrainConfig
from .full import require_single_precision


class CoFree(Method):
    """Full-graph training on parts of the edges; each copy of a vertex counts by its share of the neighbors."""

    name: ClassVar[str] = "cofree"
    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    equal_steps: ClassVar[bool] = True
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "no"

    config: TrainConfig

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        require_single_precision(config)

    def view(self, context: TrainingContext) -> None:
        """Train on this rank's part of the edges instead of its block row; collective."""
        whole, self._comm = context.view, context.comm
        if whole.own_rows().weights is not None:
            raise UsageError(
                "copies of a vertex count by their number of neighbours; got means by edge weight: use a sampler of plain means"
            )
        self.local, self._weights = cut_view(whole, self._comm, self.config.vertex_cut, self.config.seed)
        self.initial_bytes = context.ledger.run_bytes
        context.replace_view(self.local.view)

    def batches(self, context: TrainingContext) -> BatchSource:
        config, local, view = self.config, self.local, self.local.view
        matrices = [local.matrix]
        if config.drop_edge:
            matrices = [thinned(matrices[0], local.vertices, config.drop_edge, config.seed, k) for k in range(config.edge_masks)]
        self._passes = [FullGraph(LocalRows(local, matrix), config.form == "strong") for matrix in matrices]
        labelled = np.flatnonzero(has_label(view.labels))
        shares = known_share(view.labels[labelled])
        weights, self._total = self._weights[labelled].astype(np.float32), float((self._weights[labelled] * shares).sum())
        arrays = (view.seeds[labelled].astype(np.int64), as_numbers(view.labels[labelled]), weights)
        self._at, self._labels, self._shares = (torch.from_numpy(array).to(view.where) for array in arrays)
        return WholeGraphSource()

    def loss(self, context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
        """Return the weighted sum of the losses of the copies on this rank, and the sum of their weights."""
        logits = self._passes[context.epoch % len(self._passes)](context.model)
        losses, _ = seed_losses(self.target, logits[self._at], self._labels)
        return torch.sum(losses * self._shares), self._total

    def describe(self) -> dict[str, Any]:
        """Return the balance of the parts; collective: vertices and edges of all parts are gathered."""
        sizes = self._comm.gather_control((len(self.local.vertices), self.local.matrix.nnz, self.initial_bytes))
        vertices, edges, initial = (list(column) for column in zip(*sizes, strict=True))
        return {
            "vertex_cut": self.config.vertex_cut,
            "replication_factor": sum(vertices) / self.local.whole.layout.n,
            "edge_balance": max(edges) * len(edges) / max(1, sum(edges)),
            "initial_bytes": sum(initial),
        }


def part_of_edges(how: str, seed: int, rows: np.ndarray, columns: np.ndarray, degrees: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each edge v <- u, the same as that of u <- v: int64.

    Parameters
    ----------
    how : {"random", "degree"}
    rows, columns : int32, shape (e,)
        v and u.
    degrees : integers, shape (n,)
        In-neighbors in the whole graph. If both ends have equally many, the one with the lower id decides.
    """
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    if how == "degree":
        low = high = np.where(degrees[high] < degrees[low], high, low)
    words = pair_words(seed, Substream.COFREE_PART, low, high, 0)
    return ((words.astype(np.uint64) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)


def pair_words(seed: int, substream: Substream, low: np.ndarray, high: np.ndarray, turn: int) -> np.ndarray:
    """Return a random word for each pair of vertices (low, high): uint32; `substream` and `turn` select independent words."""
    return Stream(seed).words(substream.tag(), low, vertex=high, minibatch=turn)[..., 0]


def thinned(matrix: CSR, vertices: np.ndarray, rate: float, seed: int, mask: int) -> CSR:
    """Return the matrix without the entries that random mask number `mask` drops; v <- u and u <- v are dropped together."""
    rows, columns = vertices[matrix.row_of_entry()], vertices[matrix.indices]
    words = pair_words(seed, Substream.COFREE_DROPPED_EDGE, np.minimum(rows, columns), np.maximum(rows, columns), mask)
    return matrix.keep(words >= rate * 2**32)


def cut_view(whole: View, comm: Comm, how: str, seed: int) -> tuple[LocalPart, np.ndarray]:
    """Send each edge to the rank of its part; return this rank's part, and the weight of each of its seeds (float64). Collective.

    Raises `UsageError` if the grid replicates the graph c > 1 times.
    """
    check_replication(own := whole.own_rows())
    degrees, block = allgather_degrees(own), own.block
    rows, columns = block.vertices[block.adjacency.row_of_entry()], block.adjacency.indices
    part = part_of_edges(how, seed, rows, columns, degrees, comm.size)
    edges = [np.column_stack([rows[part == rank], columns[part == rank]]) for rank in range(comm.size)]
    ends = np.concatenate(comm.alltoall(edges, "topology"))
    values = None
    if block.adjacency.values is not None:
        values = np.concatenate(comm.alltoall([block.adjacency.entries()[part == rank] for rank in range(comm.size)], "topology"))

    alone = block.vertices[degrees[block.vertices] == 0]
    vertices = np.unique(np.concatenate([ends.ravel(), alone])).astype(np.int32)
    places = np.searchsorted(vertices, ends)
    matrix = CSR.from_edges(places[:, 0], places[:, 1], (len(vertices),) * 2, values)
    here = np.zeros(len(vertices))
    here[np.searchsorted(vertices, alone)] = 1.0
    share = np.divide(matrix.degrees, degrees[vertices], out=here, where=degrees[vertices] > 0)

    at = np.minimum(np.searchsorted(vertices, whole.seeds), max(0, len(vertices) - 1))
    has_copy = np.zeros(len(whole.seeds), bool)
    if len(vertices):
        has_copy = (vertices[at] == whole.seeds) & (share[at] > 0)
    x = whole.features.start(vertices).wait()
    local = local_part(whole, vertices, len(vertices), matrix, x, degrees[vertices], has_copy, whole.adjacency.backend)
    return local, share[local.view.seeds]
