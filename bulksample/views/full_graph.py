"""Run a model on the whole graph at once. Each rank holds one block of rows and computes their outputs.

    for l = 1 .. L:   sent = send_l(h)          this rank's rows
                      halo rows of sent arrive  ->  rows with remote neighbors
                      h = receive_l(A, sent)    rows without remote neighbors meanwhile

In the backward pass the gradients of halo rows return to their owners. The layers are those of mini-batches. The input of the
first layer never changes, so its halo is fetched once and, if the aggregation is linear, aggregated once.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch

from ..distributed.matrix.halo import Halo, HaloExchange, MessageFormat
from ..errors import UsageError
from ..graph import NODE
from ..graph.minibatch import Block
from ..nn.aggregate import SparseRows
from ..nn.dropout import PassKey, PassNames, RowNames
from ..nn.layers import Input, Layer, LinearLayer
from ..nn.model import Gnn, Model
from ..nn.own_model import OwnModel, as_dense
from ..nn.tensor_block import HaloBlock, TensorBlock
from ..sparse import CSR
from .inference_share import InferenceShare
from .view import View, mean_weights


class HaloRows:
    """The rows of this rank's block, on a grid without replication, with their edges, labels and splits.

    Central rows, which have no neighbor on another rank, come first; marginal rows follow. `messages` encode hidden rows on their way, by
    default as float32. With `overlap`, central rows are aggregated while halo rows travel; the results have the same bits. Without `fetch`,
    the features of halo rows stay with their owners.
    """

    vertices: np.ndarray  # int32, shape (m,)
    structure: Block  # m x (m + h), on the host
    block: Block  # the same edges on the compute device
    halo: Halo  # numbers this rank's rows in the order of `vertices`
    degrees: torch.Tensor  # shape (m + h,): of this rank's rows, then of halo rows
    x: Input  # shape (m + h, f): their features (kind "features"); m rows without `fetch`

    def __init__(self, view: View, messages: MessageFormat | None = None, overlap: bool = True, fetch: bool = True) -> None:
        grid, layout, block, weights = view.own_rows()
        if grid.replication != 1:
            raise UsageError(f"full-graph training keeps one block row on each rank; got replication {grid.replication}: use 1")
        self.messages, self.overlap = messages or MessageFormat(), overlap
        comm = grid.comm
        remote = layout.blocks_of(block.adjacency.indices) != comm.rank
        has_remote = np.bincount(block.adjacency.row_of_entry(), remote, minlength=len(block.vertices)) > 0
        order = np.argsort(has_remote, kind="stable")
        self.vertices, self.central = block.vertices[order], int(np.count_nonzero(~has_remote))
        matrix = block.adjacency.take(order)
        self.halo = Halo(comm, layout, matrix)
        number = np.empty(len(order), np.int32)  # of the rows of the block, in the order of `vertices`
        number[order] = np.arange(len(order), dtype=np.int32)
        is_local = self.halo.sources < len(order)
        self.halo.sources[is_local] = number[self.halo.sources[is_local]]
        self.halo.requested = [number[requested] for requested in self.halo.requested]
        self.labels = np.full(len(order), -1, np.int64) if block.labels is None else block.labels[order]
        self.masks = {split: mask[order] for split, mask in block.masks.items()}
        self.edges, self.n = cast(InferenceShare, view.share).edges, block.n
        if weights is not None:
            weights = block.adjacency.with_values(weights).take(order).entries()
        self.structure = Block(matrix.indptr, self.halo.sources, weights, len(order) + len(self.halo.vertices))
        self.block, self._on_device, self._parts = view.on_device(self.structure), view.on_device, dict[tuple[int, int, int], Block]()
        self._everyone = everyone = np.concatenate([self.vertices, self.halo.vertices]).astype(np.int32, copy=False)
        self._kernels = view.kernels
        self.degrees = view.degrees(everyone)
        self.x = view.features.fetch(everyone if fetch else self.vertices)

    @property
    def rows(self) -> int:
        """m, the number of this rank's rows."""
        return len(self.vertices)

    def names(self, key: PassKey) -> PassNames:
        """Return the names of the m + h rows in the masks of dropout of a pass."""
        return PassNames(key, {NODE: RowNames(self._everyone)}, self._kernels)

    def part(self, first: int, last: int, sources: int) -> Block:
        """Return a range of this rank's rows as a block on the compute device."""
        if (first, last, sources) not in self._parts:
            indptr, weights = self.structure.indptr, self.structure.weights
            entries = slice(int(indptr[first]), int(indptr[last]))
            part_weights = None if weights is None else weights[entries]
            made = Block(indptr[first : last + 1] - indptr[first], self.structure.indices[entries], part_weights, sources)
            self._parts[first, last, sources] = self._on_device(made)
        return self._parts[first, last, sources]

    def exchanged(self, layer: Layer, h: Input, transforms: bool, key: str) -> torch.Tensor:
        """Apply one layer, exchanging halo rows: shape (m, width of the output); collective, forward and backward.

        `transforms` is True if the layer transforms before it aggregates; `key` is the name of the layer, for `messages`.
        """
        m, c = self.rows, self.central
        sent = layer.send(h, self.degrees[:m], transforms)
        exchange = LayerHaloExchange(self, key)
        token: torch.Tensor = _SendHalo.apply(sent, exchange)  # type: ignore[no-untyped-call]
        if not self.overlap:
            exchange.receive()
        central = layer.receive(self.part(0, c, m), sent, h[0:c], slice(0, c), self.degrees[:c], transforms)
        everything = torch.cat([sent, _ReceiveHalo.apply(token, exchange)])  # type: ignore[no-untyped-call]
        marginal = self.part(c, m, len(everything))
        return torch.cat([central, layer.receive(marginal, everything, h[c:m], slice(c, m), self.degrees[c:m], transforms)])

    def with_halo(self, h: torch.Tensor, key: str) -> torch.Tensor:
        """Return this rank's rows, then the halo rows: shape (m + h, f) from (m, f); collective, forward and backward.

        Raises `ValueError` if `h` has not a row for each row of this rank.
        """
        if len(h) != self.rows:
            raise ValueError(f"sources needs the {self.rows} rows of this rank; got {len(h)}")
        exchange, sent = LayerHaloExchange(self, key), h.float()
        token: torch.Tensor = _SendHalo.apply(sent, exchange)  # type: ignore[no-untyped-call]
        return torch.cat([sent, _ReceiveHalo.apply(token, exchange)])  # type: ignore[no-untyped-call]


class LocalRows:
    """All rows of the view of a part, with the edges of a matrix among them, for a pass that exchanges nothing."""

    def __init__(self, view: View, matrix: CSR) -> None:
        whole, everything = view.all_rows().own_rows(), np.arange(matrix.shape[0])
        weights = mean_weights(matrix.indptr, matrix.values, whole.block.weight_unit, whole.weights is not None)[1]
        self.n = self.rows = len(everything)  # m + h
        self.edges = matrix.nnz
        self.block = view.on_device(Block(matrix.indptr, matrix.indices, weights, self.n))
        self.degrees, self.x = view.degrees(everything), view.features.fetch(everything)
        self.names = view.names_of_part

    def exchanged(self, layer: Layer, h: Input, transforms: bool, key: str) -> torch.Tensor:
        """Apply one layer to all rows; nothing is exchanged."""
        everything = slice(0, self.n)
        return layer.receive(self.block, layer.send(h, self.degrees, transforms), h[everything], everything, self.degrees, transforms)


PassRows = HaloRows | LocalRows  # the rows that a full-graph pass computes


class LayerHaloExchange:
    """The exchange of halo rows in one layer: rows on the way forward, their gradients on the way back."""

    def __init__(self, rows: HaloRows, key: str) -> None:
        self.halo, self.messages, self.key = rows.halo, rows.messages, key
        self.flight: HaloExchange | None = None
        self.received: np.ndarray | None = None

    def receive(self) -> np.ndarray:
        """Wait for the halo rows; may be called again."""
        if self.received is None:
            assert self.flight is not None
            self.received, self.flight = self.flight.wait(), None
        return self.received


class _SendHalo(torch.autograd.Function):
    """Forward: send this rank's rows. Backward, which runs after that of all central rows: receive their gradients, summed over ranks."""

    @staticmethod
    def forward(ctx: Any, sent: torch.Tensor, exchange: LayerHaloExchange) -> torch.Tensor:
        ctx.exchange = exchange
        exchange.flight = exchange.halo.start(sent.detach().cpu().numpy(), exchange.messages, f"{exchange.key} forward")
        return sent.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.from_numpy(ctx.exchange.flight.wait_sum()).to(gradients[0].device), None


class _ReceiveHalo(torch.autograd.Function):
    """Forward: receive halo rows. Backward, which runs before that of central rows: return their gradients to their owners."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, exchange: LayerHaloExchange) -> torch.Tensor:
        ctx.exchange = exchange
        return torch.from_numpy(exchange.receive()).to(token.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        exchange, halo = ctx.exchange, gradients[0].contiguous().cpu().numpy()
        exchange.flight, exchange.received = exchange.halo.start_back(halo, exchange.messages, f"{exchange.key} backward"), None
        return gradients[0].new_zeros(()), None


class FrozenInput:
    """The input of a layer, shape (m + h, f), that does not change while the layer is trained: its halo is fetched once."""

    def __init__(self, rows: PassRows, x: Input) -> None:
        self._rows, self.x = rows, x
        self._gathered: tuple[Input, ...] | None = None

    def layer(self, layer: Layer, model: Model, names: PassNames | None, clean: bool = False) -> torch.Tensor:
        """Apply the layer without its bias, and return its output for this rank's rows: shape (m, width of the output). Local.

        A linear layer aggregates a dense input once and touches no edge again, unless the input has dropout. With `clean`
        dropout acts on the aggregate instead of the input.
        """
        rows, here = self._rows, slice(0, self._rows.rows)
        dropped = model.training and model.input_dropout > 0
        if isinstance(layer, LinearLayer) and isinstance(self.x, torch.Tensor) and (clean or not dropped):
            if self._gathered is None:
                with torch.no_grad():
                    sent = layer.send(self.x, rows.degrees, False)
                    self._gathered = layer.gather(rows.block, sent, self.x[here], here, rows.degrees[here])
            return layer.mix([model.drop_input(part, names, place) for place, part in enumerate(self._gathered)])
        x = model.drop_input(self.x, names)
        transforms = layer.transforms_first(isinstance(x, SparseRows), rows.n, rows.n, rows.edges)
        return layer.receive(rows.block, layer.send(x, rows.degrees, transforms), x[here], here, rows.degrees[here], transforms)


class FullGraph:
    """A full-graph forward pass of a model, distributed over the ranks by rows.

    With `strong`, the input of the first layer is fetched once, and each layer chooses whether to transform or to aggregate first. If
    false, every layer aggregates first and exchanges its input every time, as published systems do and count.
    """

    def __init__(self, rows: PassRows, strong: bool = True) -> None:
        self.rows, self.strong = rows, strong
        self.input = FrozenInput(rows, rows.x)

    def __call__(self, model: Model, key: PassKey | None = None) -> torch.Tensor:
        """Run the model on the whole graph, and return the logits of this rank's m rows: shape (m, classes). Collective.

        Dropout draws its masks by `key`, and only it needs one.
        Raises `UsageError` if a module of the user's does not ask each block after the first for its sources, once.
        """
        rows, h = self.rows, cast(Input, None)
        names = None if key is None else rows.names(key)
        if isinstance(model, OwnModel):
            return self._own(model, names)
        assert isinstance(model, Gnn)
        for i, module in enumerate(model.layers):
            layer = cast(Layer, module)
            if i == 0 and self.strong:
                out = self.input.layer(layer, model, names)
            else:
                x = model.drop_input(rows.x[0 : rows.rows], names) if i == 0 else h
                transforms = self.strong and layer.transforms_first(False, rows.n, rows.n, rows.edges)
                transforms = transforms or isinstance(x, SparseRows) or not layer.linear
                out = rows.exchanged(layer, x, transforms, str(i))
            h = model.between(i, out, names, reuse=True)
        assert isinstance(h, torch.Tensor)
        return h

    def _own(self, model: OwnModel, names: PassNames | None) -> torch.Tensor:
        """Run a module of the user's, whose blocks exchange the halo rows of their layers."""
        rows, edges = self.rows, self._edges
        if not isinstance(rows, HaloRows):
            return model.over(self._dense, [edges.in_pass(names, i + 1) for i in range(model.hops)])
        halos = [partial(rows.with_halo, key=str(i)) for i in range(model.hops)]
        blocks: list[TensorBlock] = [HaloBlock(edges, partial(model.exchange, halo), names, i + 1) for i, halo in enumerate(halos)]
        if self.strong:  # the input of the first layer has its halo already
            blocks[0] = edges.in_pass(names, 1)
        logits = model.over(self._dense if self.strong else self._dense[: rows.rows], blocks)
        calls = [block.exchanges for block in blocks if isinstance(block, HaloBlock)]
        if calls != [1] * len(calls):
            found = f"{calls} times the blocks of layers {model.hops - len(calls) + 1} to {model.hops}"
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
