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

In a graph of several types d(v) counts the neighbors by relation: w_pv is the mean over the relations r in which v has neighbors of
d_pr(v) / d_r(v), and a copy takes (d_pr(v) / d_r(v)) / w_pv times its mean over N_pr(v). So one layer of sums of means is exact again. The
relations are whole on every rank, and no edge travels. An edge and its reverse, which is of another relation, lie in one part.

The part of an edge is chosen by a random (Philox) word, which depends on
    random    both of its ends                degree    its end with fewer in-neighbors: hubs have many copies, leaves few
`--drop-edge q` removes each pair of ends with probability q. It draws K masks (`--edge-masks`) once, and epochs use them in turn.

Only the abstract of the paper was available, so the weights by degree and the two ways to choose parts are our interpretation of it.
Cao, Deng, Wu, Huang, Subbian, Leskovec, "Communication-free distributed GNN training with vertex cut", arXiv 2308.03209.
The cut by degree: Xie, Yan, Li, Zhang, "Distributed power-law graph computing: theoretical and empirical analysis", NeurIPS 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..graph.induced import by_type
from ..graph.labels import as_numbers, has_label, known_share
from ..nn.losses import seed_losses
from ..rng import Stream, Substream
from ..sparse import CSR
from ..training.batches import BatchSource, StepBatch, WholeGraphSource
from ..training.context import TrainingContext
from ..training.loaders import PART_SEED
from ..views.full_graph import FullGraph, LocalRows
from ..views.local import BlockParts, FullPass, LocalPart, check_replication, local_part
from ..views.type_part import TypeParts, start_part
from ..views.type_view import type_targets
from .config import TrainConfig
from .full import require_single_precision
from .part_method import PartMethod


class CoFree(PartMethod):
    """Full-graph training on parts of the edges; each copy of a vertex counts by its share of the neighbors."""

    name: ClassVar[str] = "cofree"
    in_time = "gives each vertex one row in a pass over its part, and in time it has one for each seed's time", "method sync or random-tma"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        require_single_precision(config)

    def view(self, context: TrainingContext) -> None:
        """Train on this rank's part of the edges instead of its block row; collective."""
        whole, self._comm = context.view, context.comm
        weighted = whole.block_rows.weights is not None if whole.block_rows else type_targets(whole).weighted
        if weighted:
            raise UsageError(
                "copies of a vertex count by their number of neighbours; got means by edge weight: use a sampler of plain means"
            )
        parts = self.make_parts(whole)
        cut = cut_view(parts, self._comm, self.config) if isinstance(parts, BlockParts) else cut_types(parts, self._comm, self.config)
        self._cut, self.local, self._n, self.initial_bytes = cut, cut.part, parts.n, context.ledger.run_bytes
        context.replace_view(self.local.view)

    def batches(self, context: TrainingContext) -> BatchSource:
        view = self.local.view
        self._passes = [self._cut.full_pass(mask) for mask in (range(self.config.edge_masks) if self.config.drop_edge else [None])]
        labelled = np.flatnonzero(has_label(view.labels))
        shares = known_share(view.labels[labelled])
        weights, self._total = self._cut.weights[labelled].astype(np.float32), float((self._cut.weights[labelled] * shares).sum())
        arrays = (view.seeds[labelled].astype(np.int64), as_numbers(view.labels[labelled]), weights)
        self._at, self._labels, self._shares = (torch.from_numpy(array).to(view.where) for array in arrays)
        return WholeGraphSource()

    def loss(self, context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
        """Return the weighted sum of the losses of the copies on this rank, and the sum of their weights."""
        logits = self._passes[context.epoch % len(self._passes)](context.model, context.whole_pass(PART_SEED * context.comm.rank))
        losses, _ = seed_losses(self.target, logits[self._at], self._labels)
        return torch.sum(losses * self._shares), self._total

    def describe(self) -> dict[str, Any]:
        """Return the balance of the parts; collective: vertices and edges of all parts are gathered."""
        sizes = self._comm.gather_control((len(self.local.vertices), self.local.edges, self.initial_bytes))
        vertices, edges, initial = (list(column) for column in zip(*sizes, strict=True))
        return {
            "vertex_cut": self.config.vertex_cut,
            "replication_factor": sum(vertices) / self._n,
            "edge_balance": max(edges) * len(edges) / max(1, sum(edges)),
            "initial_bytes": sum(initial),
        }


def part_of_edges(how: str, seed: int, rows: np.ndarray, columns: np.ndarray, degrees: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each edge v <- u, the same as that of u <- v: int64. `rows` and `columns` are v and u, int32.

    `degrees` count in-neighbors in the whole graph. If both ends have equally many, the one with the lower id decides.
    """
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    if how == "degree":
        low = high = np.where(degrees[high] < degrees[low], high, low)
    words = pair_words(seed, Substream.COFREE_PART, low, high, 0)
    return ((words.astype(np.uint64) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)


def pair_words(seed: int, substream: Substream, low: np.ndarray, high: np.ndarray, turn: int) -> np.ndarray:
    """Return a random word for each pair of vertices (low, high): uint32; `substream` and `turn` select independent words."""
    return Stream(seed).words(substream.tag(), low, vertex=high, minibatch=turn)[..., 0]


def kept_edges(rows: np.ndarray, columns: np.ndarray, rate: float, seed: int, mask: int) -> np.ndarray:
    """Return False for the edges v <- u that random mask number `mask` drops; v <- u and u <- v are dropped together."""
    words = pair_words(seed, Substream.COFREE_DROPPED_EDGE, np.minimum(rows, columns), np.maximum(rows, columns), mask)
    return np.asarray(words >= rate * 2**32)


def thinned(matrix: CSR, vertices: np.ndarray, rate: float, seed: int, mask: int) -> CSR:
    """Return the matrix without the entries that a mask drops."""
    return matrix.keep(kept_edges(vertices[matrix.row_of_entry()], vertices[matrix.indices], rate, seed, mask))


class EdgePart(NamedTuple):
    """A rank's part of the edges."""

    part: LocalPart
    weights: np.ndarray  # float64, of each seed of the part
    full_pass: Callable[[int | None], FullPass]  # over all rows, without the edges that a mask drops


def cut_view(parts: BlockParts, comm: Comm, config: TrainConfig) -> EdgePart:
    """Send each edge of a graph in block rows to the rank of its part, and return that of this rank; collective.

    Raises `UsageError` if the grid replicates the graph c > 1 times.
    """
    whole, degrees = parts.whole, parts.degrees
    check_replication(block_rows := whole.own_rows())
    block = block_rows.block
    rows, columns = block.vertices[block.adjacency.row_of_entry()], block.adjacency.indices
    part = part_of_edges(config.vertex_cut, config.seed, rows, columns, degrees, comm.size)
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
    x = whole.features.fetch(vertices)
    local = local_part(whole, vertices, len(vertices), matrix, x, degrees[vertices], has_copy)

    def full_pass(mask: int | None) -> FullPass:
        kept = matrix if mask is None else thinned(matrix, vertices, config.drop_edge, config.seed, mask)
        return FullGraph(LocalRows(local.view, kept), config.form == "strong")

    return EdgePart(local, share[local.view.seeds], full_pass)


def cut_types(parts: TypeParts, comm: Comm, config: TrainConfig) -> EdgePart:
    """Return this rank's part of the edges of all relations, which every rank has; collective if other ranks hold features."""
    graph, offset = parts.graph, dict(zip((kind.name for kind in parts.graph.types), parts.graph.offsets.tolist(), strict=False))
    degrees, total, linked = np.zeros(graph.n, np.int64), np.zeros(graph.n), np.zeros(graph.n)
    rows_of = {name: slice(first, first + graph.type(name).count) for name, first in offset.items()}
    for relation in graph.relations:
        degrees[rows_of[relation.destination]] += relation.adjacency.degrees
    alone, relations = (degrees == 0) & (parts.blocks.part == comm.rank), []
    inside = alone.copy()
    for relation in graph.relations:
        matrix, rows = relation.adjacency, rows_of[relation.destination]
        ends = offset[relation.destination] + matrix.row_of_entry(), offset[relation.source] + matrix.indices
        here = part_of_edges(config.vertex_cut, config.seed, *ends, degrees, comm.size) == comm.rank
        kept = matrix.keep(here)
        inside[ends[0][here]] = inside[ends[1][here]] = True
        total[rows] += np.divide(kept.degrees, matrix.degrees, out=np.zeros(len(matrix.degrees)), where=matrix.degrees > 0)
        linked[rows] += matrix.degrees > 0
        relations.append(replace(relation, adjacency=kept))
    weights = np.divide(total, linked, out=alone.astype(np.float64), where=linked > 0)
    vertices = np.flatnonzero(inside).astype(np.int32)
    seed_weights, everything = weights[parts.seeds], np.ones(len(vertices), bool)
    part = start_part(parts.whole, replace(graph, relations=tuple(relations)), vertices, everything, seed_weights > 0)()
    names = by_type(graph, vertices)

    def full_pass(mask: int | None) -> FullPass:
        means = []
        for (source, _, name), matrix, of_whole in part.relations:
            rows, at = matrix.row_of_entry(), offset[name] + names[name]
            kept = np.ones(len(rows), bool)
            if mask is not None:
                kept = kept_edges(at[rows], offset[source] + names[source][matrix.indices], config.drop_edge, config.seed, mask)
            counts = np.bincount(rows, kept, minlength=len(at))
            scale = np.divide(matrix.degrees, of_whole * weights[at] * counts, out=np.zeros(len(at)), where=counts > 0)
            means.append(np.where(kept, scale[rows], 0).astype(np.float32))
        return part.full_pass(weights=means)

    return EdgePart(part, seed_weights[seed_weights > 0], full_pass)
