"""The bytes that a training step must move beside its matrix products: the floor of its time, once divided by the rate of a copy.

Every array that lies in memory between two passes is written once and read once by each pass that needs it. Numbers are float32, columns
int32, and theta are all weights on this rank. A sum over edges (a sparse product) takes S source rows of width w into D destinations by E
entries. An elementwise pass is what follows the products of a layer: bias, activation and dropout, in one go::

    inputs        4 w (S + D)       a sum whose rows need no gradient, such as features: S rows are read, D sums are written
    aggregations  8 w (S + D)       any other sum: the same, and in the backward pass D gradients are read and S written
    columns       4 E or 8 E        the entries of a sum, forward, and backward where there is a gradient; twice that with weights
    epilogues     16 D w            an elementwise pass: forward reads and writes, backward reads and writes
    optimizer     28 |theta|        Adam reads a weight, its gradient and two moments, and writes the weight and the moments

A layer that aggregates first sums rows of its input width, and one that multiplies first those of its output width, with a gradient. Left
out are sums that the fetch makes (`input_layer`), rows that are read more than once, norms, input dropout, sampling, fetching, the loss and
a decoder of links. So it is a lower bound for arrays that no cache holds; what a cache holds moves faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ..graph.minibatch import Block, LayerBlocks, MiniBatch
from ..nn.aggregate import SparseRows
from ..nn.decoders import LinkModel
from ..nn.gather import OwnAndMean
from ..nn.layers import GatLayer, GcnLayer, Input, PoolLayer, SageLayer
from ..nn.model import Gnn, Model
from ..nn.relational import RelationalGat, RelationalGnn, RelationalLayer
from ..nn.type_input import TypeInput


class RowSum(NamedTuple):
    """A sum of rows over edges; sizes may be means over mini-batches."""

    sources: float
    destinations: float
    entries: float
    width: int
    gradient: bool
    weighted: bool = False  # each entry has a float32 beside its column


class RowPass(NamedTuple):
    """An elementwise pass over rows, forward and backward."""

    rows: float
    width: int


class Moves(NamedTuple):
    """The sums and the elementwise passes of a forward and a backward pass: all that they move beside their matrix products."""

    sums: list[RowSum]
    passes: list[RowPass]


def bytes_of(sums: Iterable[RowSum], passes: Iterable[RowPass], parameters: int) -> dict[str, float]:
    """Return the bytes of a step by kind, by the formula at the top of this module."""
    moved = dict.fromkeys(("inputs", "epilogues", "aggregations", "columns", "optimizer"), 0.0)
    for one in sums:
        ways = 1 + one.gradient
        moved["aggregations" if one.gradient else "inputs"] += ways * 4 * one.width * (one.sources + one.destinations)
        moved["columns"] += ways * (8 if one.weighted else 4) * one.entries
    moved["epilogues"] = sum(16 * one.rows * one.width for one in passes)
    moved["optimizer"] = 28 * parameters
    return moved


def moves_of(model: Model, minibatch: MiniBatch, x: Any) -> Moves | None:
    """Return what the passes over a mini-batch on the host move; None for a model that is not of our layers.

    `x` has its input rows, of several types a dict.
    """
    encoder = model.encoder if isinstance(model, LinkModel) else model
    if isinstance(encoder, Gnn) and isinstance(x, OwnAndMean):  # the first layer sums nothing
        rest = _of_layers(list(encoder.layers)[1:], minibatch.inner.blocks, None)
        first = [RowPass(len(x.own), encoder.widths[1])] if len(encoder.layers) > 1 else []
        return rest and Moves(rest.sums, first + rest.passes)
    if isinstance(encoder, Gnn):
        return _of_layers(list(encoder.layers), minibatch.blocks, x)
    if isinstance(encoder, RelationalGnn):
        return _of_relations(encoder, minibatch.blocks, x, {kind: len(rows.vertices) for kind, rows in minibatch.rows.items()})
    return None


def _of_layers(layers: Sequence[nn.Module], blocks: Sequence[Block], x: Input | None) -> Moves | None:
    """Return what layers move; without x, the rows that enter the first of them have a gradient."""
    moves = Moves([], [])
    for i, (layer, block) in enumerate(zip(layers, blocks, strict=True)):
        sparse, rows = isinstance(x, SparseRows) and i == 0, block.num_destinations
        if isinstance(layer, PoolLayer):
            width, transforms = layer.pool.shape[1], True
            moves.passes.append(RowPass(block.num_sources, width))  # the activation of what each source sends
        elif isinstance(layer, GatLayer):
            width, transforms = layer.weight.shape[1], True
        elif isinstance(layer, SageLayer | GcnLayer):
            transforms = layer.transforms_first(sparse, block.num_sources, rows, block.num_edges)
            width = layer.width_out if transforms else layer.width_in
        else:
            return None
        if isinstance(x, SparseRows) and i == 0:
            moves.sums.append(_sparse_product(x[: block.num_sources], width))
            if isinstance(layer, SageLayer | PoolLayer):
                moves.sums.append(_sparse_product(x[:rows], layer.width_out))
        moves.sums.append(_over_edges(block, width, gradient=transforms or i > 0 or x is None))
        if i < len(layers) - 1:
            moves.passes.append(RowPass(rows, layer.width_out))
    return moves


def _of_relations(model: RelationalGnn, blocks: Sequence[LayerBlocks], x: dict[str, Any], vertices: dict[str, int]) -> Moves:
    moves = Moves([], [])
    for kind, own in zip(model.types[0], model.inputs, strict=True):
        assert isinstance(own, TypeInput)
        width = int(own.weight.shape[1])
        if own.bias is None:
            moves.passes.append(RowPass(vertices[kind], width))  # learned rows are looked up, and their gradients put back
        elif isinstance(x[kind], SparseRows):
            moves.sums.append(_sparse_product(x[kind], width))
    for i, (layer, block) in enumerate(zip(model.layers, blocks, strict=True)):
        assert isinstance(layer, RelationalLayer)
        moves.sums.extend(_over_relations(layer, block))
        if i < len(model.layers) - 1:
            moves.passes.extend(RowPass(block.destinations[kind], layer.width_out) for kind in layer.destinations)
    return moves


def _over_relations(layer: RelationalLayer, block: LayerBlocks) -> Iterator[RowSum]:
    transforms = isinstance(layer, RelationalGat) or layer.width_out < layer.width_in
    for key in layer.relations:
        if (edges := block.relations[key]).num_edges:
            yield _over_edges(edges, layer.width_out if transforms else layer.width_in, gradient=True)


def _over_edges(block: Block, width: int, gradient: bool) -> RowSum:
    """Return the sum over the edges of a block, which reads the sources that have one."""
    read = int(np.count_nonzero(np.bincount(block.indices, minlength=1)))
    return RowSum(read, block.num_destinations, block.num_edges, width, gradient, block.weights is not None)


def _sparse_product(x: SparseRows, width: int) -> RowSum:
    """Return the product of sparse features and a weight matrix: a sum of its rows over the entries of each vertex."""
    rows = x.packed()
    return RowSum(x.columns, x.shape[0], len(rows.indices), width, gradient=True, weighted=rows.weights is not None)
