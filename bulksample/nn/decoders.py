"""Models of pairs of vertices: an encoder of vertices and a decoder of pairs, for links and for edges with labels.

    z = Gnn(x),   score(u, v) = z_u . z_v  (dot)   or   w . act(W (z_u * z_v) + b) + c  (mlp)         links
                  logits(u, v) = V act(W [z_u, z_v, e_uv] + b) + c,   e_uv the features of the pair   edges

The inner products of pairs are entries of Z Z^T. Let G be the sparse matrix with the gradient of each score at entry (u, v). Then
dZ = G Z + G^T Z: two sparse products, which never store a row of Z per pair.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from ..graph.minibatch import Block
from .aggregate import SparseRows
from .dropout import PassNames
from .layers import Input
from .model import Gnn, Model
from .relational import RelationalGnn

DECODERS = ("dot", "mlp")
_CHUNK_NUMBERS = 2**18  # of a chunk of gathered rows: they stay in the processor's cache


class PairModel(Model):
    """A network that embeds vertices (the encoder), and a perceptron on pairs of their embeddings, of the given widths (the decoder)."""

    outputs: int

    def __init__(self, encoder: Gnn | RelationalGnn, sizes: Sequence[int]) -> None:
        super().__init__()
        self.encoder, self.generator, self.input_dropout = encoder, encoder.generator, encoder.input_dropout
        self.decoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.slope = nn.Parameter(torch.full((1,), 0.25)) if sizes else None  # of PReLU
        for linear, width in zip(self.decoder, sizes, strict=False):
            for parameter in linear.parameters():
                nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=self.generator)

    def describe(self) -> dict[str, int]:
        """Return the encoder's lines of the report."""
        return self.encoder.describe()

    @property
    def size(self) -> int:
        here = sum(parameter.numel() for parameter in self.encoder.parameters())
        return super().size + self.encoder.size - here

    @property
    def shards(self) -> dict[str, nn.Parameter]:
        """Those of the encoder."""
        return {f"encoder.{name}": shard for name, shard in self.encoder.shards.items()}

    def look_up(self, x: Any) -> Any:
        return self.encoder.look_up(x)

    def add_shard_gradients(self, codec: str) -> None:
        self.encoder.add_shard_gradients(codec)

    def forward(self, blocks: Sequence[Block], x: Input, degrees: torch.Tensor, names: PassNames | None = None) -> torch.Tensor:
        """Return the embeddings of the destinations of the last block."""
        embeddings: torch.Tensor = self.encoder(blocks, x, degrees, names)
        return embeddings

    @abstractmethod
    def logits(self, z: torch.Tensor, rows: torch.Tensor, features: torch.Tensor | None) -> torch.Tensor:
        """Return the outputs of b pairs: shape (b, outputs).

        Parameters
        ----------
        z : shape (n, width)
        rows : int64, shape (2 b,)
            The rows of z of b sources, then of b destinations.
        features : shape (b, f), or None if pairs have none
            Not read by a model of links.
        """

    def decoded(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return the output of the perceptron: shape (..., sizes[0]) to (..., sizes[-1])."""
        first, last = self.decoder
        assert self.slope is not None
        out: torch.Tensor = last(nn.functional.prelu(first(pairs), self.slope))
        return out


class LinkModel(PairModel):
    """A network that embeds vertices, and a decoder that scores pairs.

    Parameters
    ----------
    encoder : Gnn or RelationalGnn
        Its output is as wide as its hidden layers.
    decoder : one of DECODERS
    width : int
        Width of the encoder's output.
    """

    outputs = 1

    def __init__(self, encoder: Gnn | RelationalGnn, decoder: str, width: int) -> None:
        super().__init__(encoder, (width, width, 1) if decoder == "mlp" else ())

    def scores(self, z: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Score b edges and one negative for each: shape (b,) twice.

        Parameters
        ----------
        z : shape (n, width)
        rows : int64, shape (3 b,)
            The rows of z of b sources, then of b destinations, then of b negative destinations.
        """
        if self.slope is None and z.device.type == "cpu":
            source, destination, negative = rows.chunk(3)
            return inner_products(z, source, destination), inner_products(z, source, negative)
        source, destination, negative = z[rows].chunk(3)
        return self.score(source, destination), self.score(source, negative)

    def logits(self, z: torch.Tensor, rows: torch.Tensor, features: torch.Tensor | None) -> torch.Tensor:
        source, destination = z[rows].chunk(2)
        return self.score(source, destination)[:, None]

    def score(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Score pairs of embeddings: shape (..., width) to (...)."""
        product = one * other
        return product.sum(-1) if self.slope is None else self.decoded(product).squeeze(-1)


class EdgeModel(PairModel):
    """A network that embeds vertices, and a perceptron on both ends of an edge and its features: logits of classes, or numbers.

    The embedding of the source stands first, so the two directions of a pair may have different logits.

    Parameters
    ----------
    encoder : Gnn or RelationalGnn
        Its output is as wide as its hidden layers.
    width : int
        Width of the encoder's output, and of the hidden layer of the perceptron.
    features : int
        Number of features of a pair.
    outputs : int
    """

    def __init__(self, encoder: Gnn | RelationalGnn, width: int, features: int, outputs: int) -> None:
        super().__init__(encoder, (2 * width + features, width, outputs))
        self.outputs = outputs

    def logits(self, z: torch.Tensor, rows: torch.Tensor, features: torch.Tensor | None) -> torch.Tensor:
        source, destination = z[rows].chunk(2)
        return self.decoded(torch.cat([source, destination] if features is None else [source, destination, features], dim=1))


def inner_products(z: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute <z_u, z_v> of pairs (u, v): shape (b,), differentiable in z; on the CPU."""
    return _InnerProducts.apply(z, one, other)  # type: ignore[no-any-return, no-untyped-call]


class _InnerProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(z, one, other)
        step = max(1, _CHUNK_NUMBERS // max(1, z.shape[1]))
        parts = zip(torch.split(one, step), torch.split(other, step), strict=True)
        return torch.cat([(z[u] * z[v]).sum(-1) for u, v in parts]) if len(one) else z.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        z, one, other = ctx.saved_tensors
        value = grad[0].contiguous()
        return _weighted_adjacency_product(z, one, other, value) + _weighted_adjacency_product(z, other, one, value), None, None


def _weighted_adjacency_product(z: torch.Tensor, row: torch.Tensor, column: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Compute G Z, where G has entries (row, column, value); each row is summed in the order of the pairs."""
    pairs = SparseRows(np.arange(len(row) + 1), row.numpy().astype(np.int32), value.numpy(), len(z)).transposed
    return SparseRows(pairs.indptr, column.numpy().astype(np.int32)[pairs.indices], pairs.weights, len(z)).times(z)
