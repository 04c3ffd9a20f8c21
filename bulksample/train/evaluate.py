"""Exact inference: layer by layer over the whole graph, each layer once, with all neighbours.

    for l = 1 .. L:   sent = send_l(h[mine])  -> all-gathered;   h[mine] = receive_l(A[mine, :], sent)

Work is L passes over the edges instead of a tree per vertex. Every rank computes the rows of its own contiguous
range, cut so that edges are even; before a layer each rank holds its rows, after the all-gather (kind
"activations") what every vertex sends, n rows of the narrower width of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from ..dist.base import Comm
from ..graph import Graph
from ..minibatch import Block
from .aggregate import SparseRows
from .features import Features
from .layers import Layer
from .metrics import ogb_score, score
from .model import Gnn

_CHUNK_NUMBERS = 2**24  # held at once beyond the rows themselves


@dataclass(frozen=True, eq=False)
class Topology:
    """The whole adjacency as a block, and this rank's share of its rows.

    Attributes
    ----------
    indptr, indices, weights
        The rows of A; weights (float32) add up to one in each row, ``None`` stands for the mean.
    degrees : float32, shape (n,)
        (Weighted) degrees.
    bounds : int64, shape (size + 1,)
        Rank r computes the rows ``bounds[r]:bounds[r + 1]``.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    degrees: torch.Tensor
    bounds: np.ndarray

    @staticmethod
    def of(graph: Graph, ranks: int = 1, weighted: bool = False) -> Topology:
        """`weighted` makes every mean a weighted one, for graphs with edge weights."""
        a = graph.adjacency
        degrees, weights = a.degrees.astype(np.float64), None
        if weighted and a.values is not None:
            values, row = a.values.astype(np.float64), a.row_of_entry()
            totals = np.bincount(row, values, minlength=graph.n).astype(np.float64)
            weights = (values / np.maximum(totals, 1.0)[row]).astype(np.float32)
            degrees = totals * graph.weight_unit
        work = a.indptr + np.arange(graph.n + 1)  # a row costs its edges and itself
        bounds = np.searchsorted(work, np.linspace(0, work[-1], ranks + 1)[1:-1])
        return Topology(a.indptr, a.indices, weights, torch.from_numpy(degrees.astype(np.float32)), np.array([0, *bounds, graph.n]))

    def rows(self, first: int, last: int) -> Block:
        """Rows of A as a block whose sources are all vertices; the arrays of entries are shared."""
        entries = slice(self.indptr[first], self.indptr[last])
        weights = None if self.weights is None else self.weights[entries]
        return Block(self.indptr[first : last + 1] - self.indptr[first], self.indices[entries], weights, len(self.indptr) - 1)


@torch.no_grad()
def infer(model: Gnn, topology: Topology, features: Features, comm: Comm) -> torch.Tensor:
    """Logits of this rank's rows, with all neighbours of every vertex: shape (own rows, classes)."""
    training = model.training
    model.eval()
    first, last = int(topology.bounds[comm.rank]), int(topology.bounds[comm.rank + 1])
    own: torch.Tensor | None = None  # the rows of the layer below; None stands for the features
    for i, module in enumerate(model.layers):
        layer = cast(Layer, module)
        own = model.between(i, _layer_rows(layer, topology, features, own, first, last, comm))
    model.train(training)
    assert own is not None
    return own


def _layer_rows(
    layer: Layer, topology: Topology, features: Features, own: torch.Tensor | None, first: int, last: int, comm: Comm
) -> torch.Tensor:
    """This rank's rows of one layer; `own` are its rows of the layer below, None for the features."""
    n = len(topology.indptr) - 1
    sparse = own is None and features.is_sparse
    transforms = layer.transforms_first(sparse, n, n, int(topology.indptr[-1]))
    if own is None and not transforms:
        return _from_features(layer, topology, features, first, last)

    def rows(a: int, b: int) -> torch.Tensor | SparseRows:
        return features.fetch(np.arange(a, b)) if own is None else own[a - first : b - first]

    step = max(1, _CHUNK_NUMBERS // max(layer.width_in, layer.width_out, features.width if own is None else 1))
    pieces = [layer.send(rows(a, b), topology.degrees[a:b], transforms) for a, b in _steps(first, last, step)]
    sent = _all_rows(torch.cat(pieces) if pieces else _nothing_sent(layer, transforms), topology, comm)
    received = []
    for a, b in _edge_steps(topology, first, last, max(1, _CHUNK_NUMBERS // max(1, layer.width_out))):
        received.append(layer.receive(topology.rows(a, b), sent, rows(a, b), slice(a, b), topology.degrees[a:b], transforms))
    return torch.cat(received) if received else torch.empty(0, layer.width_out)


def _from_features(layer: Layer, topology: Topology, features: Features, first: int, last: int) -> torch.Tensor:
    """The first layer where it aggregates raw features: every chunk of rows fetches what its edges name, nothing travels."""
    received = [torch.empty(0, layer.width_out)]
    for a, b in _edge_steps(topology, first, last, max(1, _CHUNK_NUMBERS // max(1, features.width))):
        block = topology.rows(a, b)
        vertices, local = np.unique(np.concatenate([np.arange(a, b), block.indices]), return_inverse=True)
        place = local[: b - a]
        x = cast(torch.Tensor, features.fetch(vertices))
        degrees = topology.degrees[torch.from_numpy(vertices)]
        compact = Block(block.indptr, local[b - a :].astype(np.int32), block.weights, len(vertices))
        own = slice(int(place[0]), int(place[-1]) + 1)  # np.unique sorts, so consecutive vertices stay together
        received.append(layer.receive(compact, layer.send(x, degrees, False), x[own], own, degrees[own], False))
    return torch.cat(received)


def _all_rows(mine: torch.Tensor, topology: Topology, comm: Comm) -> torch.Tensor:
    if comm.size == 1:
        return mine
    return torch.from_numpy(comm.allgather_rows(mine.contiguous().numpy(), np.diff(topology.bounds), "activations"))


def _nothing_sent(layer: Layer, transforms: bool) -> torch.Tensor:
    """Zero rows of the width that `send` gives."""
    return layer.send(torch.empty(0, layer.width_in), torch.empty(0), transforms)


def _steps(first: int, last: int, step: int) -> list[tuple[int, int]]:
    return [(a, min(a + step, last)) for a in range(first, last, step)]


def _edge_steps(topology: Topology, first: int, last: int, edges: int) -> list[tuple[int, int]]:
    """Ranges of rows that hold about so many edges and rows together, at least one row each."""
    work = topology.indptr[first : last + 1] + np.arange(last - first + 1)
    steps, a = [], first
    while a < last:
        b = first + int(np.searchsorted(work, work[a - first] + edges, side="right")) - 1
        steps.append((a, min(max(b, a + 1), last)))
        a = steps[-1][1]
    return steps


def evaluate(model: Gnn, graph: Graph, topology: Topology, features: Features, comm: Comm, metric: str) -> dict[str, float]:
    """Scores of every split of a graph, on every rank.

    Returns
    -------
    dict
        ``{split}_accuracy`` for train, val and test where the graph has them, ``{split}_{metric}`` where the metric is
        another, and ``{split}_ogb`` for graphs named ogbn-* where OGB's evaluator is installed.

    Notes
    -----
    All ranks gather one class and one margin for every vertex (kind "activations").
    """
    logits = infer(model, topology, features, comm)
    predicted = _all_rows(logits.argmax(1).to(torch.int32)[:, None], topology, comm).numpy()[:, 0]
    margin = np.zeros(len(predicted), np.float32)
    if metric == "rocauc":
        margin = _all_rows((logits[:, 1] - logits[:, 0])[:, None], topology, comm).numpy()[:, 0]
    assert graph.labels is not None
    scores: dict[str, float] = {}
    for split, mask in graph.masks.items():
        if not mask.any():
            continue
        truth = graph.labels[mask]
        for name in dict.fromkeys(("accuracy", metric)):
            scores[f"{split}_{name}"] = score(name, truth, predicted[mask], margin[mask])
        by_ogb = ogb_score(graph.name, truth, predicted[mask])
        if by_ogb is not None:
            scores[f"{split}_ogb"] = by_ogb
    return scores
