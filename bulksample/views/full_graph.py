"""A model on the whole graph at once, its rows in blocks over the ranks, one block a rank.

    for l = 1 .. L:   sent = send_l(h)          own rows
                      halo rows of sent travel  ->  rows with remote neighbours
                      h = receive_l(A, sent)    rows without remote neighbours meanwhile

and backwards the gradients of halo rows return to their owners. The layers are those of minibatches. The input of the
first layer never changes, so its halo is fetched once and, where the aggregation is linear, aggregated once.

Central rows, which have no remote neighbour, come first among the own rows, then marginal ones.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import torch

from ..distributed.matrix.halo import Halo, HaloExchange, MessageFormat, PlainFormat
from ..errors import UsageError
from ..minibatch import Block
from ..nn.aggregate import SparseRows
from ..nn.layers import Input, Layer, LinearLayer
from ..nn.model import Gnn, Model
from .features import FeatureSource
from .partitioned import BlockView


class PassRows(Protocol):
    """What a pass asks of the rows it goes over: `OwnRows`, or all rows of a part that nothing travels to."""

    n: int
    edges: int
    block: Block
    degrees: torch.Tensor
    x: Input

    @property
    def rows(self) -> int: ...

    def exchanged(self, layer: Layer, h: Input, first: bool, key: str) -> torch.Tensor: ...


class OwnRows:
    """The rows of this rank's block, central ones first, with their edges, labels and splits.

    Parameters
    ----------
    view : BlockView
        On a grid without replication.
    messages : MessageFormat, optional
        How rows of hidden layers travel; as they are unless given.
    overlap : bool
        Aggregate central rows while halo rows travel. The results are the same to the bit.
    fetch : bool
        Fetch the features of halo rows; otherwise they stay where they are.

    Attributes
    ----------
    vertices : int32, shape (m,)
    structure, block : Block, m x (m + h)
        On the host, and where rows are computed.
    halo : Halo
        Its own rows are counted as here.
    labels : int64, shape (m,)
    masks : dict of bool arrays of shape (m,)
    degrees : float32, shape (m + h,)
        Of own rows, then of halo rows.
    x : dense or sparse rows, shape (m + h, f)
        The features of both, fetched here (kind "features"); without `fetch`, shape (m, f), those of own rows.

    Raises
    ------
    UsageError
        If the graph is replicated c > 1 times.
    """

    def __init__(self, view: BlockView, messages: MessageFormat | None = None, overlap: bool = True, fetch: bool = True) -> None:
        if view.grid.replication != 1:
            raise UsageError(f"full-graph training keeps one block row on each rank; got replication {view.grid.replication}: 1 would fit")
        self.messages, self.overlap = messages or PlainFormat(), overlap
        block, comm = view.block, view.grid.comm
        remote = view.layout.blocks_of(block.adjacency.indices) != comm.rank
        has_remote = np.bincount(block.adjacency.row_of_entry(), remote, minlength=len(block.vertices)) > 0
        order = np.argsort(has_remote, kind="stable")
        self.vertices, self.central = block.vertices[order], int(np.count_nonzero(~has_remote))
        matrix = block.adjacency.take(order)
        self.halo = Halo(comm, view.layout, matrix)
        self._number_own_rows(order)
        self.labels = np.full(len(order), -1, np.int64) if block.labels is None else block.labels[order]
        self.masks = {split: mask[order] for split, mask in block.masks.items()}
        self.edges, self.n = view.share.edges, view.share.n
        weights = view.weights if view.weights is None else block.adjacency.with_values(view.weights).take(order).entries()
        self.structure = Block(matrix.indptr, self.halo.sources, weights, len(order) + len(self.halo.vertices))
        self.block, self._placed, self._parts = view.placed(self.structure), view.placed, dict[tuple[int, int, int], Block]()
        everyone = np.concatenate([self.vertices, self.halo.vertices])
        self.degrees = view.degrees(everyone)
        self.x = cast(FeatureSource, view.features).fetch(everyone if fetch else self.vertices)

    @property
    def rows(self) -> int:
        """m."""
        return len(self.vertices)

    def _number_own_rows(self, order: np.ndarray) -> None:
        """The halo speaks of the rows of the block as they lie there; here they are in another order."""
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        own = self.halo.sources < len(order)
        self.halo.sources[own] = place[self.halo.sources[own]]
        self.halo.requested = [place[asked] for asked in self.halo.requested]

    def part(self, first: int, last: int, sources: int) -> Block:
        """Some own rows as a block, where they are computed."""
        if (first, last, sources) not in self._parts:
            indptr, weights = self.structure.indptr, self.structure.weights
            entries = slice(int(indptr[first]), int(indptr[last]))
            own = None if weights is None else weights[entries]
            made = Block(indptr[first : last + 1] - indptr[first], self.structure.indices[entries], own, sources)
            self._parts[first, last, sources] = self._placed(made)
        return self._parts[first, last, sources]

    def exchanged(self, layer: Layer, h: Input, first: bool, key: str) -> torch.Tensor:
        """One layer over rows that travel: shape (m, width of the output); collective, forward and backward.

        Parameters
        ----------
        h : shape (m, width of the input)
        first : bool
            Whether the layer transforms before it aggregates.
        key : str
            Names the layer.
        """
        m, c = self.rows, self.central
        sent = layer.send(h, self.degrees[:m], first)
        travel = Travel(self, key)
        token = _Depart.apply(sent, travel)
        if not self.overlap:
            travel.land()
        central = layer.receive(self.part(0, c, m), sent, h[0:c], slice(0, c), self.degrees[:c], first)
        everything = torch.cat([sent, _Arrive.apply(token, travel)])
        marginal = self.part(c, m, len(everything))
        return torch.cat([central, layer.receive(marginal, everything, h[c:m], slice(c, m), self.degrees[c:m], first)])


class FrozenInput:
    """The input of a layer that does not change while it is trained: its halo is there, and travels no more.

    Parameters
    ----------
    rows : PassRows
    x : shape (m + h, f)
        Of own rows, then of halo rows.
    """

    def __init__(self, rows: PassRows, x: Input) -> None:
        self._rows, self.x = rows, x
        self._gathered: tuple[Input, ...] | None = None

    def layer(self, layer: Layer, model: Model, clean: bool = False) -> torch.Tensor:
        """The layer over own rows: shape (m, width of the output). Local.

        Where the layer is linear, dense inputs are aggregated once and no edge is touched again, unless there is dropout
        on the input. With `clean` there is dropout on the aggregate in its place.
        """
        own, mine = self._rows, slice(0, self._rows.rows)
        dropped = model.training and model.input_dropout > 0
        if isinstance(layer, LinearLayer) and isinstance(self.x, torch.Tensor) and (clean or not dropped):
            return layer.mix([model.drop_input(part) for part in self._once(layer)])
        x = model.drop_input(self.x)
        first = layer.transforms_first(isinstance(x, SparseRows), own.n, own.n, own.edges)
        return layer.receive(own.block, layer.send(x, own.degrees, first), x[mine], mine, own.degrees[mine], first)

    def _once(self, layer: LinearLayer) -> tuple[Input, ...]:
        if self._gathered is None:
            own, mine = self._rows, slice(0, self._rows.rows)
            with torch.no_grad():
                sent = layer.send(self.x, own.degrees, False)
                self._gathered = layer.gather(own.block, sent, self.x[mine], mine, own.degrees[mine])
        return self._gathered


class FullGraph:
    """A model over all rows of the graph.

    Parameters
    ----------
    rows : PassRows
    strong : bool
        Fetch the input of the first layer once, and let the narrower of transforming and aggregating go first. Otherwise,
        as published systems do and their figures count, every layer aggregates first, and the input travels every time.
    """

    def __init__(self, rows: PassRows, strong: bool = True) -> None:
        self.rows, self.strong = rows, strong
        self.input = FrozenInput(rows, rows.x)

    def __call__(self, model: Gnn) -> torch.Tensor:
        """Logits of the own rows: shape (m, classes); collective."""
        own, h = self.rows, cast(Input, None)
        for i, module in enumerate(model.layers):
            layer = cast(Layer, module)
            if i == 0 and self.strong:
                out = self.input.layer(layer, model)
            else:
                x = model.drop_input(own.x[0 : own.rows]) if i == 0 else h
                first = self.strong and layer.transforms_first(False, own.n, own.n, own.edges)
                first = first or isinstance(x, SparseRows) or not layer.linear
                out = own.exchanged(layer, x, first, str(i))
            h = model.between(i, out)
        assert isinstance(h, torch.Tensor)
        return h


class Travel:
    """Rows on their way forward in one layer, and later their gradients on the way back."""

    def __init__(self, rows: OwnRows, key: str) -> None:
        self._halo, self._messages, self._key = rows.halo, rows.messages, key
        self._flight: HaloExchange | None = None
        self._landed: np.ndarray | None = None

    def depart(self, own: np.ndarray) -> None:
        self._flight = self._halo.start(own, self._messages, f"{self._key} forward")

    def land(self) -> np.ndarray:
        if self._landed is None:
            assert self._flight is not None
            self._landed, self._flight = self._flight.wait(), None
        return self._landed

    def depart_back(self, halo: np.ndarray) -> None:
        self._flight, self._landed = self._halo.start_back(halo, self._messages, f"{self._key} backward"), None

    def land_back(self) -> np.ndarray:
        assert self._flight is not None
        return self._flight.wait_sum()


class _Depart(torch.autograd.Function):
    """Forward: own rows leave. Backward, which runs after that of all central rows: the gradients that came back."""

    @staticmethod
    def forward(ctx: Any, sent: torch.Tensor, travel: Travel) -> torch.Tensor:
        ctx.travel = travel
        travel.depart(sent.detach().cpu().numpy())
        return sent.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.from_numpy(ctx.travel.land_back()).to(gradients[0].device), None


class _Arrive(torch.autograd.Function):
    """Forward: halo rows. Backward, which runs before that of central rows: their gradients leave."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, travel: Travel) -> torch.Tensor:
        ctx.travel = travel
        return torch.from_numpy(travel.land()).to(token.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.travel.depart_back(gradients[0].contiguous().cpu().numpy())
        return gradients[0].new_zeros(()), None
