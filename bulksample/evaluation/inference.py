"""Exact inference: layer by layer over the whole graph, each layer once, with all neighbours.

    for l = 1 .. L:   sent = send_l(h[own])  -> to whoever aggregates it;   h[own] = receive_l(A[own, :], sent)

Work is L passes over the edges instead of a tree per vertex. Every rank computes the rows of its own share; how a share
is cut, and how a rank gets at the rows that its own aggregate from, is the business of `Share`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch

from ..minibatch import Block
from ..nn.layers import Input, Layer
from ..nn.model import Gnn

CHUNK_NUMBERS = 2**24

Around = Callable[[int, int], tuple[Block, torch.Tensor, slice]]


class Share(ABC):
    """The rows that this rank computes: consecutive rows of A, counted from 0.

    Attributes
    ----------
    n, edges : int
        Of the whole graph.
    chunk : int
        Numbers held at once beyond the rows themselves.
    rows : int
        Of this share.
    degrees : float32, shape (rows,)
        (Weighted) degrees.
    labels : int64, shape (rows,), optional
    masks : dict of bool arrays of shape (rows,)
    sparse : bool
        Whether the features are.
    """

    chunk = CHUNK_NUMBERS
    n: int
    edges: int
    rows: int
    indptr: np.ndarray
    degrees: torch.Tensor
    labels: np.ndarray | None
    masks: dict[str, np.ndarray]
    sparse: bool

    @abstractmethod
    def features(self, first: int, last: int) -> Input:
        """The features of some rows of the share."""

    @abstractmethod
    def spread(self, sent: torch.Tensor) -> Around:
        """Make what the rows of this share send known to those that aggregate it; collective (kind "activations").

        Returns
        -------
        A function from a range of rows of the share to their edges as a block, what its sources sent, and where the rows
        stand among the sources. It is called for the ranges of `steps`, in their order.
        """

    def spread_features(self, layer: Layer) -> Around:
        """`spread` of what the rows send to a layer that aggregates raw features."""
        return self.spread(_sent(layer, self, None, False))

    def steps(self, width: int) -> list[tuple[int, int]]:
        """Ranges of rows whose edges, `width` numbers each, can be held at once: at least one row each."""
        return list(edge_steps(self.indptr, max(1, self.chunk // max(1, width))))


def infer(model: Gnn, share: Share) -> torch.Tensor:
    """Compute the logits of the rows of a share from all their neighbors: shape (rows, classes); collective."""
    return infer_with_hidden(model, share)[1]


@torch.no_grad()
def infer_with_hidden(model: Gnn, share: Share) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Compute the rows that enter the last layer, shape (rows, hidden), and the logits; a model of one layer has no such rows."""
    training = model.training
    model.eval()
    below: torch.Tensor | None = None
    own: torch.Tensor | None = None  # the rows of the layer below; None stands for the features
    for i, module in enumerate(model.layers):
        below, own = own, model.between(i, _layer_rows(cast(Layer, module), share, own))
    model.train(training)
    assert own is not None
    return below, own


def _layer_rows(layer: Layer, share: Share, own: torch.Tensor | None) -> torch.Tensor:
    """The share's rows of one layer; `own` are its rows of the layer below, None for the features."""
    transforms = layer.transforms_first(own is None and share.sparse, share.n, share.n, share.edges)
    raw = own is None and not transforms
    around = share.spread_features(layer) if raw else share.spread(_sent(layer, share, own, transforms))
    received = [torch.empty(0, layer.width_out, device=share.degrees.device)]
    for a, b in share.steps(max(layer.width_out, layer.width_in if raw else 0)):
        block, sent, place = around(a, b)
        if a < b:
            received.append(layer.receive(block, sent, _rows(share, own, a, b), place, share.degrees[a:b], transforms))
    return torch.cat(received)


def _sent(layer: Layer, share: Share, own: torch.Tensor | None, transforms: bool) -> torch.Tensor:
    """What all rows of the share send to a layer."""
    step = max(1, share.chunk // max(layer.width_in, layer.width_out))
    cuts = [(a, min(a + step, share.rows)) for a in range(0, share.rows, step)] or [(0, 0)]
    return torch.cat([layer.send(_rows(share, own, a, b), share.degrees[a:b], transforms) for a, b in cuts])


def _rows(share: Share, own: torch.Tensor | None, a: int, b: int) -> Input:
    return share.features(a, b) if own is None else own[a:b]


def compact(indptr: np.ndarray, sources: np.ndarray, weights: np.ndarray | None, own: np.ndarray) -> tuple[Block, np.ndarray, slice]:
    """Rows whose sources are ids from anywhere as a block of their own.

    Parameters
    ----------
    indptr : int64, shape (D + 1,)
    sources : integers, shape (E,)
    own : int64, shape (D,)
        The ids of the rows: consecutive numbers.

    Returns
    -------
    The block, the distinct ids of its sources (ascending; those of the rows are among them), and where the rows stand there.
    """
    ids, local = np.unique(np.concatenate([own, sources]), return_inverse=True)
    place = int(local[0]) if len(own) else 0
    return Block(indptr, local[len(own) :].astype(np.int32), weights, len(ids)), ids, slice(place, place + len(own))


def edge_steps(indptr: np.ndarray, edges: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold about so many edges and rows together, at least one row each."""
    work, a, rows = indptr - indptr[0] + np.arange(len(indptr)), 0, len(indptr) - 1
    while a < rows:
        b = int(np.searchsorted(work, work[a] + edges, side="right")) - 1
        b = min(max(b, a + 1), rows)
        yield a, b
        a = b


def even_work(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Cut rows into ranges of about even work, a row costing its edges and itself: int64, shape (parts + 1,)."""
    work = indptr - indptr[0] + np.arange(len(indptr))
    inner = np.searchsorted(work, np.linspace(0, work[-1], parts + 1)[1:-1])
    return np.array([0, *inner, len(indptr) - 1], np.int64)
