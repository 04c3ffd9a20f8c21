"""Link prediction: an encoder of vertices, a decoder of pairs, and where a true edge ranks among edges that are none.

    z = Gnn(x),   score(u, v) = z_u . z_v  (dot)   or   w . act(W (z_u * z_v) + b) + c  (mlp)
    rank = 1 + #(negatives that score more) + 1/2 #(negatives that score the same)
    MRR = mean 1 / rank,   Hits@k = share of ranks <= k

Ties count half: a decoder that scores all alike ranks in the middle and not first. (The published code of TMA counts ties against the
edge; OGB's evaluator takes the mean of both, which for MRR is the rank used here.)

Inner products of pairs are entries of Z Z^T. With G the sparse matrix of what reaches them, entry (u, v) for a pair, the gradient is
dZ = G Z + G^T Z: two sparse products, and no row of Z is ever held once a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..data.edge_split import HELD_OUT, Links
from ..distributed.comm.base import Comm
from ..evaluation.inference import Share, infer
from ..minibatch import Block
from .aggregate import SparseRows
from .layers import Input
from .model import Gnn, Model

DECODERS = ("dot", "mlp")
_SCORED = 2**22  # numbers of a chunk of negatives
_GATHERED = 2**18  # numbers of a chunk of rows that are multiplied and let go: they stay in a cache


class LinkModel(Model):
    """An encoder and a decoder.

    Parameters
    ----------
    encoder : Gnn
        Its output is as wide as its hidden layers.
    decoder : one of DECODERS
    width : int
        Of the encoder's output.
    """

    def __init__(self, encoder: Gnn, decoder: str, width: int) -> None:
        super().__init__()
        self.encoder, self.generator, self.input_dropout = encoder, encoder.generator, encoder.input_dropout
        sizes = [(width, width), (width, 1)] if decoder == "mlp" else []
        self.decoder = nn.ModuleList(nn.Linear(a, b) for a, b in sizes)
        self.slope = nn.Parameter(torch.full((1,), 0.25)) if sizes else None  # of PReLU
        for parameter in self.decoder.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=self.generator)

    def forward(self, blocks: Sequence[Block], x: Input, degrees: torch.Tensor) -> torch.Tensor:
        """Embeddings of the destinations of the last block."""
        return self.encoder(blocks, x, degrees)

    def scores(self, z: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of edges, and of what each is told from: shape (b,) twice.

        Parameters
        ----------
        z : shape (n, width)
        rows : int64, shape (3 b,)
            Where in z sources, destinations and other destinations stand.
        """
        if self.slope is None and z.device.type == "cpu":
            source, destination, other = rows.chunk(3)
            return _InnerProducts.apply(z, source, destination), _InnerProducts.apply(z, source, other)
        source, destination, other = z[rows].chunk(3)
        return self.score(source, destination), self.score(source, other)

    def score(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Scores of pairs of embeddings: shape (..., width) to (...)."""
        product = one * other
        if self.slope is None:
            return product.sum(-1)
        first, last = self.decoder
        return last(nn.functional.prelu(first(product), self.slope)).squeeze(-1)


class _InnerProducts(torch.autograd.Function):
    """<z_u, z_v> of pairs, shape (b,)."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(z, one, other)
        step = max(1, _GATHERED // max(1, z.shape[1]))
        parts = zip(one.split(step), other.split(step), strict=True)
        return torch.cat([(z[u] * z[v]).sum(-1) for u, v in parts]) if len(one) else z.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        z, one, other = ctx.saved_tensors
        value = grad[0].contiguous()
        return _adjacent(z, one, other, value) + _adjacent(z, other, one, value), None, None


def _adjacent(z: torch.Tensor, row: torch.Tensor, column: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """G Z of the matrix G with entries (row, column, value); those of a row are added in the order of the pairs."""
    pairs = SparseRows(np.arange(len(row) + 1), row.numpy().astype(np.int32), value.numpy(), len(z)).transposed
    return SparseRows(pairs.indptr, column.numpy().astype(np.int32)[pairs.indices], pairs.weights, len(z)).times(z)


@torch.no_grad()
def ranks(model: LinkModel, z: torch.Tensor, pairs: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """The rank of each pair among its negatives, ties counting half: float64, shape (len(pairs),)."""
    found, step = [np.empty(0)], max(1, _SCORED // max(1, negatives.shape[1] * z.shape[1]))
    for first in range(0, len(pairs), step):
        own = torch.from_numpy(pairs[first : first + step].astype(np.int64))
        others = torch.from_numpy(negatives[first : first + step].astype(np.int64))
        true = model.score(z[own[:, 0]], z[own[:, 1]])[:, None]
        false = model.score(z[own[:, 0]][:, None], z[others])
        found.append((1 + (false > true).sum(1) + 0.5 * (false == true).sum(1)).double().cpu().numpy())
    return np.concatenate(found)


def evaluate_links(model: LinkModel, share: Share, links: Links, comm: Comm, at: Sequence[int]) -> dict[str, float]:
    """MRR and Hits@k of the held-out edges by exact embeddings, on every rank; collective.

    Parameters
    ----------
    share : Share
        The shares of all ranks are the graph, in the order of ranks.
    at : the k of Hits@k

    Notes
    -----
    All ranks gather the embeddings (kind "activations"); each ranks a part of the pairs, and sums are added (kind "control").
    """
    training = model.training
    model.eval()
    inferred = infer(model.encoder, share).contiguous()
    own = inferred.cpu().numpy()
    counts = comm.allgather(np.array([len(own)]), "control")[:, 0]
    z = torch.from_numpy(comm.allgather_rows(own, counts, "activations")).to(inferred.device)
    scores: dict[str, float] = {}
    for split in HELD_OUT:
        pairs, negatives = (what[split][comm.rank :: comm.size] for what in (links.pairs, links.negatives))
        found = ranks(model, z, pairs, negatives)
        sums = comm.allreduce(np.array([len(found), (1 / found).sum(), *[float((found <= k).sum()) for k in at]]), "control")
        if sums[0]:
            scores |= dict(zip([f"{split}_mrr", *[f"{split}_hits@{k}" for k in at]], (sums[1:] / sums[0]).tolist(), strict=True))
    model.train(training)
    return scores
