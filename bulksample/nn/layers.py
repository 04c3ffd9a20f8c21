"""The layers: GraphSAGE, GCN, pooling and attention, each written as what a source sends and what a destination makes of it.

A layer runs on a sampled block in training and on slices of the whole adjacency in inference, so it has two halves:

    sent = send(x)                     row by row, for every source
    z    = receive(block, sent, ...)   destination by destination, without the bias

The bias, the activation and dropout follow in one pass over z; see `dropout.epilogue`.

`Layer.transforms_first` decides which of "multiply by W" and "aggregate over edges" comes first; by linearity the
result is the same. Sparse inputs are always transformed first and stay sparse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from ..errors import UsageError
from ..graph.minibatch import Block
from ..layer_costs import narrows
from .aggregate import SparseRows, aggregate, multiply, own_and_mean
from .dropout import epilogue
from .gather import OwnAndMean
from .segments import attention_pattern, segment_max, segment_softmax, weighted_sum

Input = torch.Tensor | SparseRows
FirstInput = Input | OwnAndMean  # of a first layer: input rows, or what `Layer.of_parts` takes, computed where the features lie

_POOL_WIDTH = 512


class Layer(nn.Module, ABC):
    """A map from x of shape (sources, width_in) to h of shape (destinations, width_out).

    Attributes
    ----------
    linear : bool
        True if a destination receives `aggregate` of what was sent, which can then be computed before W is known.
    bias : nn.Parameter or None
        Added to every new row: shape (width_out,).
    """

    linear: ClassVar[bool] = True
    bias: nn.Parameter | None

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.width_in, self.width_out = width_in, width_out

    def transforms_first(self, x_is_sparse: bool, sources: int, destinations: int, edges: int) -> bool:
        """Return True if `send` multiplies by W, as it must in a layer that is not linear; else the cheaper way is taken, see `narrows`."""
        return not self.linear or x_is_sparse or narrows(self.width_in, self.width_out, sources, destinations, edges)

    @abstractmethod
    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        """Compute the row that each vertex sends to the vertices that aggregate it.

        Parameters
        ----------
        x : shape (N, width_in)
        degrees : shape (N,)
            (Weighted) degree of each vertex in the whole graph.
        transforms : bool
            The result of `transforms_first`.
        """

    @abstractmethod
    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        """Compute the new rows of the destinations without the bias, shape (D, width_out).

        Parameters
        ----------
        sent : shape (S, ...)
        x_own : shape (D, width_in)
            The input rows of the destinations.
        own : slice
            The destinations among the sources.
        degrees : shape (D,)
        """

    def forward(self, block: Block | None, x: FirstInput, degrees: torch.Tensor, biased: bool = True) -> torch.Tensor:
        """Apply the layer to a block; `x` and `degrees` have a row per source, and the destinations are the first sources.

        Without a block, `x` has own rows and means; see `of_parts`. Without `biased` the bias is left to who applies what follows the
        layer; nothing else refers to the memory of the result.
        """
        if isinstance(x, OwnAndMean):
            z = self.of_parts(x, degrees)
        else:
            assert block is not None
            z = self.products(block, x, degrees)
        return epilogue(z, self.bias, reuse=True) if biased else z

    def of_parts(self, parts: OwnAndMean, degrees: torch.Tensor) -> torch.Tensor:
        """Apply the layer without its bias to the rows that were sent untransformed: own ones, and means of those of the sources.

        `degrees` are those of the destinations, shape (D,). Raises `UsageError` for a layer that needs the rows of its sources.
        """
        raise UsageError(f"{type(self).__name__} needs the rows of its sources; got own rows and means: use input_layer gathered")

    def products(self, block: Block, x: Input, degrees: torch.Tensor) -> torch.Tensor:
        """Apply the layer without its bias; see `forward`."""
        own = slice(0, block.num_destinations)
        transforms = self.transforms_first(isinstance(x, SparseRows), block.num_sources, block.num_destinations, block.num_edges)
        return self.receive(block, self.send(x, degrees, transforms), x[own], own, degrees[own], transforms)


def xavier(rows: int, columns: int, generator: torch.Generator | None) -> nn.Parameter:
    """Return a new weight matrix, drawn uniformly as Glorot and Bengio do."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))


class LinearLayer(Layer):
    """A layer that is linear in its input, h = sum over i of parts_i W_i + b; the parts need no weights."""

    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        return self.mix(self.gather(block, sent, x_own, own, degrees))

    @abstractmethod
    def gather(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor) -> tuple[Input, ...]:
        """Compute the parts, D rows each, from rows that were sent untransformed; see `receive`."""

    @abstractmethod
    def mix(self, parts: Sequence[Input]) -> torch.Tensor:
        """Compute the new rows without the bias, shape (D, width_out), from the parts."""


class SageLayer(LinearLayer):
    """h_v = x_v W_self + mean over u of x_u, W_mean + b.  Hamilton, Ying, Leskovec, NeurIPS 2017."""

    def __init__(self, width_in: int, width_out: int, generator: torch.Generator | None = None) -> None:
        super().__init__(width_in, width_out)
        self.own, self.mean = xavier(width_in, width_out, generator), xavier(width_in, width_out, generator)
        self.bias = nn.Parameter(torch.zeros(width_out))

    def of_parts(self, parts: OwnAndMean, degrees: torch.Tensor) -> torch.Tensor:
        return self.mix(parts)

    def products(self, block: Block, x: Input, degrees: torch.Tensor) -> torch.Tensor:
        if self.transforms_first(isinstance(x, SparseRows), block.num_sources, block.num_destinations, block.num_edges):
            return super().products(block, x, degrees)
        return self.mix(own_and_mean(block, _dense(x)))

    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        return multiply(x, self.mean) if transforms else _dense(x)

    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        if transforms:
            return _plus(multiply(x_own, self.own), aggregate(block, sent))
        return super().receive(block, sent, x_own, own, degrees, transforms)

    def gather(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor) -> tuple[Input, ...]:
        return x_own, aggregate(block, sent)

    def mix(self, parts: Sequence[Input]) -> torch.Tensor:
        own, mean = parts
        if isinstance(own, SparseRows) or isinstance(mean, SparseRows):
            return _plus(multiply(own, self.own), multiply(mean, self.mean))
        return _plus_product(torch.mm(own, self.own), mean, self.mean)


class GcnLayer(LinearLayer):
    """h_v = (x_v / (d_v + 1) + sum over u of x_u / sqrt((d_u + 1) (d_v + 1))) W + b.  Kipf and Welling, ICLR 2017.

    Degrees are those of the whole graph. The sum is computed as d_v times a mean, so a row with s sampled neighbors is
    scaled by d_v / s; with all neighbors this is the layer of the paper. If the blocks have edge weights, the mean and
    the degrees are weighted.
    """

    def __init__(self, width_in: int, width_out: int, generator: torch.Generator | None = None) -> None:
        super().__init__(width_in, width_out)
        self.weight = xavier(width_in, width_out, generator)
        self.bias = nn.Parameter(torch.zeros(width_out))

    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        rows = multiply(x, self.weight) if transforms else _dense(x)
        return rows * input_factors(degrees)[:, None]

    def of_parts(self, parts: OwnAndMean, degrees: torch.Tensor) -> torch.Tensor:
        return self.mix([_gcn_sum(*parts, degrees)])

    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        (gathered,) = self.gather(block, sent, x_own, own, degrees)
        return gathered if transforms else self.mix([gathered])

    def gather(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor) -> tuple[torch.Tensor]:
        return (_gcn_sum(sent[own], aggregate(block, sent), degrees),)

    def mix(self, parts: Sequence[Input]) -> torch.Tensor:
        return multiply(parts[0], self.weight)


class PoolLayer(Layer):
    """h_v = x_v W_own + max over u of act(x_u W_pool + c), W_max + b; the maximum of no neighbors is 0.

    The pooling aggregator of Hamilton, Ying, Leskovec, NeurIPS 2017, 512 wide. Without `activated`, act is the identity
    and there is no c.
    """

    linear = False  # the maximum is over transformed rows

    def __init__(self, width_in: int, width_out: int, generator: torch.Generator | None = None, activated: bool = True) -> None:
        super().__init__(width_in, width_out)
        self.pool, self.own = xavier(width_in, _POOL_WIDTH, generator), xavier(width_in, width_out, generator)
        self.max, self.bias = xavier(_POOL_WIDTH, width_out, generator), nn.Parameter(torch.zeros(width_out))
        self.pool_bias = nn.Parameter(torch.zeros(_POOL_WIDTH)) if activated else None

    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        rows = multiply(x, self.pool)
        return rows if self.pool_bias is None else epilogue(rows, self.pool_bias, relu=True, reuse=True)

    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        return _plus_product(multiply(x_own, self.own), segment_max(block, sent), self.max)


class VertexLayer(LinearLayer):
    """h_v = x_v W: a layer that uses no neighbors."""

    def __init__(self, width_in: int, width_out: int, generator: torch.Generator | None = None) -> None:
        super().__init__(width_in, width_out)
        self.weight, self.bias = xavier(width_in, width_out, generator), None

    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        return degrees.new_empty(x.shape[0], 0)

    def gather(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor) -> tuple[Input, ...]:
        return (x_own,)

    def mix(self, parts: Sequence[Input]) -> torch.Tensor:
        return multiply(parts[0], self.weight)


class GatLayer(Layer):
    """h_v = sum over v and its neighbors u of alpha_vu z_u,  z = x W,  alpha_vu = softmax_u LeakyReLU(a . z_u + c . z_v).

    Velickovic et al., ICLR 2018; the heads are concatenated, or averaged. An edge that was sampled in place of m neighbors
    counts m times in the softmax. So the sample estimates both of its sums, and with all neighbors this is the layer of the paper.
    """

    linear = False  # the scores are made of transformed rows

    def __init__(self, width_in: int, width_out: int, heads: int, generator: torch.Generator | None = None, averaged: bool = False) -> None:
        super().__init__(width_in, width_out)
        self.heads, self.width, self.averaged = heads, width_out if averaged else width_out // heads, averaged
        self.weight = xavier(width_in, heads * self.width, generator)
        self.source, self.destination = (xavier(heads, self.width, generator) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(width_out))

    def send(self, x: Input, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        z = multiply(x, self.weight)
        by_head = z.view(-1, self.heads, self.width)
        return torch.cat([z, (by_head * self.source).sum(-1), (by_head * self.destination).sum(-1)], dim=1)

    def receive(self, block: Block, sent: torch.Tensor, x_own: Input, own: slice, degrees: torch.Tensor, transforms: bool) -> torch.Tensor:
        z, source, destination = torch.split(sent, [self.heads * self.width, self.heads, self.heads], dim=1)
        pattern, log_multiplicity = attention_pattern(block, own, degrees)
        scores = F.leaky_relu(source[pattern.column_index()] + destination[own][pattern.row_index()], 0.2)
        alpha = segment_softmax(pattern, scores + log_multiplicity.to(scores.dtype)[:, None])
        gathered = weighted_sum(pattern, alpha, z.reshape(-1, self.heads, self.width))
        return gathered.mean(1) if self.averaged else gathered.reshape(-1, self.width_out)


def input_factors(degrees: torch.Tensor) -> torch.Tensor:
    """Return the factors of the rows that `GcnLayer` sends: 1 / sqrt(d + 1), float32, shape (N,)."""
    return 1 / torch.sqrt(degrees + 1)


def _gcn_sum(own: torch.Tensor, mean: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
    return (degrees[:, None] * mean + own) / torch.sqrt(degrees + 1)[:, None]


def _plus(z: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Add to a new product, in its memory where the types are equal."""
    return z.add_(other) if z.dtype == other.dtype else z + other


def _plus_product(z: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Add X W to a new product, in its memory and its precision."""
    return z.addmm_(x.to(z.dtype), weight.to(z.dtype))


def _dense(x: Input) -> torch.Tensor:
    assert isinstance(x, torch.Tensor)  # transforms_first is true for sparse rows
    return x
