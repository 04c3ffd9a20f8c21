"""Run a model on the whole graph at once. Each rank holds one block of rows and computes their outputs.

    for l = 1 .. L:   sent = send_l(h)          this rank's rows
                      halo rows of sent arrive  ->  rows with remote neighbors
                      h = receive_l(A, sent)    rows without remote neighbors meanwhile

In the backward pass the gradients of halo rows return to their owners. The layers are those of mini-batches. The input of the
first layer never changes, so its halo is fetched once and, if the aggregation is linear, aggregated once.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, cast

import torch

from ..errors import UsageError
from ..graph.minibatch import Block
from ..nn.aggregate import SparseRows
from ..nn.layers import Input, Layer, LinearLayer
from ..nn.model import Gnn, Model
from ..nn.own_model import OwnModel, as_dense
from ..nn.tensor_block import HaloBlock, TensorBlock

if TYPE_CHECKING:
    from .halo_rows import HaloRows


class PassRows(Protocol):
    """The rows that a full-graph pass computes: `HaloRows`, which have a halo, or `LocalRows` of a part that exchanges nothing."""

    has_halo: bool

    n: int
    edges: int
    block: Block
    degrees: torch.Tensor
    x: Input

    @property
    def rows(self) -> int: ...

    def exchanged(self, layer: Layer, h: Input, transforms: bool, key: str) -> torch.Tensor: ...


class FrozenInput:
    """The input of a layer that does not change while the layer is trained: its halo is fetched once.

    `x`, of shape (m + h, f), has this rank's m rows, then h halo rows, which other ranks hold.
    """

    def __init__(self, rows: PassRows, x: Input) -> None:
        self._rows, self.x = rows, x
        self._gathered: tuple[Input, ...] | None = None

    def layer(self, layer: Layer, model: Model, clean: bool = False) -> torch.Tensor:
        """Apply the layer, and return its output for this rank's rows: shape (m, width of the output). Local.

        A linear layer aggregates a dense input once and touches no edge again, unless the input has dropout. With `clean`
        dropout acts on the aggregate instead of the input.
        """
        rows, own = self._rows, slice(0, self._rows.rows)
        dropped = model.training and model.input_dropout > 0
        if isinstance(layer, LinearLayer) and isinstance(self.x, torch.Tensor) and (clean or not dropped):
            return layer.mix([model.drop_input(part) for part in self._aggregated(layer)])
        x = model.drop_input(self.x)
        transforms = layer.transforms_first(isinstance(x, SparseRows), rows.n, rows.n, rows.edges)
        return layer.receive(rows.block, layer.send(x, rows.degrees, transforms), x[own], own, rows.degrees[own], transforms)

    def _aggregated(self, layer: LinearLayer) -> tuple[Input, ...]:
        if self._gathered is None:
            rows, own = self._rows, slice(0, self._rows.rows)
            with torch.no_grad():
                sent = layer.send(self.x, rows.degrees, False)
                self._gathered = layer.gather(rows.block, sent, self.x[own], own, rows.degrees[own])
        return self._gathered


class FullGraph:
    """A full-graph forward pass of a model, distributed over the ranks by rows.

    With `strong`, the input of the first layer is fetched once, and each layer chooses whether to transform or to aggregate first. If
    false, every layer aggregates first and exchanges its input every time, as published systems do and count.
    """

    def __init__(self, rows: PassRows, strong: bool = True) -> None:
        self.rows, self.strong = rows, strong
        self.input = FrozenInput(rows, rows.x)

    def __call__(self, model: Model) -> torch.Tensor:
        """Run the model on the whole graph, and return the logits of this rank's m rows: shape (m, classes). Collective.

        Raises `UsageError` if a module of the user's does not ask each block after the first for its sources, once.
        """
        if isinstance(model, OwnModel):
            return self._own(model)
        assert isinstance(model, Gnn)
        rows, h = self.rows, cast(Input, None)
        for i, module in enumerate(model.layers):
            layer = cast(Layer, module)
            if i == 0 and self.strong:
                out = self.input.layer(layer, model)
            else:
                x = model.drop_input(rows.x[0 : rows.rows]) if i == 0 else h
                transforms = self.strong and layer.transforms_first(False, rows.n, rows.n, rows.edges)
                transforms = transforms or isinstance(x, SparseRows) or not layer.linear
                out = rows.exchanged(layer, x, transforms, str(i))
            h = model.between(i, out)
        assert isinstance(h, torch.Tensor)
        return h

    def _own(self, model: OwnModel) -> torch.Tensor:
        """Run a module of the user's, whose blocks exchange the halo rows of their layers."""
        rows, edges = self.rows, self._edges
        if not rows.has_halo:
            return model.over(self._dense, [edges] * model.hops)
        halos = [partial(cast("HaloRows", rows).with_halo, key=str(i)) for i in range(model.hops)]
        blocks: list[TensorBlock] = [HaloBlock(edges, partial(model.exchange, halo)) for halo in halos]
        if self.strong:  # the input of the first layer has its halo already
            blocks[0] = edges
        logits = model.over(self._dense if self.strong else self._dense[: rows.rows], blocks)
        asked = [block.exchanges for block in blocks if isinstance(block, HaloBlock)]
        if asked != [1] * len(asked):
            found = f"{asked} times the blocks of layers {model.hops - len(asked) + 1} to {model.hops}"
            raise UsageError(
                f"model {model.name}: this method exchanges rows between layers; the module asked {found} for their sources: "
                "call h = block.sources(h) once at the start of each layer, or use method sync"
            )
        return logits

    @cached_property
    def _dense(self) -> torch.Tensor:
        return as_dense(self.rows.x)

    @cached_property
    def _edges(self) -> TensorBlock:
        return TensorBlock(self.rows.block, self._dense.device)
